# libaoticache: builds and installs. scripts/tests.mk has the tests, scripts/measure.mk benchmarks and tables, scripts/packages.mk
# packages. `make help` prints the lines that begin with two hashes: they name all targets.
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
# 0: the shim is built without decompositions and solvers of matrices (products stay), and models that need them are refused.
LINEAR_ALGEBRA ?= 1
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

LIB_DIRS   := base base/text base/files base/process $(addprefix index/,connection entries eviction query_cache stats) \
              cache $(addprefix cache/,request store gc verify transfer trust pins stats config remote) \
              loader $(addprefix loader/,elf copy cxx_map runner check package cuda) \
              eager $(addprefix eager/,holder compile model/package model/safetensors model dispatch/schema dispatch torch)
LIB_SRC    := $(foreach dir,$(LIB_DIRS),$(wildcard $(dir)/*.c))
SHIM_SRC   := $(filter-out $(if $(filter 0,$(LINEAR_ALGEBRA)),runtime/shim/linear_algebra/%),$(wildcard runtime/shim/*.c runtime/shim/*/*.c)) third_party/pocketfft/pocketfft.c
KERNEL_SRC := $(wildcard runtime/*.c)
PUBLIC_HEADERS := aoticache.h aoticache/admin.h aoticache/dispatch.h aoticache/kernel.h aoticache/remote.h aoticache/runner.h aoticache/torch.h \
                  base/base.h base/names.h base/tensor_view.h \
                  cache/cache.h cache/entries.h cache/judgements.h cache/request/request.h cache/request/text.h cache/request/cpu.h \
                  cache/request/cpu_detect.h cache/gc/collect.h cache/verify/verify.h \
                  cache/transfer/transfer.h cache/remote/remote.h cache/remote/module.h cache/trust/trust.h cache/pins/pins.h cache/stats/statistics.h cache/stats/usage.h cache/config/config.h \
                  loader/loader.h loader/tensor.h loader/runner/runner.h loader/runner/create.h loader/runner/constants.h \
                  loader/runner/backend.h loader/check/check.h \
                  loader/package/package.h loader/cuda/cuda.h runtime/abi.h runtime/kernel.h \
                  eager/value.h eager/dispatch/schema/schema.h eager/dispatch/dispatch_key.h eager/dispatch/dispatch_key_list.h eager/dispatch/dispatcher.h \
                  eager/compile/compile.h eager/holder/call.h eager/holder/holder.h eager/holder/dispatch_holder.h \
                  eager/model/model.h eager/model/tensors.h eager/model/package/package.h \
                  eager/torch/binding.h eager/torch/bridge.h
KERNELS    := $(wildcard eager/compile/kernels/*.c) $(wildcard eager/compile/kernels/*.h)
TOOLS      := aoticache aoticache-gc aoticache-stat

objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

LIB_OBJ    := $(call objects,$(LIB_SRC))
SHIM_OBJ   := $(call objects,$(SHIM_SRC)) $(call objects,base/names.c base/error.c base/process/fork_guard.c base/process/openmp_fork.c)
PYTHON_OBJ := $(call objects,$(wildcard eager/python/*.c))
KERNEL_OBJ := $(call objects,$(KERNEL_SRC)) $(BUILD)/obj/runtime/constant_map.o
HOT_OBJ    := $(call objects,$(wildcard eager/*.c eager/holder/*.c eager/dispatch/*.c eager/torch/*.c loader/runner/*.c loader/check/*.c \
                tests/bench/*.c runtime/shim/*.c runtime/shim/*/*.c))
# Sources that the process of a hit runs. Their code is placed together in a library, after the code that every process uses
# (linkers put .text.hot in front), so that few pages of code are in memory: docs/performance.md, "Where memory goes".
START_SRC  := $(wildcard base/*.c base/files/*.c index/connection/*.c index/query_cache/*.c cache/config/*.c loader/*.c loader/elf/*.c loader/copy/*.c) \
              $(addprefix base/,process/home.c process/fork_guard.c text/units.c) index/entries/lookup.c eager/load_artifact.c eager/compile/get_runner.c \
              $(addprefix cache/,cache.c enter.c lookup.c stats/count.c stats/flush.c stats/histogram.c trust/revoked.c trust/trust.c) \
              $(patsubst %,cache/request/%.c,add check cpu cpu_detect encode environment request) \
              $(patsubst %,cache/store/%.c,ancestors artifact directory entry manifest_fact subdirectory object recovery) \
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
DATA     := $(BUILD)/share/aoticache/worker.py $(BUILD)/share/aoticache/guards.py $(BUILD)/share/aoticache/inductor/build.py $(BUILD)/share/aoticache/inductor/rewrites.py $(BUILD)/share/aoticache/inductor/corrections.py $(BUILD)/share/aoticache/inductor/wrapper.h $(BUILD)/share/aoticache/inductor/wrapper_std.h $(BUILD)/share/aoticache/inductor/wrapper_cxx.h $(BUILD)/share/aoticache/bridge.cpp $(BUILD)/share/aoticache/append-weights $(patsubst eager/compile/kernels/%,$(BUILD)/share/aoticache/kernels/%,$(KERNELS))
HEADERS  := $(patsubst %,$(BUILD)/include/aoticache/%,$(PUBLIC_HEADERS))
PRODUCTS := $(SHARED) $(BUILD)/lib/libaoticache.so $(STATIC) $(SHIM) $(BRIDGE) $(REMOTE_MODULES) $(KERNELRT) $(STUB) $(EXECUTOR) $(EXTENSION) $(BINS) $(BUILD)/aoticache.pc \
            $(DATA) $(HEADERS)

MAKEFILES_READ := Makefile scripts/tests.mk scripts/measure.mk scripts/packages.mk
.PHONY: FORCE $(shell sed -n 's/^\#\# \([a-z -]*[a-z]\)  .*/\1/p' $(MAKEFILES_READ))
.DEFAULT_GOAL := all
.SUFFIXES:
.DELETE_ON_ERROR:

## all  build everything under build/, which is laid out like an installation prefix
all: $(PRODUCTS)

# Printed once for a build directory.
ifneq ($(LEFT_OUT),)
ifeq ($(wildcard $(BUILD)/obj),)
$(info $(CC): $(LEFT_OUT) (docs/portability.md))
endif
endif

# Announces a step of the build, and makes the directory of its result.
define step
@mkdir -p $(@D)
$(if $(V),,@echo "  $(1)  $(2)")
endef

$(BUILD)/obj/%.o: %.c
	$(call step,CC  ,$<)
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
	$(call step,CXX ,$<)
	$(Q)$(CXX) $(ALL_CPPFLAGS) $(ALL_CXXFLAGS) -MMD -MP -c $< -o $@
	$(Q)$(OBJCOPY) --wildcard --weaken-symbol='_Z*' --weaken-symbol='__cxa_*' --weaken-symbol='__gxx_*' \
	    --weaken-symbol='_Unwind_*' $@

$(SHARED): $(LIB_OBJ) scripts/link/libaoticache.map Makefile
	$(call step,LD  ,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script=scripts/link/libaoticache.map \
	    $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) $(HARDEN_LDFLAGS) -Wl,--as-needed $(LIB_OBJ) $(LIBS) -o $@

$(BUILD)/lib/libaoticache.so: $(SHARED)
	$(Q)ln -sf $(<F) $@

$(STATIC): $(LIB_OBJ)
	$(call step,AR  ,$@)
	$(Q)rm -f $@ && $(AR) rcsD $@ $(LIB_OBJ)

# Loaded when the first .pt2 package is opened, by the soname of the libzip whose header was compiled against.
ZIP_LIBRARY ?= $(notdir $(firstword $(shell readlink -f $(shell $(PKG_CONFIG) --variable=libdir libzip)/libzip.so | sed 's/\(\.so\.[0-9]*\).*/\1/')))
$(call objects,loader/package/archive.c): OWN_CPPFLAGS += $(if $(ZIP_LIBRARY),-DAOTICACHE_ZIP_LIBRARY='"$(ZIP_LIBRARY)"')
# Loaded likewise with the first archive of `aoticache export` and `import`.
ARCHIVE_LIBRARY ?= $(notdir $(firstword $(shell readlink -f $(shell $(PKG_CONFIG) --variable=libdir libarchive 2>/dev/null)/libarchive.so | sed 's/\(\.so\.[0-9]*\).*/\1/')))
$(call objects,cache/transfer/archive_library.c): OWN_CPPFLAGS += $(if $(filter libarchive.so.%,$(ARCHIVE_LIBRARY)),-DAOTICACHE_ARCHIVE_LIBRARY='"$(ARCHIVE_LIBRARY)"')

$(call objects,runtime/shim/named_operators.c): OWN_CPPFLAGS += $(if $(filter 0,$(LINEAR_ALGEBRA)),-DAOTICACHE_WITHOUT_LINEAR_ALGEBRA)
$(call objects,runtime/shim/products/blas.c): OWN_CPPFLAGS += -DAOTICACHE_BLAS_LIBRARY='"$(BLAS_LIBRARY)"'
$(call objects,runtime/shim/math/onednn_library.c): OWN_CPPFLAGS += -DAOTICACHE_ONEDNN_LIBRARIES='"$(ONEDNN_LIBRARY)"'
$(call objects,runtime/shim/math/vector_math.c): OWN_CPPFLAGS += -DAOTICACHE_SLEEF_LIBRARY='"$(SLEEF_LIBRARY)"'

# Third-party code: its warnings are not reported.
$(call objects,third_party/pocketfft/pocketfft.c): OWN_CFLAGS += -w

# Only the loader loads it. If libtorch is not in the process, the loader makes kernel libraries need it by this soname
# (loader/loader.h explains why).
$(SHIM): $(SHIM_OBJ) scripts/link/libaoticache_torchshim.map Makefile
	$(call step,LD  ,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) \
	    -Wl,--version-script=scripts/link/libaoticache_torchshim.map $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) \
	    $(HARDEN_LDFLAGS) -Wl,--as-needed $(SHIM_OBJ) -lm -ldl -lpthread -o $@

# The loader loads it if a library accepts its constants only as a C++ map; nothing else here is C++.
$(BRIDGE): loader/cxx_map/cxx_map.cpp loader/cxx_map/cxx_map_internal.h Makefile
	$(call step,CXX ,$<)
	$(Q)$(CXX) $(ALL_CPPFLAGS) $(ALL_CXXFLAGS) $(LDFLAGS) $(HARDEN_LDFLAGS) -shared -Wl,-soname,$(@F) $< -o $@

# Loaded when a remote of their kind is configured. They use only functions of base/error.c, of which each contains a copy.
$(call objects,$(wildcard cache/remote/modules/http*.c)): OWN_CFLAGS += $(shell $(PKG_CONFIG) --cflags libcurl 2>/dev/null)
$(BUILD)/lib/libaoticache_remote_http.so: REMOTE_LIBS = $(shell $(PKG_CONFIG) --libs libcurl libcrypto)
$(BUILD)/lib/libaoticache_remote_redis.so: REMOTE_LIBS = $(shell $(PKG_CONFIG) --libs hiredis libssl libcrypto)
$(BUILD)/lib/libaoticache_remote_http.so: $(call objects,$(wildcard cache/remote/modules/http_*.c))
$(BUILD)/lib/libaoticache_remote_redis.so: $(call objects,$(wildcard cache/remote/modules/redis_*.c) cache/remote/modules/resolve.c cache/remote/modules/tls.c)
$(BUILD)/lib/libaoticache_remote_%.so: $(BUILD)/obj/cache/remote/modules/%.o $(BUILD)/obj/base/error.o \
                                        scripts/link/libaoticache_remote.map Makefile
	$(call step,LD  ,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script=scripts/link/libaoticache_remote.map \
	    -Wl,-z,relro -Wl,-z,now -Wl,--as-needed $(filter %.o,$^) $(REMOTE_LIBS) -lpthread -o $@

# Kernel libraries written in C link this: the container and the exported interface. The linker would copy debug information
# into every one of them, which would then have 400 KB instead of 60; DEBUG=1 keeps it.
$(KERNELRT): $(KERNEL_OBJ) Makefile
	$(call step,AR  ,$@)
	$(Q)rm -f $@ && $(AR) rcsD $@ $(KERNEL_OBJ)
	$(if $(DEBUG),,$(Q)$(OBJCOPY) --strip-debug --enable-deterministic-archives $@)

# An empty library with PyTorch's soname, so that kernel libraries written in C name the provider of their aoti_torch_*
# functions exactly as those that PyTorch makes do. It is linked against, never loaded.
$(STUB):
	@mkdir -p $(@D)
	$(Q)echo | $(CC) -shared -nostdlib -Wl,-soname,libtorch_cpu.so -x c - -o $@

# PyTorch's own runner loads it if a model needs its proxy executor (eager/torch/executor/executor.c).
$(EXECUTOR): $(BUILD)/obj/eager/torch/executor/executor.o Makefile
	$(call step,LD  ,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(HARDEN_LDFLAGS) -shared -Wl,-soname,$(@F) $(filter %.o,$^) -o $@

# The extension on which aoticache.runtime of the Python package is built. It declares the functions of Python's stable ABI that
# it uses itself (eager/python/stable_abi.h), so Python's headers are not needed, and any Python from 3.10 on loads it. It finds
# the library in the parent directory. (A slot of a type is a void pointer, to which ISO C cannot convert a function pointer.)
$(PYTHON_OBJ): OWN_CFLAGS += -Wno-pedantic
$(EXTENSION): $(PYTHON_OBJ) $(BUILD)/lib/libaoticache.so Makefile
	$(call step,LD  ,$@)
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
	$(call step,LD  ,$@)
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

$(BUILD)/aoticache.pc: scripts/link/aoticache.pc.in base/base.h Makefile $(BUILD)/prefix
	@mkdir -p $(@D)
	$(Q)sed -e 's|@prefix@|$(prefix)|' -e 's|@libdir@|$(libdir)|' -e 's|@pkglibdir@|$(pkglibdir)|' -e 's|@includedir@|$(includedir)|' \
	    -e 's|@version@|$(VERSION)|' $< > $@

$(BUILD)/share/aoticache/worker.py $(BUILD)/share/aoticache/guards.py: $(BUILD)/share/aoticache/%: eager/compile/%
	@mkdir -p $(@D)
	$(Q)cp $< $@
$(BUILD)/share/aoticache/inductor/%: eager/compile/inductor/%
	@mkdir -p $(@D)
	$(Q)cp $< $@
$(BUILD)/share/aoticache/bridge.cpp: eager/torch/bridge.cpp
	@mkdir -p $(@D)
	$(Q)cp $< $@
$(BUILD)/share/aoticache/append-weights: scripts/append-weights
	@mkdir -p $(@D)
	$(Q)install -m 755 $< $@
$(BUILD)/share/aoticache/kernels/%: eager/compile/kernels/%
	@mkdir -p $(@D)
	$(Q)cp $< $@
$(BUILD)/include/aoticache/%: %
	@mkdir -p $(@D)
	$(Q)cp $< $@

# ---- other targets ----

## deps  install what `make test` needs (CI=1: what all tests need), nothing else
deps:
	$(Q)VENV=$(VENV) scripts/install-deps

## demo  install what it needs, build, show the main job
demo:
	$(Q)MAKE='$(MAKE_COMMAND)' BUILD=$(BUILD) VENV=$(VENV) scripts/demo --install

## demo-svg  draw the output of the demo for README.md, docs/images/demo.svg
demo-svg: all
	$(Q)BUILD=$(BUILD) VENV=$(VENV) scripts/pictures/record-demo

## demo-fleet  one compile for four machines, with a Redis server on the loopback
demo-fleet: all
	$(Q)BUILD=$(BUILD) scripts/demo-fleet

INSTALL_MANIFEST := $(DESTDIR)$(datadir)/aoticache/installed-files

## install  to $(DESTDIR)$(prefix), prefix=/usr/local by default
install: all
	$(Q)BUILD=$(BUILD) DESTDIR='$(DESTDIR)' libdir='$(libdir)' pkglibdir='$(pkglibdir)' bindir='$(bindir)' includedir='$(includedir)' \
	    datadir='$(datadir)' mandir='$(mandir)' unitdir='$(unitdir)' manifest='$(INSTALL_MANIFEST)' scripts/install-files

## uninstall  remove exactly what install put there
uninstall:
	$(Q)DESTDIR='$(DESTDIR)' manifest='$(INSTALL_MANIFEST)' scripts/uninstall-files

## compile_commands.json  for clangd and similar tools
compile_commands.json: FORCE
	$(Q)scripts/packaging/compile-commands $@

## clean  remove what was built; build/venv stays, because it takes minutes to make again
clean:
	$(Q)find build -mindepth 1 -maxdepth 1 ! -name venv -exec rm -rf {} + 2>/dev/null || true

## help  this list
help:
	@echo 'targets:'
	@awk -F '  ' '/^## / { printf "  %-18s  %s\n", substr($$1, 4), $$2 }' $(MAKEFILES_READ)
	@echo 'variables:'
	@sed -n 's/^#= /  /p' Makefile

#= V=1 DEBUG=1 SANITIZE=address,undefined|thread WERROR=1 CC=clang CXX= VENV=
#= prefix= libdir= pkglibdir= bindir= includedir= datadir= mandir= unitdir= DESTDIR=   where install puts things
#= PKG_CONFIG=      for another machine: CC=aarch64-linux-gnu-gcc, and where its libraries are (docs/portability.md)
#= STATIC_CRYPTO=   need the shared libcrypto; by default SHA-256 is linked from libcrypto.a where that is there
#= HARDEN=          no stack protector, checked calls, read-only relocations
#= RPATH=           no search path for the library in the programs, for packages of a distribution

include $(filter %.mk,$(MAKEFILES_READ))

-include $(patsubst %.o,%.d,$(ALL_OBJ)) $(wildcard $(addsuffix /*.d,$(addprefix $(BUILD)/obj/tests/,* */* */*/*)))
# Objects of tests are kept, so that a change rebuilds only what it affects.
.SECONDARY:
