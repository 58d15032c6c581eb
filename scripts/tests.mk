# Tests: how they are built, and the targets that run them.

UNIT := $(patsubst tests/unit/%.c,%,$(wildcard $(addsuffix /test_*.c,tests/unit/* tests/unit/*/*)))
TEST_PROGRAMS := $(patsubst tests/%.c,%,$(wildcard tests/crash/*.c tests/race/*.c tests/bench/*.c tests/conformance/*.c \
                tests/helpers/*.c tests/fault/fault_*.c tests/environments/place_*.c))
UNIT_BINS    := $(addprefix $(BUILD)/tests/unit/,$(UNIT))
PROGRAM_BINS := $(addprefix $(BUILD)/tests/,$(TEST_PROGRAMS))

BENCH_PEERS := $(BUILD)/tests/bench/libnull_shim.so $(BUILD)/tests/bench/empty $(BUILD)/tests/bench/open_model
BENCH_PROGRAMS := $(filter $(BUILD)/tests/bench/%,$(PROGRAM_BINS)) $(BENCH_PEERS)

# A file system that fails on purpose, if there is libfuse.
FAILING_FS := $(if $(shell $(PKG_CONFIG) --exists fuse3 && echo 1),$(BUILD)/tests/environments/failing_fs)

HOST_BATTERY := $(BUILD)/tests/helpers/libhost_battery.so
# The library with all symbols of its objects visible, including those that it does not export, and inline functions: for tests in
# Python.
WHOLE := $(BUILD)/tests/helpers/libaoticache_whole.so
HOST_KERNELS := $(patsubst tests/hosts/kernels/%.c,$(BUILD)/tests/hosts/%.so,$(wildcard tests/hosts/kernels/*.c))

## tests unit-tests race-tests  build tests without running them
unit-tests: $(UNIT_BINS)

tests: unit-tests $(PROGRAM_BINS) $(BUILD)/tests/conformance/map_functions $(BENCH_PEERS) $(HOST_BATTERY) $(WHOLE) $(HOST_KERNELS) \
       $(patsubst tests/fuzz/%.c,$(BUILD)/tests/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c)) $(FAILING_FS)

# The programs that start threads and processes, and the kernel libraries that they load.
race-tests: $(filter $(BUILD)/tests/race/%,$(PROGRAM_BINS)) $(HOST_KERNELS)

# Unit tests and test programs link the static library, so that they can call functions that the shared one hides.
$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.o $(STATIC) | $(HOST_KERNELS)
	$(call step,LD  ,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $< $(STATIC) $(LIBS) -lcriterion -lm -o $@
# Makes calls fail: wraps functions of the C library, also for libraries that are loaded later.
FAULT_OBJ := $(patsubst %,$(BUILD)/obj/tests/fault/%.o,cases inject record trial)
# Called before the sanitizer is ready, so not instrumented.
$(BUILD)/obj/tests/fault/inject.o: INSTRUMENT :=
$(BUILD)/obj/tests/fault/inject.o: OWN_CPPFLAGS += $(if $(findstring address,$(SANITIZE)),-DINJECT_BESIDE_SANITIZER)
FAULT_BINS := $(filter $(BUILD)/tests/fault/%,$(PROGRAM_BINS))
$(FAULT_BINS): $(BUILD)/tests/fault/%: $(BUILD)/obj/tests/fault/%.o $(FAULT_OBJ) $(STATIC) | $(HOST_KERNELS)
	$(call step,LD  ,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -rdynamic $< $(FAULT_OBJ) $(STATIC) $(LIBS) -lm \
	    -Wl,--as-needed -lcriterion -o $@
# They use more of libcrypto than its archive can be linked with alone: Debian 13's needs zstd's library.
$(BUILD)/tests/bench/bench_remote $(BUILD)/tests/bench/bench_kernel: CRYPTO := $(shell $(PKG_CONFIG) --libs libcrypto)
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(STATIC)
	$(call step,LD  ,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $< $(STATIC) $(LIBS) -lm -o $@

$(BUILD)/obj/tests/environments/failing_fs.o: OWN_CFLAGS += $(shell $(PKG_CONFIG) --cflags fuse3 2>/dev/null)
$(BUILD)/tests/environments/failing_fs: $(BUILD)/obj/tests/environments/failing_fs.o
	$(call step,LD  ,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $< $(shell $(PKG_CONFIG) --libs fuse3) -o $@

# The same calls for hosts that have PyTorch in their process, and kernel libraries as their authors make them.
$(HOST_BATTERY): $(BUILD)/obj/tests/helpers/host_battery.o $(STATIC)
	$(call step,LD  ,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared $< $(STATIC) $(LIBS) -lm -o $@
$(WHOLE): $(LIB_OBJ) $(BUILD)/obj/tests/helpers/whole/inline_functions.o
	$(call step,LD  ,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared $^ $(LIBS) -lm -o $@
$(BUILD)/tests/hosts/%.so: tests/hosts/kernels/%.c tests/hosts/kernels/call_spec.h runtime/kernel.h $(KERNELRT) $(STUB)
	$(call step,LD  ,$@)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -ffp-contract=off $(LDFLAGS) -shared $< $(KERNELRT) -Wl,--no-as-needed $(STUB) \
	    -Wl,--as-needed -lm -o $@

# Fuzz targets replay their corpus in the ordinary tests, and grow it under libFuzzer by hand: make fuzz FUZZ_SECONDS=600, or
# make fuzz FUZZ='remote trust' FUZZ_SECONDS=9999 FUZZ_INPUTS=2000000.
FUZZ       := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 60
FUZZ_INPUTS ?=
FUZZ_BINS  := $(patsubst %,$(BUILD)/tests/fuzz/fuzz_%,$(FUZZ))
$(FUZZ_BINS): $(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/obj/tests/fuzz/replay.o $(STATIC)
	$(call step,LD  ,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(filter %.o,$^) $(STATIC) $(LIBS) -lm -o $@

## fuzz  fuzz targets, FUZZ_SECONDS=60 each; FUZZ="remote trust": those (needs clang)
fuzz:
	$(Q)FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_INPUTS=$(FUZZ_INPUTS) scripts/fuzz $(FUZZ)

# A C++ host of one of them, linked with it and the shim into one program.
$(BUILD)/tests/conformance/map_functions: tests/conformance/map_functions.cpp tests/hosts/kernels/affine.c $(KERNELRT) $(SHIM)
	@mkdir -p $(BUILD)/obj/tests/hosts
	$(call step,CXX ,$<)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -c tests/hosts/kernels/affine.c -o $(BUILD)/obj/tests/hosts/affine.o
	$(Q)$(CXX) $(ALL_CPPFLAGS) $(ALL_CXXFLAGS) $(LDFLAGS) $< $(BUILD)/obj/tests/hosts/affine.o $(KERNELRT) $(SHIM) \
	    -Wl,-rpath,'$$ORIGIN/../../lib' -ldl -lpthread -o $@

$(BUILD)/tests/bench/libnull_shim.so: tests/bench/peers/null_shim.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -O2 -fPIC -shared $(WARN) -Wl,-soname,libtorch_cpu.so $< -o $@
$(BUILD)/tests/bench/empty: tests/bench/peers/empty.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -O2 $(WARN) $< -o $@
$(BUILD)/tests/bench/open_model: $(BUILD)/obj/tests/bench/peers/open_model.o $(STATIC)
	$(call step,LD  ,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(HARDEN_LDFLAGS) $< $(STATIC) $(LIBS) -lm -o $@

## test  install what the tests need, build, run the tests (ten minutes)
## test-all  the same with all tests; TEST_PART=2/4: of the long tests in tests/python only the second quarter (.ci/run)
TEST_PART ?=
test test-all:
	$(Q)VENV=$(VENV) scripts/install-deps --for $(if $(findstring -all,$@),all,test)
	$(Q)MAKE='$(MAKE_COMMAND)' scripts/build all tests
	$(Q)$(MAKE) --no-print-directory $(@:test%=check%)

## check check-all  the same as test and test-all without installing anything
check check-all: all tests
	$(Q)BUILD=$(BUILD) VENV=$(VENV) scripts/run-tests $(if $(findstring -all,$@),$(if $(TEST_PART),--part=$(TEST_PART),--all))

## format  give the C code the form of .clang-format
format:
	$(Q)VENV=$(VENV) scripts/check-format --fix

## check-docs  what documents name exists, and something runs each example (the tests check it, too)
check-docs: all
	$(Q)BUILD=$(BUILD) scripts/check-docs

## long  the long forms of the tests, hours; FORMS="kill_collect race": those (scripts/long-tests --list)
FORMS ?=
long: all tests
	$(Q)BUILD=$(BUILD) VENV=$(VENV) scripts/long-tests $(FORMS)

## torture  eight processes use all functions of a cache, and are killed, TORTURE_SECONDS=3600
TORTURE_SECONDS ?= 3600
torture: $(BUILD)/tests/fault/fault_torture
	$(Q)$< $(TORTURE_SECONDS)

## check-arm64  build for arm64, unit tests under qemu-user, TESTS= (docs/portability.md; a quarter of an hour)
TESTS ?=
check-arm64:
	$(Q)scripts/check-arm64 $(TESTS)

## check-compilers  library, tools and unit tests with each GCC and Clang that is installed, COMPILERS= (minutes each)
COMPILERS ?=
check-compilers:
	$(Q)scripts/check-compilers $(COMPILERS)

## gpu  tests that need a GPU (docs/gpu.md); without one it reports that and exits with 0
gpu: all tests
	$(Q)BUILD=$(BUILD) VENV=$(VENV) tests/gpu/run_gpu_tests.sh || [ $$? -eq 77 ]
