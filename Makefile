# libaoticache: one Makefile, read from top to bottom.
#
#   make                 everything under build/, which is laid out like an installation prefix
#   make demo            installs what it needs, builds, shows the main job
#   make test            installs what the tests need, builds, runs the tests; test-all runs all of them
#   make bench           benchmarks: a table, build/bench.json, and plots of it
#   make install         prefix=/usr/local, DESTDIR=; `make uninstall` removes exactly what it installed
#   make help            all targets
#
# V=1 shows commands, DEBUG=1 builds without optimisation, SANITIZE=address,undefined or SANITIZE=thread instruments into a
# separate build directory, WERROR=1 makes warnings errors (as CI does).

VERSION   := $(shell sed -n 's/^.define AOTICACHE_VERSION "\(.*\)"/\1/p' base/base.h)
SOVERSION := 0

prefix     ?= /usr/local
libdir     ?= $(prefix)/lib
pkglibdir  ?= $(libdir)
bindir     ?= $(prefix)/bin
includedir ?= $(prefix)/include
datadir    ?= $(prefix)/share
mandir     ?= $(datadir)/man
unitdir    ?= $(prefix)/lib/systemd
DESTDIR    ?=

SANITIZE ?=
comma    := ,
hash     := \#
BUILD    ?= build$(if $(SANITIZE),/$(subst $(comma),-,$(SANITIZE)))
# The recorded dependencies of an object name it as it was built: one directory must not have two names.
override BUILD := $(patsubst $(CURDIR)/%,%,$(BUILD))
VENV     ?= $(CURDIR)/build/venv

CC       ?= cc
# The other programs of a cross compiler (aarch64-linux-gnu-gcc, also with options after it), if it has them.
CROSS    := $(shell echo '$(firstword $(CC))' | sed -n 's/^\(.*-linux-[a-z0-9]*-\)g*cc\(-[0-9]*\)*$$/\1/p')
cross     = $(if $(CROSS),$(if $(shell command -v $(CROSS)$(1)),$(CROSS)$(1),$(1)),$(1))
ifeq ($(origin AR),default)
AR       := $(call cross,ar)
endif
OBJCOPY  ?= $(call cross,objcopy)
# The C++ compiler of the same family and version.
ifeq ($(origin CXX),default)
CXX      := $(if $(findstring clang,$(CC)),$(subst clang,clang++,$(CC)),$(if $(findstring gcc,$(CC)),$(subst gcc,g++,$(CC)),c++))
CXX      := $(if $(shell command -v $(firstword $(CXX))),$(CXX),c++)
endif
PKG_CONFIG ?= pkg-config
# Goals that install it first do not need it yet.
ifeq ($(filter-out clean help uninstall deps demo test test-all dist,$(or $(MAKECMDGOALS),all)),)
PKG_CONFIG := $(if $(shell command -v $(firstword $(PKG_CONFIG))),$(PKG_CONFIG),false)
endif
PKGS     := sqlite3 libcrypto jansson
OPTIMISE := $(if $(DEBUG),-O0 -g3,-O2 -g)
WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wwrite-strings \
            -Wpointer-arith -Wformat=2 $(if $(WERROR),-Werror)
INSTRUMENT := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all)
# Hardening, as distributions want it; HARDEN= leaves it out. Checked functions of libc need an optimising compiler, and the
# sanitizers have their own checks. Every function is bound when the library is loaded; binding the library's own functions
# within it makes that cheaper.
HARDEN      ?= 1
HARDEN_CFLAGS   = $(if $(HARDEN),-fstack-protector-strong -fstack-clash-protection)
HARDEN_CPPFLAGS = $(if $(HARDEN),$(if $(INSTRUMENT)$(findstring -O0,$(CFLAGS))$(findstring _FORTIFY_SOURCE,$(CPPFLAGS)$(CFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2))
HARDEN_LDFLAGS  = $(if $(HARDEN),-Wl$(comma)-z$(comma)relro$(comma)-z$(comma)now$(comma)-z$(comma)noexecstack) -Wl,-Bsymbolic-functions
# Builds of the same sources in different directories give the same bytes.
REPRODUCIBLE := -ffile-prefix-map='$(CURDIR)=.'
# The user sets CPPFLAGS, CFLAGS, CXXFLAGS and LDFLAGS, also on make's command line, which a += here would not change.
OWN_CPPFLAGS = -D_GNU_SOURCE -I.
ALL_CPPFLAGS = $(OWN_CPPFLAGS) $(HARDEN_CPPFLAGS) $(CPPFLAGS)
CFLAGS   += $(OPTIMISE)
CXXFLAGS += $(OPTIMISE)
OWN_CFLAGS =
PKG_CFLAGS = $(eval PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS)))$(PKG_CFLAGS)
ALL_CFLAGS = -std=gnu11 -fPIC -fvisibility=hidden $(REPRODUCIBLE) $(WARN) $(HARDEN_CFLAGS) $(INSTRUMENT) $(PKG_CFLAGS) $(OWN_CFLAGS) $(CFLAGS)
ALL_CXXFLAGS = -std=c++17 -fPIC -fvisibility=hidden $(REPRODUCIBLE) $(HARDEN_CFLAGS) $(filter-out -Wstrict-prototypes -Wmissing-prototypes,$(WARN)) \
               $(INSTRUMENT) $(CXXFLAGS)
# Only SHA-256 of libcrypto is used. Linked from its archive, if there is one, that takes 25 KB; loading the shared library
# costs every process 1.6 MB of memory and half a millisecond (STATIC_CRYPTO= links the shared library anyway).
STATIC_CRYPTO ?= $(wildcard $(shell $(PKG_CONFIG) --variable=libdir libcrypto)/libcrypto.a)
CRYPTO   := $(if $(STATIC_CRYPTO),-Wl$(comma)--exclude-libs$(comma)libcrypto.a $(STATIC_CRYPTO),$(shell $(PKG_CONFIG) --libs libcrypto))
LIBS     = $(CRYPTO) $(shell $(PKG_CONFIG) --libs $(filter-out libcrypto,$(PKGS))) -ldl -lpthread
# Libraries that the shim loads at run time if they are installed: for large matrix multiplications, for convolutions, and for
# mathematical functions on vectors; otherwise it uses plain C. Empty: it does not look. Versions 3 and 2 of oneDNN can be used.
BLAS_LIBRARY   ?= libopenblas.so.0
ONEDNN_LIBRARY ?= libdnnl.so.3 libdnnl.so.2
SLEEF_LIBRARY  ?= libsleef.so.3
Q        := $(if $(V),,@)

# ---- the target platform ----

# The compiler's macros are read, so that an unsupported target is reported before anything is compiled. If the compiler fails
# here, its own error message appears later.
NEEDS_COMPILER := $(filter-out clean help uninstall deps demo test test-all dist,$(if $(MAKECMDGOALS),$(MAKECMDGOALS),all))
TARGET := $(if $(NEEDS_COMPILER),$(shell echo '$(hash)include <features.h>' | $(CC) $(CPPFLAGS) $(CFLAGS) -E -dM -x c - 2>/dev/null | \
            sed -n 's/^.define \(__x86_64__\|__aarch64__\|__GLIBC__\|__STDC__\|__clang__\|__AVX512F__\) .*/\1/p'))
ifeq ($(filter __STDC__,$(TARGET))$(filter __GLIBC__,$(TARGET)),__STDC__)
$(error $(CC) compiles for another C library than glibc. The loader needs what only glibc has: musl's dlclose() unloads \
nothing, so kernels would stay in memory forever. docs/portability.md says more)
endif
ifeq ($(filter __aarch64__,$(TARGET)),__aarch64__)
LEFT_OUT := the shim's loops and functions for AVX2 and AVX-512 are for x86-64: the plain ones are built
else ifeq ($(filter __x86_64__,$(TARGET))$(filter __STDC__,$(TARGET)),__STDC__)
LEFT_OUT := this is neither x86-64 nor arm64: CPU features are not known, nor are the shim's loops for AVX2 and AVX-512 built
else ifeq ($(filter __clang__ __AVX512F__,$(TARGET)),__clang__)
LEFT_OUT := the shim's functions on vectors of AVX2 and AVX-512 need GCC, so kernels that call those do not load without PyTorch
endif

# ---- sources and objects of each output ----

LIB_DIRS   := base base/text base/process $(addprefix index/,connection entries eviction stats) \
              cache $(addprefix cache/,request store gc verify transfer trust pins stats config remote) \
              loader $(addprefix loader/,elf copy cxx_map runner check package cuda) \
              eager $(addprefix eager/,holder hook package safetensors model schema dispatch torch)
LIB_SRC    := $(foreach dir,$(LIB_DIRS),$(wildcard $(dir)/*.c))
SHIM_SRC   := $(wildcard runtime/shim/*.c runtime/shim/*/*.c) third_party/pocketfft/pocketfft.c
KERNEL_SRC := $(wildcard runtime/*.c)
PUBLIC_HEADERS := aoticache.h aoticache/admin.h aoticache/dispatch.h aoticache/kernel.h aoticache/remote.h aoticache/runner.h aoticache/torch.h \
                  base/base.h base/names.h base/tensor_view.h \
                  cache/cache.h cache/entries.h cache/judgements.h cache/request/request.h cache/request/text.h cache/request/cpu.h \
                  cache/request/cpu_detect.h cache/gc/collect.h cache/verify/verify.h \
                  cache/transfer/transfer.h cache/remote/remote.h cache/remote/module.h cache/trust/trust.h cache/pins/pins.h cache/stats/statistics.h cache/stats/usage.h cache/config/config.h \
                  loader/loader.h loader/tensor.h loader/runner/runner.h loader/runner/create.h loader/runner/constants.h \
                  loader/runner/backend.h loader/check/check.h \
                  loader/package/package.h loader/cuda/cuda.h runtime/abi.h runtime/kernel.h \
                  eager/eager.h eager/call.h eager/value.h eager/holder/holder.h eager/holder/dispatch_holder.h eager/package/package.h eager/model/model.h \
                  eager/model/tensors.h \
                  eager/schema/schema.h eager/dispatch/dispatch_key.h eager/dispatch/dispatch_key_list.h eager/dispatch/dispatcher.h \
                  eager/torch/binding.h eager/torch/bridge.h
KERNELS    := $(wildcard eager/kernels/*.c) $(wildcard eager/kernels/*.h)
TOOLS      := aoticache aoticache-gc aoticache-stat
UNIT       := $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/test_*.c))
TEST_PROGRAMS := $(patsubst tests/%.c,%,$(wildcard tests/crash/*.c tests/race/*.c tests/bench/*.c tests/conformance/*.c \
                tests/helpers/*.c tests/fault/fault_*.c tests/environments/place_*.c))

objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

LIB_OBJ    := $(call objects,$(LIB_SRC))
SHIM_OBJ   := $(call objects,$(SHIM_SRC)) $(call objects,base/names.c base/error.c base/process/fork_guard.c base/process/openmp_fork.c)
PYTHON_OBJ := $(call objects,$(wildcard eager/python/*.c))
KERNEL_OBJ := $(call objects,$(KERNEL_SRC)) $(BUILD)/obj/runtime/constant_map.o
HOT_OBJ    := $(call objects,$(wildcard eager/*.c eager/holder/*.c eager/dispatch/*.c eager/torch/*.c loader/runner/*.c loader/check/*.c \
                tests/bench/*.c runtime/shim/*.c runtime/shim/*/*.c))
# Sources that the process of a hit runs. Their code is placed together in a library, after the code that every process uses
# (linkers put .text.hot in front), so that few pages of code are in memory: docs/performance.md, "Where memory goes".
START_SRC  := $(wildcard base/*.c index/connection/*.c cache/config/*.c loader/*.c loader/elf/*.c loader/copy/*.c) \
              $(addprefix base/,process/home.c process/fork_guard.c text/units.c) $(patsubst %,index/entries/%.c,lookup file_facts) eager/get_runner.c \
              $(addprefix cache/,cache.c enter.c hashed_files.c lookup.c stats/count.c stats/flush.c stats/histogram.c trust/revoked.c trust/trust.c) \
              $(patsubst %,cache/request/%.c,add check cpu cpu_detect encode environment request) \
              $(patsubst %,cache/store/%.c,ancestors artifact directory entry subdirectory object recovery) \
              $(patsubst %,loader/%.c,cuda/backend cuda/image runner/device_backend runner/host runner/runner_run runner/run_lock runner/runner) \
              $(wildcard runtime/shim/tensors/*.c)
ABSENT_SRC := $(filter-out $(wildcard $(START_SRC)),$(START_SRC))
$(if $(ABSENT_SRC),$(error START_SRC names files that do not exist: $(ABSENT_SRC)))
START_OBJ  := $(call objects,$(START_SRC))
CLI_OBJ    := $(call objects,$(wildcard tools/cli/*.c) $(addprefix base/,array.c text/stream.c text/units.c text/name_distance.c))
# What only `aoticache inspect` reports about a file of a library: these keep no state, so the library need not export them.
INSPECT_OBJ := $(call objects,base/arguments.c $(addprefix loader/,elf/elf.c elf/layout.c elf/names.c elf/traits.c cuda/arch.c cuda/image.c))
TOOL_OBJ   := $(call objects,$(wildcard tools/*/*.c tools/aoticache/*/*.c))
ALL_OBJ    := $(LIB_OBJ) $(PYTHON_OBJ) $(SHIM_OBJ) $(KERNEL_OBJ) $(TOOL_OBJ) $(call objects,$(wildcard cache/remote/modules/*.c) eager/torch/executor/executor.c)

SHARED   := $(BUILD)/lib/libaoticache.so.$(SOVERSION)
STATIC   := $(BUILD)/lib/libaoticache.a
SHIM     := $(BUILD)/lib/libaoticache_torchshim.so
KERNELRT := $(BUILD)/lib/libaoticache_runtime.a
BRIDGE   := $(BUILD)/lib/libaoticache_cxxbridge.so
STUB     := $(BUILD)/lib/aoticache/libtorch_cpu.so
EXECUTOR := $(BUILD)/lib/aoticache/proxy_executor.so
EXTENSION := $(BUILD)/lib/aoticache/_runtime.abi3.so
# Modules for remotes: each needs a library, and is not built if that is missing.
REMOTES  := $(if $(shell $(PKG_CONFIG) --exists libcurl && echo 1),http) $(if $(shell $(PKG_CONFIG) --exists hiredis libssl && echo 1),redis)
REMOTE_MODULES := $(patsubst %,$(BUILD)/lib/libaoticache_remote_%.so,$(REMOTES))
BINS     := $(addprefix $(BUILD)/bin/,$(TOOLS))
DATA     := $(BUILD)/share/aoticache/worker.py $(BUILD)/share/aoticache/guards.py $(BUILD)/share/aoticache/inductor/build.py $(BUILD)/share/aoticache/inductor/rewrites.py $(BUILD)/share/aoticache/inductor/corrections.py $(BUILD)/share/aoticache/inductor/wrapper.h $(BUILD)/share/aoticache/inductor/wrapper_std.h $(BUILD)/share/aoticache/inductor/wrapper_cxx.h $(BUILD)/share/aoticache/bridge.cpp $(BUILD)/share/aoticache/append-weights $(patsubst eager/kernels/%,$(BUILD)/share/aoticache/kernels/%,$(KERNELS))
HEADERS  := $(patsubst %,$(BUILD)/include/aoticache/%,$(PUBLIC_HEADERS))
PRODUCTS := $(SHARED) $(BUILD)/lib/libaoticache.so $(STATIC) $(SHIM) $(BRIDGE) $(REMOTE_MODULES) $(KERNELRT) $(STUB) $(EXECUTOR) $(EXTENSION) $(BINS) $(BUILD)/aoticache.pc \
            $(DATA) $(HEADERS)

.PHONY: FORCE all deps test test-all check check-all format check-docs check-arm64 check-compilers long torture bench bench-compile bench-judge bench-models bench-models-eager operators models model-results torch-operators torch-checks inductor-builds year fuzz gpu demo demo-fleet demo-svg install uninstall clean help tests race-tests unit-tests
.DEFAULT_GOAL := all
.SUFFIXES:
.DELETE_ON_ERROR:

all: $(PRODUCTS)

# Printed once for a build directory.
ifneq ($(LEFT_OUT),)
ifeq ($(wildcard $(BUILD)/obj),)
$(info $(CC): $(LEFT_OUT) (docs/portability.md))
endif
endif

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC    $<")
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c $< -o $@
	$(if $(filter $@,$(START_OBJ)),$(Q)$(OBJCOPY) --rename-section .text=.text.hot $@)

# Tests are compiled about as often as they are run.
$(BUILD)/obj/tests/%.o: OPTIMISE := $(if $(DEBUG),-O0 -g3,-O1 -g1)
$(BUILD)/obj/tests/bench/%.o: OPTIMISE := $(if $(DEBUG),-O0 -g3,-O2 -g)

# Every kernel library contains the container: optimised for size, except for the code of a run. No exception passes through it.
$(filter-out $(call objects,runtime/container_run.c),$(call objects,$(KERNEL_SRC))): OPTIMISE := $(if $(DEBUG),-O0 -g3,-Os -g)
# Functions of a hit have no stack protector either, which would be 1 instruction of 50; they read tensors, and no files.
$(KERNEL_OBJ) $(HOT_OBJ): HARDEN_CFLAGS :=
$(KERNEL_OBJ): HARDEN_CPPFLAGS :=
$(call objects,$(KERNEL_SRC)): OWN_CFLAGS += -fno-plt -fno-asynchronous-unwind-tables -fno-unwind-tables -ffunction-sections -fdata-sections

# Everything that it uses from libstdc++ is made weak, so that kernel libraries need none; the file explains why.
$(BUILD)/obj/runtime/constant_map.o: CXXFLAGS += $(if $(DEBUG),,-Os) -fno-plt -ffunction-sections
$(BUILD)/obj/runtime/constant_map.o: runtime/constant_map.cpp
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CXX   $<")
	$(Q)$(CXX) $(ALL_CPPFLAGS) $(ALL_CXXFLAGS) -MMD -MP -c $< -o $@
	$(Q)$(OBJCOPY) --wildcard --weaken-symbol='_Z*' --weaken-symbol='__cxa_*' --weaken-symbol='__gxx_*' \
	    --weaken-symbol='_Unwind_*' $@

$(SHARED): $(LIB_OBJ) scripts/libaoticache.map Makefile
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script=scripts/libaoticache.map \
	    $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) $(HARDEN_LDFLAGS) -Wl,--as-needed $(LIB_OBJ) $(LIBS) -o $@

$(BUILD)/lib/libaoticache.so: $(SHARED)
	$(Q)ln -sf $(<F) $@

$(STATIC): $(LIB_OBJ)
	@mkdir -p $(@D)
	$(if $(V),,@echo "  AR    $@")
	$(Q)rm -f $@ && $(AR) rcsD $@ $(LIB_OBJ)

# Loaded when the first .pt2 package is opened, by the soname of the libzip whose header was compiled against.
ZIP_LIBRARY ?= $(notdir $(firstword $(shell readlink -f $(shell $(PKG_CONFIG) --variable=libdir libzip)/libzip.so | sed 's/\(\.so\.[0-9]*\).*/\1/')))
$(call objects,loader/package/archive.c): OWN_CPPFLAGS += $(if $(ZIP_LIBRARY),-DAOTICACHE_ZIP_LIBRARY='"$(ZIP_LIBRARY)"')
# Loaded likewise with the first archive of `aoticache export` and `import`.
ARCHIVE_LIBRARY ?= $(notdir $(firstword $(shell readlink -f $(shell $(PKG_CONFIG) --variable=libdir libarchive 2>/dev/null)/libarchive.so | sed 's/\(\.so\.[0-9]*\).*/\1/')))
$(call objects,cache/transfer/archive_library.c): OWN_CPPFLAGS += $(if $(filter libarchive.so.%,$(ARCHIVE_LIBRARY)),-DAOTICACHE_ARCHIVE_LIBRARY='"$(ARCHIVE_LIBRARY)"')

# PyTorch's exceptions pass through functions of C there, on the stable C ABI. Such a function has nothing to clean up:
# otherwise the library would need libgcc_s, in every process.
$(call objects,$(filter-out eager/torch/bridge_open.c,$(wildcard eager/torch/*.c))): OWN_CFLAGS += -fexceptions

$(call objects,runtime/shim/products/blas.c): OWN_CPPFLAGS += -DAOTICACHE_BLAS_LIBRARY='"$(BLAS_LIBRARY)"'
$(call objects,runtime/shim/math/onednn_library.c): OWN_CPPFLAGS += -DAOTICACHE_ONEDNN_LIBRARIES='"$(ONEDNN_LIBRARY)"'
$(call objects,runtime/shim/math/vector_math.c): OWN_CPPFLAGS += -DAOTICACHE_SLEEF_LIBRARY='"$(SLEEF_LIBRARY)"'

# Third-party code: its warnings are not reported.
$(call objects,third_party/pocketfft/pocketfft.c): OWN_CFLAGS += -w

# Only the loader loads it. If libtorch is not in the process, the loader makes kernel libraries need it by this soname
# (loader/loader.h explains why).
$(SHIM): $(SHIM_OBJ) scripts/libaoticache_torchshim.map Makefile
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) \
	    -Wl,--version-script=scripts/libaoticache_torchshim.map $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) \
	    $(HARDEN_LDFLAGS) -Wl,--as-needed $(SHIM_OBJ) -lm -ldl -lpthread -o $@

# The loader loads it if a library accepts its constants only as a C++ map; nothing else here is C++.
$(BRIDGE): loader/cxx_map/cxx_map.cpp loader/cxx_map/cxx_map_internal.h Makefile
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CXX   $<")
	$(Q)$(CXX) $(ALL_CPPFLAGS) $(ALL_CXXFLAGS) $(LDFLAGS) $(HARDEN_LDFLAGS) -shared -Wl,-soname,$(@F) $< -o $@

# Loaded when a remote of their kind is configured. They use only functions of base/error.c, of which each contains a copy.
$(call objects,$(wildcard cache/remote/modules/http*.c)): OWN_CFLAGS += $(shell $(PKG_CONFIG) --cflags libcurl 2>/dev/null)
$(BUILD)/lib/libaoticache_remote_http.so: REMOTE_LIBS = $(shell $(PKG_CONFIG) --libs libcurl libcrypto)
$(BUILD)/lib/libaoticache_remote_redis.so: REMOTE_LIBS = $(shell $(PKG_CONFIG) --libs hiredis libssl libcrypto)
$(BUILD)/lib/libaoticache_remote_http.so: $(call objects,$(wildcard cache/remote/modules/http_*.c))
$(BUILD)/lib/libaoticache_remote_redis.so: $(call objects,$(wildcard cache/remote/modules/redis_*.c) cache/remote/modules/resolve.c cache/remote/modules/tls.c)
$(BUILD)/lib/libaoticache_remote_%.so: $(BUILD)/obj/cache/remote/modules/%.o $(BUILD)/obj/base/error.o scripts/libaoticache_remote.map Makefile
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script=scripts/libaoticache_remote.map \
	    -Wl,-z,relro -Wl,-z,now -Wl,--as-needed $(filter %.o,$^) $(REMOTE_LIBS) -lpthread -o $@

# Kernel libraries written in C link this: the container and the exported interface. The linker would copy debug information
# into every one of them, which would then have 400 KB instead of 60; DEBUG=1 keeps it.
$(KERNELRT): $(KERNEL_OBJ) Makefile
	@mkdir -p $(@D)
	$(if $(V),,@echo "  AR    $@")
	$(Q)rm -f $@ && $(AR) rcsD $@ $(KERNEL_OBJ)
	$(if $(DEBUG),,$(Q)$(OBJCOPY) --strip-debug --enable-deterministic-archives $@)

# An empty library with PyTorch's soname, so that kernel libraries written in C name the provider of their aoti_torch_*
# functions exactly as those that PyTorch makes do. It is linked against, never loaded.
$(STUB):
	@mkdir -p $(@D)
	$(Q)echo | $(CC) -shared -nostdlib -Wl,-soname,libtorch_cpu.so -x c - -o $@

# PyTorch's own runner loads it if a model needs its proxy executor (eager/torch/executor/executor.c).
$(EXECUTOR): $(BUILD)/obj/eager/torch/executor/executor.o Makefile
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(HARDEN_LDFLAGS) -shared -Wl,-soname,$(@F) $(filter %.o,$^) -o $@

# The extension on which aoticache.runtime of the Python package is built. It declares the functions of Python's stable ABI that
# it uses itself (eager/python/stable_abi.h), so Python's headers are not needed, and any Python from 3.10 on loads it. It finds
# the library in the parent directory. (A slot of a type is a void pointer, to which ISO C cannot convert a function pointer.)
$(PYTHON_OBJ): OWN_CFLAGS += -Wno-pedantic
$(EXTENSION): $(PYTHON_OBJ) $(BUILD)/lib/libaoticache.so Makefile
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) $(HARDEN_LDFLAGS) $(PYTHON_OBJ) -L$(BUILD)/lib -laoticache \
	    $(if $(RPATH),-Wl$(comma)-rpath$(comma)'$$ORIGIN/..') -o $@

$(BUILD)/bin/aoticache: $(call objects,$(wildcard tools/aoticache/*.c tools/aoticache/*/*.c)) $(CLI_OBJ) $(INSPECT_OBJ) $(BUILD)/lib/libaoticache.so
$(BUILD)/bin/aoticache-gc: $(call objects,$(wildcard tools/gc/*.c)) $(CLI_OBJ) $(BUILD)/lib/libaoticache.so
$(call objects,tools/stat/html.c): tools/stat/report.html
$(BUILD)/bin/aoticache-stat: $(call objects,$(wildcard tools/stat/*.c)) $(CLI_OBJ) $(BUILD)/lib/libaoticache.so
# The programs find the library in the installation and in the build directory. RPATH= leaves that to the dynamic linker, as
# distributions want it (the build directory then needs LD_LIBRARY_PATH).
RPATH ?= -Wl,-rpath,'$$ORIGIN/../lib$(addprefix :$$ORIGIN/,$(filter-out ../lib,$(shell realpath -ms --relative-to='$(bindir)' '$(libdir)')))'
$(BINS): $(BUILD)/prefix
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -pie $(HARDEN_LDFLAGS) $(filter %.o,$^) -L$(BUILD)/lib -laoticache $(RPATH) \
	    -ljansson -ldl -lpthread -lm -o $@

# Changes with the installation directories, so that after `make`, `make install prefix=...` installs files that contain the new
# ones.
LAYOUT := $(prefix) $(libdir) $(pkglibdir) $(bindir) $(includedir) $(datadir)
$(BUILD)/prefix: FORCE
	@mkdir -p $(@D)
	@echo '$(LAYOUT)' | cmp -s - $@ || echo '$(LAYOUT)' > $@
$(call objects,base/process/home.c): $(BUILD)/prefix
$(call objects,base/process/home.c): OWN_CPPFLAGS += -DAOTICACHE_PREFIX='"$(prefix)"' -DAOTICACHE_LIBDIR='"$(libdir)"' \
    -DAOTICACHE_PKGLIBDIR='"$(pkglibdir)"' \
       -DAOTICACHE_DATADIR='"$(datadir)"' -DAOTICACHE_INCLUDEDIR='"$(includedir)"'

$(BUILD)/aoticache.pc: scripts/aoticache.pc.in base/base.h Makefile $(BUILD)/prefix
	@mkdir -p $(@D)
	$(Q)sed -e 's|@prefix@|$(prefix)|' -e 's|@libdir@|$(libdir)|' -e 's|@pkglibdir@|$(pkglibdir)|' -e 's|@includedir@|$(includedir)|' \
	    -e 's|@version@|$(VERSION)|' $< > $@

$(BUILD)/share/aoticache/worker.py $(BUILD)/share/aoticache/guards.py: $(BUILD)/share/aoticache/%: eager/hook/%
	@mkdir -p $(@D)
	$(Q)cp $< $@
$(BUILD)/share/aoticache/inductor/%: eager/inductor/%
	@mkdir -p $(@D)
	$(Q)cp $< $@
$(BUILD)/share/aoticache/bridge.cpp: eager/torch/bridge.cpp
	@mkdir -p $(@D)
	$(Q)cp $< $@
$(BUILD)/share/aoticache/append-weights: scripts/append-weights
	@mkdir -p $(@D)
	$(Q)install -m 755 $< $@
$(BUILD)/share/aoticache/kernels/%: eager/kernels/%
	@mkdir -p $(@D)
	$(Q)cp $< $@
$(BUILD)/include/aoticache/%: %
	@mkdir -p $(@D)
	$(Q)cp $< $@

# ---- tests ----

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

unit-tests: $(UNIT_BINS)

tests: unit-tests $(PROGRAM_BINS) $(BUILD)/tests/conformance/map_functions $(BENCH_PEERS) $(HOST_BATTERY) $(WHOLE) $(HOST_KERNELS) \
       $(patsubst tests/fuzz/%.c,$(BUILD)/tests/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c)) $(FAILING_FS)

# The programs that start threads and processes, and the kernel libraries that they load.
race-tests: $(filter $(BUILD)/tests/race/%,$(PROGRAM_BINS)) $(HOST_KERNELS)

# Unit tests and test programs link the static library, so that they can call functions that the shared one hides.
$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.o $(STATIC) | $(HOST_KERNELS)
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $< $(STATIC) $(LIBS) -lcriterion -lm -o $@
# Makes calls fail: wraps functions of the C library, also for libraries that are loaded later.
FAULT_OBJ := $(patsubst %,$(BUILD)/obj/tests/fault/%.o,cases inject record trial)
# Called before the sanitizer is ready, so not instrumented.
$(BUILD)/obj/tests/fault/inject.o: INSTRUMENT :=
$(BUILD)/obj/tests/fault/inject.o: OWN_CPPFLAGS += $(if $(findstring address,$(SANITIZE)),-DINJECT_BESIDE_SANITIZER)
FAULT_BINS := $(filter $(BUILD)/tests/fault/%,$(PROGRAM_BINS))
$(FAULT_BINS): $(BUILD)/tests/fault/%: $(BUILD)/obj/tests/fault/%.o $(FAULT_OBJ) $(STATIC) | $(HOST_KERNELS)
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -rdynamic $< $(FAULT_OBJ) $(STATIC) $(LIBS) -lm \
	    -Wl,--as-needed -lcriterion -o $@
# They use more of libcrypto than its archive can be linked with alone: Debian 13's needs zstd's library.
$(BUILD)/tests/bench/bench_remote $(BUILD)/tests/bench/bench_kernel: CRYPTO := $(shell $(PKG_CONFIG) --libs libcrypto)
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(STATIC)
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $< $(STATIC) $(LIBS) -lm -o $@

$(BUILD)/obj/tests/environments/failing_fs.o: OWN_CFLAGS += $(shell $(PKG_CONFIG) --cflags fuse3 2>/dev/null)
$(BUILD)/tests/environments/failing_fs: $(BUILD)/obj/tests/environments/failing_fs.o
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $< $(shell $(PKG_CONFIG) --libs fuse3) -o $@

# The same calls for hosts that have PyTorch in their process, and kernel libraries as their authors make them.
$(HOST_BATTERY): $(BUILD)/obj/tests/helpers/host_battery.o $(STATIC)
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared $< $(STATIC) $(LIBS) -lm -o $@
$(WHOLE): $(LIB_OBJ) $(BUILD)/obj/tests/helpers/whole/inline_functions.o
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared $^ $(LIBS) -lm -o $@
$(BUILD)/tests/hosts/%.so: tests/hosts/kernels/%.c tests/hosts/kernels/call_spec.h runtime/kernel.h $(KERNELRT) $(STUB)
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -ffp-contract=off $(LDFLAGS) -shared $< $(KERNELRT) -Wl,--no-as-needed $(STUB) \
	    -Wl,--as-needed -lm -o $@

# Fuzz targets replay their corpus in the ordinary tests, and grow it under libFuzzer by hand: make fuzz FUZZ_SECONDS=600, or
# make fuzz FUZZ='remote trust' FUZZ_SECONDS=9999 FUZZ_INPUTS=2000000.
FUZZ       := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 60
FUZZ_INPUTS ?=
FUZZ_BINS  := $(patsubst %,$(BUILD)/tests/fuzz/fuzz_%,$(FUZZ))
$(FUZZ_BINS): $(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/obj/tests/fuzz/replay.o $(STATIC)
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(filter %.o,$^) $(STATIC) $(LIBS) -lm -o $@

fuzz:
	$(Q)FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_INPUTS=$(FUZZ_INPUTS) scripts/fuzz $(FUZZ)

# A C++ host of one of them, linked with it and the shim into one program.
$(BUILD)/tests/conformance/map_functions: tests/conformance/map_functions.cpp tests/hosts/kernels/affine.c $(KERNELRT) $(SHIM)
	@mkdir -p $(@D) $(BUILD)/obj/tests/hosts
	$(if $(V),,@echo "  CXX   $<")
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
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(HARDEN_LDFLAGS) $< $(STATIC) $(LIBS) -lm -o $@

# What `make test` needs or, if CI is set, what all tests need. scripts/install-deps has levels.
deps:
	$(Q)VENV=$(VENV) scripts/install-deps

# Installs what is missing, then builds and runs the tests; `make check` does the same without installing. test-all and
# check-all run everything; with TEST_PART=2/4 only the second quarter of the long tests in tests/python (.ci/run).
TEST_PART ?=
test test-all:
	$(Q)VENV=$(VENV) scripts/install-deps --for $(if $(findstring -all,$@),all,test)
	$(Q)MAKE='$(MAKE_COMMAND)' scripts/build all tests
	$(Q)$(MAKE) --no-print-directory $(@:test%=check%)

check check-all: all tests
	$(Q)BUILD=$(BUILD) VENV=$(VENV) scripts/run-tests $(if $(findstring -all,$@),$(if $(TEST_PART),--part=$(TEST_PART),--all))

# Formats the code with .clang-format; the tests check the format.
format:
	$(Q)VENV=$(VENV) scripts/check-format --fix

# Checks that everything named in documents exists, and runs their examples (`make check` does this too).
check-docs: all
	$(Q)BUILD=$(BUILD) scripts/check-docs

# The long forms of the tests, which take hours: make long FORMS='kill_collect race'. scripts/long-tests --list names them.
FORMS ?=
long: all tests
	$(Q)BUILD=$(BUILD) VENV=$(VENV) scripts/long-tests $(FORMS)

# Eight processes use all functions of a cache, and are killed, with WAL and with a rollback journal.
TORTURE_SECONDS ?= 3600
torture: $(BUILD)/tests/fault/fault_torture
	$(Q)$< $(TORTURE_SECONDS)

# Installs what the demo needs, builds on all processors, and shows the main function.
demo:
	$(Q)MAKE='$(MAKE_COMMAND)' BUILD=$(BUILD) VENV=$(VENV) scripts/demo --install

# Draws the output of the demo for README.md: docs/images/demo.svg.
demo-svg: all
	$(Q)BUILD=$(BUILD) VENV=$(VENV) scripts/record-demo

# One compile for four machines, with a Redis server on the loopback (docs/remotes.md).
demo-fleet: all
	$(Q)BUILD=$(BUILD) scripts/demo-fleet

# BENCHES='index kernel' runs only those; QUICK=1 takes minutes, with smaller caches and fewer rounds, and reports what it
# leaves out; BENCH_PLOTS=docs/images draws the plots of docs/performance.md again.
BENCHES     ?=
BENCH_PLOTS ?= $(BUILD)
QUICK       ?=
bench: all $(BENCH_PROGRAMS)
	$(Q)BUILD=$(BUILD) VENV=$(VENV) BENCHES='$(BENCHES)' QUICK='$(QUICK)' BENCH_PLOTS=$(BENCH_PLOTS) scripts/bench

# torch.compile as on a fresh machine, compared with PyTorch's own caches (docs/performance.md): half an hour.
bench-compile: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/bench/compile_table.py $(PROGRAMS)

# Measures what a call costs after the kernels' speed trials, compared with plain PyTorch (docs/performance.md). Compiles for
# minutes, once.
bench-judge: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python -W ignore tests/bench/judge_table.py

# Whole programs in eager PyTorch, plain and with enable("safe") (docs/performance.md); compiles for minutes, once.
bench-models-eager: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python -W ignore tests/bench/bench_models_eager.py

# Starts of whole models until the first output, compared with dlopen and aoti_load_package (docs/performance.md); compiles for
# minutes, once.
bench-models: all $(BUILD)/tests/bench/open_model
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python -W ignore tests/bench/bench_models.py

# Builds for arm64 and runs the unit tests under qemu-user, by hand (docs/portability.md). TESTS: patterns, as for run-tests.
TESTS ?=
check-arm64:
	$(Q)scripts/check-arm64 $(TESTS)

# Library, tools and unit tests with each of Debian's compilers that is installed, warnings as errors: minutes for each.
COMPILERS ?=
check-compilers:
	$(Q)scripts/check-compilers $(COMPILERS)

# Tests that need a GPU (docs/gpu.md); without one it reports that and exits with 0.
gpu: all tests
	$(Q)BUILD=$(BUILD) VENV=$(VENV) tests/gpu/run_gpu_tests.sh || [ $$? -eq 77 ]

# Compiles the 702 operators of PyTorch's test database, an hour the first time, and writes docs/operators.md.
operators: all $(BUILD)/tests/helpers/run_library
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/operator_table.py

# Compares thirty models without PyTorch with PyTorch and ONNX Runtime: docs/models.md and its plot. Compiles for half an hour,
# once. PYTHONPATH may name directories with transformers, torchvision, onnx, onnxscript, onnxruntime. MODELS: only these, as
# MODELS="'ResNet-18' ViT", or options of the script: --resume, --write.
MODELS ?=
models: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python -W ignore tests/bench/model_times.py $(MODELS)

# Finds out whether thirty models run in float32, bfloat16 and with a free batch: last table of docs/models.md; half an hour.
model-results: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/models.py --write
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/models.py --bfloat16 --write
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/models.py --free-batch --write

# Lists the operators of PyTorch that the binding serves, and why it does not serve the others: docs/torch-operators.md.
torch-operators: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/torch_operator_table.py

# PyTorch's operators at their edges, compiled kernels against PyTorch: docs/torch-checks.md (most of an hour at first).
torch-checks: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/torch_checks.py table

# Every operator of PyTorch's database built our way and PyTorch's, and compared bit for bit (most of an hour).
inductor-builds: all
	$(Q)BUILD=$(BUILD) $(VENV)/bin/python tests/python/inductor_builds.py --json $(BUILD)/inductor-builds.json

# Simulates a year of a cache of 100,000 keys (minutes), compared with plain LRU and Belady's rule. The ordinary tests run a
# smaller form.
year: all tests
	$(Q)KEYS=100000 REQUESTS=1000000 BUILD=$(BUILD) bash tests/cli/test_year.sh

# ---- installation ----

INSTALL_MANIFEST := $(DESTDIR)$(datadir)/aoticache/installed-files

install: all
	$(Q)BUILD=$(BUILD) DESTDIR='$(DESTDIR)' libdir='$(libdir)' pkglibdir='$(pkglibdir)' bindir='$(bindir)' includedir='$(includedir)' \
	    datadir='$(datadir)' mandir='$(mandir)' unitdir='$(unitdir)' manifest='$(INSTALL_MANIFEST)' scripts/install-files

uninstall:
	$(Q)DESTDIR='$(DESTDIR)' manifest='$(INSTALL_MANIFEST)' scripts/uninstall-files

# ---- packages (docs/packaging.md) ----

DIST     ?= $(BUILD)/dist
RELEASES ?= bookworm
.PHONY: image-rootfs dist deb check-deb wheel check-wheel sbom check-abi check-image check-quickstart rpm

# The sources, as a tarball that builds without git; packages for Debian and for RPM; the wheel; the list of the library's
# components.
dist:
	$(Q)scripts/packaging/dist $(DIST)
deb:
	$(Q)scripts/packaging/deb $(DIST)
rpm:
	$(Q)scripts/packaging/rpm $(DIST)
wheel:
	$(Q)PYTHON='$(PYTHON)' VENV=$(VENV) scripts/packaging/wheel $(DIST)
sbom: all
	$(Q)BUILD=$(BUILD) scripts/packaging/sbom $(DIST)
check-abi: all
	$(Q)BUILD=$(BUILD) scripts/packaging/check-abi

# Run by hand, as root: minutes, in fresh systems that debootstrap makes.
check-deb:
	$(Q)for release in $(RELEASES); do scripts/packaging/check-deb $$release || exit 1; done
check-wheel: all
	$(Q)for release in $(RELEASES); do scripts/packaging/check-wheel $(DIST) $$release || exit 1; done
image-rootfs: all
	$(Q)scripts/packaging/image-rootfs $(or $(ROOTFS),$(BUILD)/rootfs) $(PACKAGES)

check-image: all
	$(Q)for release in $(RELEASES); do scripts/packaging/check-image $$release || exit 1; done
# Runs the two commands of README.md and every command of the three tutorials, from nothing installed to the result, and times
# them. USERS='demo author': only those.
check-quickstart:
	$(Q)for release in $(RELEASES); do scripts/packaging/check-quickstart $$release || exit 1; done

# For clangd and similar tools.
compile_commands.json: FORCE
	$(Q)scripts/packaging/compile-commands $@

# The virtual environment in build/venv is kept: it takes minutes to make again. `rm -r build` removes it too.
clean:
	$(Q)find build -mindepth 1 -maxdepth 1 ! -name venv -exec rm -rf {} + 2>/dev/null || true

help:
	@echo 'targets: all test test-all check check-all format check-docs check-arm64 check-compilers long torture bench bench-compile bench-judge bench-models bench-models-eager operators models torch-operators torch-checks inductor-builds year fuzz gpu demo demo-fleet demo-svg install uninstall deps tests unit-tests dist deb rpm wheel sbom check-abi check-deb check-wheel check-image image-rootfs check-quickstart clean help'
	@echo '  all        build everything under build/'
	@echo '  test       install what the tests need, build, run the tests (ten minutes);  test-all  all tests (CI does)'
	@echo '  check      the same as test without installing anything;  check-all  as test-all'
	@echo '  check-docs what documents name exists, and something runs each example'
	@echo '  check-arm64  cross-compile for arm64, unit tests under qemu-user, TESTS= (docs/portability.md; a quarter of an hour)'
	@echo '  check-compilers  library, tools and unit tests with each GCC and Clang that is here, COMPILERS= (minutes each)'
	@echo '  long       the long forms of the tests, hours; FORMS="kill_collect race": those (scripts/long-tests --list)'
	@echo '  torture    processes that do everything at once, and are killed, TORTURE_SECONDS=3600'
	@echo '  bench-judge  what a call costs after kernels were judged, against plain PyTorch'
	@echo '  bench-models  starts of whole models, beside dlopen and aoti_load_package (minutes)'
	@echo '  bench-models-eager  whole programs in eager PyTorch, plain and on the cache (minutes)'
	@echo '  bench      benchmarks: a table, build/bench.json, plots (twenty minutes); QUICK=1: in five minutes, with less; BENCHES="index kernel": those; BENCH_PLOTS=docs/images: for the documents'
	@echo '  bench-compile  torch.compile in a fresh state, beside PyTorch'"'"'s own caches (half an hour)'
	@echo '  operators  run operators of PyTorch on the shim, docs/operators.md (an hour)'
	@echo '  models     time thirty models without PyTorch beside PyTorch and ONNX Runtime, docs/models.md (half an hour)'
	@echo '  inductor-builds  build the operator database our way and PyTorch'"'"'s, compare (most of an hour)'
	@echo '  torch-operators  which operators the PyTorch binding serves, docs/torch-operators.md'
	@echo '  torch-checks     compiled kernels against PyTorch at the edges of operators, docs/torch-checks.md'
	@echo '  year       a simulated year of a large cache, beside LRU and Belady (minutes)'
	@echo '  fuzz       fuzz targets, FUZZ_SECONDS=60 each (clang);  gpu: what needs a GPU'
	@echo '  demo       install what it needs, build, show the main job;  demo-fleet  one compile for four machines (Redis);  demo-svg  draw the demo, docs/images/demo.svg'
	@echo '  install    to $$(DESTDIR)$$(prefix), prefix=/usr/local by default;  uninstall takes it back'
	@echo '  deps       install what make test needs (CI=1: what all tests need), nothing else;  format: put the C code in the form of .clang-format'
	@echo '  dist deb rpm wheel sbom  packages, in build/dist (docs/packaging.md);  compile_commands.json'
	@echo '  check-abi  compare the library with the recorded ABI (docs/abi.md)'
	@echo '  image-rootfs  a directory with the tool and its libraries alone, ROOTFS=DIRECTORY, PACKAGES="model.pt2" in its cache'
	@echo '  check-deb check-wheel check-image  packages in fresh systems, RELEASES=bookworm (root, minutes)'
	@echo '  check-quickstart  make demo, make test and the tutorials in fresh systems, timed, USERS="demo author", RELEASES=bookworm (root, minutes)'
	@echo '  clean      remove what was built (build/venv stays)'
	@echo 'variables: V=1 DEBUG=1 SANITIZE=address,undefined|thread WERROR=1 CC=clang CXX= VENV='
	@echo '  prefix= libdir= pkglibdir= bindir= includedir= datadir= mandir= unitdir= DESTDIR=   where install puts things'
	@echo '  PKG_CONFIG=      for another machine: CC=aarch64-linux-gnu-gcc, and where its libraries are (docs/portability.md)'
	@echo '  STATIC_CRYPTO=   need the shared libcrypto; by default SHA-256 is linked from libcrypto.a where that is there'
	@echo '  HARDEN=          no stack protector, checked calls, read-only relocations'
	@echo '  RPATH=           no search path for the library in the programs, for packages of a distribution'

-include $(patsubst %.o,%.d,$(ALL_OBJ)) $(wildcard $(BUILD)/obj/tests/*/*.d)
# Objects of tests are kept, so that a change rebuilds only what it affects.
.SECONDARY:
