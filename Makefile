# Hodgepodge: build, test and try. `make help` lists the targets.

BUILD ?= build
CC ?= gcc
PYTHON ?= /usr/bin/python3
SHELL := /bin/bash
# "ccache gcc" where ccache is installed, without asking for it.
ifneq ($(shell command -v ccache 2>/dev/null),)
  ifeq ($(findstring ccache,$(CC)),)
    override CC := ccache $(CC)
  endif
endif

# ---- what is built ------------------------------------------------------------------------------------------
# A room is a folder of sources and becomes one static library. A room's libraries come after it when linking.
ROOMS := common model planners transport agent coordinator
CLI_SOURCES := $(filter-out hpctl/main.c,$(wildcard hpctl/*.c))
MAINS := agent/main.c coordinator/main.c hpctl/main.c
# What libhp-grpc.so is made of is in no library.
GRPC_SOURCES := $(wildcard coordinator/gateway/grpc/*.c)

sources_of = $(filter-out $(MAINS) $(GRPC_SOURCES),$(wildcard $(1)/*.c $(1)/*/*.c $(1)/*/*/*.c))
objects_of = $(patsubst %.c,$(BUILD)/obj/%.o,$(call sources_of,$(1)))

# The page that the coordinator serves, with the documents and the description of its API, as one C source (tools/embed_page).
PAGE := $(wildcard coordinator/gateway/page/*) coordinator/gateway/openapi.json README.md $(wildcard docs/*.md) CHANGELOG.md
GENERATED_coordinator := $(BUILD)/obj/generated/page_files.o
# What agents and backend plugins are compiled against, as a text that both have (tools/plugin_interface).
GENERATED_agent := $(BUILD)/obj/generated/plugin_interface.o

LIBS_common := $(BUILD)/libhp-common.a
LIBS_model := $(BUILD)/libhp-model.a $(LIBS_common)
LIBS_planners := $(BUILD)/libhp-planners.a $(LIBS_common)
LIBS_transport := $(BUILD)/libhp-transport.a $(LIBS_common)
LIBS_agent := $(BUILD)/libhp-agent.a $(BUILD)/libhp-model.a $(BUILD)/libhp-planners.a $(BUILD)/libhp-transport.a $(LIBS_common)
LIBS_coordinator := $(BUILD)/libhp-coordinator.a $(BUILD)/libhp-model.a $(BUILD)/libhp-planners.a $(BUILD)/libhp-transport.a $(LIBS_common)
LIBS_hpctl := $(BUILD)/libhp-hpctl.a $(BUILD)/libhp-agent.a $(LIBS_coordinator)

PROGRAMS := $(BUILD)/hpctl $(BUILD)/hp-agent $(BUILD)/hp-coordinator

# ---- flags --------------------------------------------------------------------------------------------------
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Werror
# gcc counts what a bounded print might cut off; every such print here is meant to.
ifeq ($(findstring clang,$(CC)),)
  WARNINGS += -Wno-format-truncation
endif
# What debuggers are told; -g1, functions and lines, is enough for reports and takes a fourth of the links' bytes.
DEBUG ?= -g
OPTIMISE ?= -O2 $(DEBUG)
SANITIZE ?=
CFLAGS_ALL := -std=c11 -D_GNU_SOURCE $(WARNINGS) $(OPTIMISE) -fno-math-errno -fPIC -pthread -I. -isystem /usr/include/lpsolve $(SANITIZE) $(CFLAGS)
VERSION := $(shell cat VERSION)
CFLAGS_ALL += -DHP_VERSION='"$(VERSION)"'
# Kernels are compiled for the instructions that their name says and chosen at run time; following variables through
# their unrolled loops, for debuggers, would take longer than all else.
# UndefinedBehaviorSanitizer's checks of them would take minutes, and so would marks at their branches, from which no fuzzer learns.
KERNEL_COMMON := -O3 -g1 $(if $(findstring undefined,$(SANITIZE)),-O1 -fno-sanitize=undefined) $(if $(findstring fuzzer,$(SANITIZE)),-fno-sanitize=fuzzer-no-link)
$(BUILD)/obj/%_avx2.o: KERNEL_FLAGS := -mavx2 -mfma -mf16c $(KERNEL_COMMON)
$(BUILD)/obj/%_avx_vnni.o: KERNEL_FLAGS := -mavx2 -mfma -mf16c -mavxvnni $(KERNEL_COMMON)
$(BUILD)/obj/%_avx512.o: KERNEL_FLAGS := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16 -mfma -mf16c $(KERNEL_COMMON)
$(BUILD)/obj/%_amx.o: KERNEL_FLAGS := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16 -mamx-tile -mamx-int8 -mfma -mf16c $(KERNEL_COMMON)
$(BUILD)/obj/model/dtype/quantise.o: KERNEL_FLAGS := -O3
# Tests that leave the computing to what they test: with sanitizers, clang takes five times as long where it optimises them.
$(foreach room,common coordinator hpctl transport,$(BUILD)/obj/tests/unit/$(room)/%.o) $(BUILD)/obj/tests/sim/%.o: KERNEL_FLAGS := $(if $(findstring fuzzer,$(SANITIZE)),-O0)

SYSTEM_LIBS := -luv -lzmq -lmsgpackc -ljansson -lyaml -lxxhash -lsodium -lcrypto -lpcre2-8 -lutf8proc -lhwloc -lucp -luct -lucs -lucm \
  -lsqlite3 -lcurl -ledit -lncursesw -ltinfo -lmicrohttpd -lgnutls -ldnnl -lopenblas -llpsolve55 -lcolamd -lm -ldl -lpthread
LINK = $(CC) $(CFLAGS_ALL) $(LINKER) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -Wl,--as-needed $(SYSTEM_LIBS)

# ---- targets ------------------------------------------------------------------------------------------------
.PHONY: all help deps demo docs check check-unit check-proc check-attack check-long bench asan ubsan tsan valgrind fuzz fmt fmt-check lint install uninstall clean
.DEFAULT_GOAL := all

# GRPC= leaves libhp-grpc.so out where libgrpc-dev is installed.
GRPC ?= $(shell pkg-config --exists grpc 2>/dev/null && echo yes)
all: $(PROGRAMS) $(if $(GRPC),$(BUILD)/libhp-grpc.so) ## build hpctl, hp-agent and hp-coordinator into build/, and libhp-grpc.so where libgrpc-dev is
	@$(if $(GRPC),:,echo "libhp-grpc.so is left out (KServe over gRPC): Debian's libgrpc-dev is not installed")

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

deps: ## install the Debian packages that building and testing need
	@tools/deps

demo: ## install what is missing, build, start a cluster on this box and answer a prompt (MODEL=smollm2: with a real model, 93 MB)
	@tools/deps
	@[ -z "$(MODEL)" ] || tools/get_model $(MODEL) >/dev/null
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@tools/demo $(MODEL)

check: ## install what is missing, build, and run all tests
	@tools/deps
	@$(MAKE) --no-print-directory -j$$(nproc) all unit-tests attackers
	@BUILD=$(BUILD) PYTHON=$(PYTHON) tests/run unit golden sim proc attack net

check-unit: unit-tests ## run the unit tests alone (ROOMS_TESTED="model transport" narrows)
	@BUILD=$(BUILD) PYTHON=$(PYTHON) tests/run unit

check-proc: all cuda-on-cpu attackers ## run the tests with real processes alone
	@BUILD=$(BUILD) PYTHON=$(PYTHON) tests/run proc

check-long: all unit-tests attackers fuzzers ## the hours of seeds, kills, soaks and fuzzing (LONG_SECONDS=14400, LONG_PARTS="soak fuzz" names some; LONG_LOAD_SECONDS=7200); adds what came of it to bench/results/check-long.txt
	@BUILD=$(BUILD) PYTHON=$(PYTHON) tests/long/run

check-attack: all attackers ## run the tests with hostile clients alone
	@BUILD=$(BUILD) PYTHON=$(PYTHON) tests/run attack

define room_library
$(BUILD)/libhp-$(1).a: $$(call objects_of,$(1)) $$(GENERATED_$(1))
	@mkdir -p $$(@D)
	@rm -f $$@
	@ar rcs $$@ $$^
endef
$(foreach room,$(ROOMS),$(eval $(call room_library,$(room))))

$(BUILD)/libhp-hpctl.a: $(patsubst %.c,$(BUILD)/obj/%.o,$(CLI_SOURCES))
	@mkdir -p $(@D)
	@rm -f $@
	@ar rcs $@ $^

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  cc $<"
	@$(CC) $(CFLAGS_ALL) $(KERNEL_FLAGS) -MMD -MP -c $< -o $@

$(BUILD)/generated/page_files.c: tools/embed_page $(PAGE)
	@mkdir -p $(@D)
	@$(PYTHON) tools/embed_page $@ $(PAGE)
$(BUILD)/generated/plugin_interface.c: tools/plugin_interface
	@mkdir -p $(@D) $(BUILD)/obj/generated
	@tools/plugin_interface "$(CC)" $@ $(BUILD)/obj/generated/plugin_interface.c.d
$(BUILD)/obj/generated/%.o: $(BUILD)/generated/%.c
	@mkdir -p $(@D)
	@echo "  cc $<"
	@$(CC) $(CFLAGS_ALL) -MMD -MP -c $< -o $@

$(BUILD)/hp-agent: $(BUILD)/obj/agent/main.o $(LIBS_agent)
	@echo "  link $@"
	@$(LINK)
$(BUILD)/hp-coordinator: $(BUILD)/obj/coordinator/main.o $(LIBS_coordinator)
	@echo "  link $@"
	@$(LINK)
$(BUILD)/hpctl: $(BUILD)/obj/hpctl/main.o $(LIBS_hpctl)
	@echo "  link $@"
	@$(LINK)

# ---- gRPC ---------------------------------------------------------------------------------------------------
# libhp-grpc.so: hp-coordinator loads it where --grpc asks for it, so that others do not carry libgrpc.
$(BUILD)/libhp-grpc.so: $(patsubst %.c,$(BUILD)/obj/%.o,$(GRPC_SOURCES)) $(LIBS_common)
	@echo "  link $@"
	@$(CC) $(SANITIZE) $(LINKER) -shared -o $@ $(filter %.o,$^) -Wl,--exclude-libs,ALL -Wl,-Bsymbolic $(filter %.a,$^) -Wl,--as-needed -lgrpc -lgpr $(SYSTEM_LIBS)

# ---- CUDA ---------------------------------------------------------------------------------------------------
# libhp-cuda.so: the host's code is C of the room above, kernels are .cu files. `make cuda` compiles them with nvcc for each architecture
# that it knows, and PTX for what comes; the stand-in's plugin is the same files as C++ for the CPU (tests/cuda_on_cpu).
NVCC ?= $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CXX ?= g++
CUDA_KERNELS := $(wildcard agent/backend/cuda/*.cu)
CUDA_HOST := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard agent/backend/cuda/*.c))
# CUDA12: a folder that tools/get_cuda12 has made, with which clang compiles for Pascal and Volta.
CUDA_OBJ ?= $(BUILD)/obj/cuda$(if $(CUDA12),12)
CUDA_OBJECTS := $(patsubst agent/backend/cuda/%.cu,$(CUDA_OBJ)/%.o,$(CUDA_KERNELS))
CUDA_ARCHS ?= $(if $(CUDA12),60 70,$(if $(NVCC),$(patsubst compute_%,%,$(shell $(NVCC) --list-gpu-arch 2>/dev/null))))
CUDA_CODE = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))
# clang's own headers speak of textures that CUDA 12 has no more; nobody here does.
CLANG_CUDA ?= clang++
CUDA_COMPILER = $(if $(CUDA12),$(CLANG_CUDA),$(NVCC))
CUDA_COMPILE = $(if $(CUDA12),$(CLANG_CUDA) -x cuda --cuda-path=$(CUDA12) $(addprefix --cuda-gpu-arch=sm_,$(CUDA_ARCHS)) -D__CLANG_CUDA_TEXTURE_INTRINSICS_H__ -fPIC \
  -Wno-unknown-cuda-version -Wno-pass-failed -Xcuda-ptxas -v,$(NVCC) -Xcompiler -fPIC --expt-relaxed-constexpr $(CUDA_CODE) $(NVCCFLAGS) -Xptxas -v --threads 2)
PLUGIN_LINK = $(CC) $(SANITIZE) -shared -o $@ $(filter %.o,$^) -Wl,--exclude-libs,ALL -Wl,-Bsymbolic -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
  -Wl,--as-needed -lstdc++ $(SYSTEM_LIBS)
.PHONY: cuda cuda-on-cpu cuda-report
ifneq ($(NVCC)$(CUDA12),)
cuda: $(BUILD)/libhp-cuda.so ## build libhp-cuda.so, the backend of NVIDIA's GPUs, with nvcc (CUDA_ARCHS="80 90" narrows)
cuda-report: $(CUDA_OBJECTS) ## say what nvcc made of the kernels: registers, spills, occupancy, loads, instructions (CUDA_TABLE=FILE writes it)
	@tools/cuda_report $(CUDA_OBJ) --check $(if $(CUDA_TABLE),--table $(CUDA_TABLE))
else
cuda cuda-report:
	@echo "libhp-cuda.so is left out: there is no nvcc (NVCC=/path/to/nvcc says where)"
endif
# Products of warpgroups are Hopper's alone, and of no PTX that other GPUs take: this file is for nothing else.
ifeq ($(CUDA12),)
$(CUDA_OBJ)/flash_hopper.o: CUDA_CODE = -gencode arch=compute_90a,code=sm_90a
endif
# Objects of other architectures or flags are no part of what is built now.
$(CUDA_OBJ)/compiled_by: FORCE
	@mkdir -p $(@D)
	@echo '$(CUDA_COMPILE)' | cmp -s - $@ || echo '$(CUDA_COMPILE)' >$@
FORCE:
$(CUDA_OBJ)/%.o: agent/backend/cuda/%.cu $(CUDA_OBJ)/compiled_by
	@mkdir -p $(@D)
	@echo "  $(notdir $(CUDA_COMPILER)) $<"
	@$(CUDA_COMPILE) -std=c++17 -O3 -I. -MMD -MP -MF $(@:.o=.d) -MT $@ -c $< -o $@ 2>$(@:.o=.ptxas) \
	  || { grep -v '^ptxas info\|bytes stack frame' $(@:.o=.ptxas) >&2; rm -f $@; exit 1; }
$(BUILD)/libhp-cuda.so: $(CUDA_HOST) $(CUDA_OBJECTS) $(LIBS_agent)
	@echo "  link $@"
	@$(PLUGIN_LINK) -L$(if $(CUDA12),$(CUDA12)/lib64,$(dir $(NVCC))../lib64) -lcudart_static -lrt

STANDIN := $(BUILD)/tests/cuda_on_cpu
# No sanitizer's flag is among these objects': another build may take those of this one, and each is there as a whole or not at all.
STANDIN_OBJ ?= $(BUILD)/obj/tests/cuda_on_cpu
STANDIN_RUNTIME := $(patsubst tests/cuda_on_cpu/%.cc,$(STANDIN_OBJ)/%.o,$(wildcard tests/cuda_on_cpu/*.cc))
CXXFLAGS_STANDIN := -std=c++17 -O1 -g1 -fPIC -pthread -Wall -Wextra -Werror -Wno-unknown-pragmas -Itests/cuda_on_cpu -I.
STANDIN_COMPILE = $(CXX) $(CXXFLAGS_STANDIN) $(1) -MMD -MP -MF $@.d$$$$ -MT $@ -c $< -o $@.o$$$$ && mv $@.d$$$$ $(@:.o=.d) && mv $@.o$$$$ $@
$(STANDIN_OBJ)/%.o: tests/cuda_on_cpu/%.cc
	@mkdir -p $(@D)
	@$(call STANDIN_COMPILE,-O2)
# What the compiler puts in for ThreadSanitizer, the stand-in's runtime answers.
$(STANDIN_OBJ)/%.o: agent/backend/cuda/%.cu
	@mkdir -p $(@D)
	@$(call STANDIN_COMPILE,-x c++ -fsanitize=thread)
$(STANDIN_OBJ)/%.o: tests/cuda_on_cpu/%.cu
	@mkdir -p $(@D)
	@$(call STANDIN_COMPILE,-x c++ -fsanitize=thread)
$(STANDIN)/libhp-cuda.so: $(CUDA_HOST) $(patsubst agent/backend/cuda/%.cu,$(STANDIN_OBJ)/%.o,$(CUDA_KERNELS)) $(STANDIN_RUNTIME) $(LIBS_agent)
	@mkdir -p $(@D)
	@$(PLUGIN_LINK)
$(STANDIN)/faults: $(STANDIN_OBJ)/faults.o $(STANDIN_RUNTIME)
	@mkdir -p $(@D)
	@$(CXX) -o $@ $^ -ldl -lpthread
cuda-on-cpu: $(STANDIN)/libhp-cuda.so $(STANDIN)/faults ## build the cuda backend for the CPU, as the tests run it (HP_CUDA_PLUGIN takes it)

# A test is tests/unit/ROOM/.../NAME_test.c and links the libraries of its room; tests/sim links everything.
TESTS_unit := $(wildcard tests/unit/*/*_test.c tests/unit/*/*/*_test.c tests/unit/*/*/*/*_test.c)
TESTS_sim := $(wildcard tests/sim/*_test.c)
ROOMS_TESTED ?= $(ROOMS) hpctl
UNIT_BINARIES := $(foreach room,$(ROOMS_TESTED),$(patsubst %.c,$(BUILD)/%,$(filter tests/unit/$(room)/%,$(TESTS_unit))))
SIM_BINARIES := $(patsubst %.c,$(BUILD)/%,$(TESTS_sim))
.PHONY: unit-tests
unit-tests: $(UNIT_BINARIES) $(SIM_BINARIES)

$(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/agent/backend/cuda_*test.c)): | cuda-on-cpu
define room_test
$(BUILD)/tests/unit/$(1)/%: $(BUILD)/obj/tests/unit/$(1)/%.o $(LIBS_$(1))
	@mkdir -p $$(@D)
	@$$(LINK) -lcmocka
endef
$(foreach room,$(ROOMS) hpctl,$(eval $(call room_test,$(room))))
# Tests with failing allocations (tests/unit/faults.h) come between our code and its allocator.
comma := ,
$(BUILD)/tests/unit/%faults_test: LDFLAGS += $(foreach f,malloc calloc realloc aligned_alloc free strdup strndup arena_alloc arena_memdup arena_strndup arena_strdup arena_printf,-Wl$(comma)--wrap=$(f))
# So do those that count what is allocated (tests/unit/allocations.h).
$(BUILD)/tests/unit/%allocations_test: LDFLAGS += $(foreach f,malloc calloc realloc aligned_alloc strdup strndup,-Wl$(comma)--wrap=$(f))
SIM_FIXTURE := $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(TESTS_sim),$(wildcard tests/sim/*.c)))
$(BUILD)/tests/sim/%: $(BUILD)/obj/tests/sim/%.o $(SIM_FIXTURE) $(LIBS_hpctl)
	@mkdir -p $(@D)
	@$(LINK) -lcmocka

# A hostile client is tests/attack/NAME.c; tests/attack/*_test.py set them on real processes.
# What they put between a program and its C library is tests/attack/shims/NAME.c.
ATTACKERS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/attack/*.c)) $(patsubst %.c,$(BUILD)/%.so,$(wildcard tests/attack/shims/*.c))
.PHONY: attackers
attackers: $(ATTACKERS)
$(BUILD)/tests/attack/%: $(BUILD)/obj/tests/attack/%.o $(LIBS_hpctl)
	@mkdir -p $(@D)
	@$(LINK)

$(BUILD)/tests/attack/shims/%.so: $(BUILD)/obj/tests/attack/shims/%.o
	@mkdir -p $(@D)
	@$(CC) -shared -o $@ $< -ldl

# A benchmark is bench/NAME.c and links everything; bench/NAME.sh drives real processes.
BENCHES := $(patsubst %.c,$(BUILD)/%,$(wildcard bench/*.c))
$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(LIBS_hpctl)
	@mkdir -p $(@D)
	@$(LINK)
bench: all $(BENCHES) ## run the benchmarks and print their ratios (BENCH="name ..." narrows, BENCH_ARGS=--small is for those in Python)
	@BUILD=$(BUILD) PYTHON=$(PYTHON) BENCH_ARGS="$(BENCH_ARGS)" bench/run $(BENCH)

SANITIZER_TESTS = BUILD=$(BUILD)/$@ HP_TIME_SCALE=5 PYTHON=$(PYTHON) tests/run unit sim proc-loopback
asan: ## unit and loopback tests under AddressSanitizer
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUILD)/$@ OPTIMISE="-O1 -g -fno-omit-frame-pointer" SANITIZE="-fsanitize=address" all unit-tests
	@ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0 $(SANITIZER_TESTS)
ubsan: ## the same under UndefinedBehaviorSanitizer
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUILD)/$@ OPTIMISE="-O1 -g -fno-omit-frame-pointer" SANITIZE="-fsanitize=undefined -fno-sanitize-recover=all" all unit-tests
	@UBSAN_OPTIONS=print_stacktrace=1 $(SANITIZER_TESTS)
tsan: ## the same under ThreadSanitizer
	@$(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUILD)/$@ OPTIMISE="-O1 -g -fno-omit-frame-pointer" SANITIZE="-fsanitize=thread" all unit-tests
	@TSAN_OPTIONS=suppressions=$(CURDIR)/tests/tsan.supp:history_size=4 $(SANITIZER_TESTS)
valgrind: unit-tests ## unit tests under valgrind: no leak, no bad access
	@BUILD=$(BUILD) HP_TIME_SCALE=20 WRAP="valgrind -q --leak-check=full --errors-for-leak-kinds=definite --error-exitcode=9 --suppressions=tests/valgrind.supp" tests/run unit sim

# A fuzz target is tests/fuzz/NAME.c with its seeds in tests/fuzz/corpus/NAME/.
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/*.c))
FUZZ_SECONDS ?= 600
# clang takes away allocations that nobody would miss, but those that count them.
CLANG_KEEPS := $(foreach f,malloc calloc realloc free strdup,-fno-builtin-$(f))
# Two hundred programs are linked there: lld takes a third of the usual linker's time.
SANITIZED_LINK := $(if $(shell command -v ld.lld 2>/dev/null),LINKER=-fuse-ld=lld)
SANITIZED = $(MAKE) --no-print-directory -j$$(nproc) BUILD=$(BUILD)/fuzz-obj STANDIN_OBJ=$(STANDIN_OBJ) CC=clang OPTIMISE="-O1 $(DEBUG)" $(SANITIZED_LINK) SANITIZE="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all $(CLANG_KEEPS)" FUZZ_BUILD=$(BUILD)/fuzz
.PHONY: fuzzers sanitized
fuzzers:
	@$(SANITIZED) fuzz-link
sanitized: ## build all, the unit tests and the fuzz targets with clang, AddressSanitizer and UndefinedBehaviorSanitizer
	@$(SANITIZED) all unit-tests fuzz-link
.PHONY: fuzz-link
fuzz-link: $(patsubst tests/fuzz/%.c,$(FUZZ_BUILD)/%,$(wildcard tests/fuzz/*.c))
ifdef FUZZ_BUILD
$(FUZZ_BUILD)/%: $(BUILD)/obj/tests/fuzz/%.o $(LIBS_hpctl)
	@mkdir -p $(@D)
	@$(LINK) -fsanitize=fuzzer
endif
fuzz: fuzzers ## run every fuzz target for FUZZ_SECONDS (600) under ASan and UBSan
	@BUILD=$(BUILD) FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run

SOURCES_OF_C = git ls-files '*.c' '*.h' '*.inc' '*.cu' '*.cuh'
fmt: docs ## format the sources (clang-format 14), and write what is made of them
	@$(SOURCES_OF_C) | xargs clang-format -i
fmt-check: ## say which sources `make fmt` would change, and fail if any
	@$(SOURCES_OF_C) | xargs clang-format -n -Werror

lint: ## static analysis: clang-tidy and cppcheck (LINT="--seconds 150" bounds clang's analyzer, which takes 40 minutes)
	@tools/lint $(LINT)

PREFIX ?= /usr/local
SHARE = $(DESTDIR)$(PREFIX)/share
install: all ## install programs, manual pages, completion and what `make cuda` has built under PREFIX (/usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d $(SHARE)/man/man1 $(SHARE)/man/man8
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
	$(if $(wildcard $(BUILD)/libhp-cuda.so),install -D -m 755 $(BUILD)/libhp-cuda.so $(DESTDIR)$(PREFIX)/lib/hodgepodge/libhp-cuda.so)
	$(if $(wildcard $(BUILD)/libhp-grpc.so),install -D -m 755 $(BUILD)/libhp-grpc.so $(DESTDIR)$(PREFIX)/lib/hodgepodge/libhp-grpc.so)
	$(BUILD)/hpctl completion bash > $(SHARE)/bash-completion/completions/hpctl
	$(BUILD)/hpctl completion zsh > $(SHARE)/zsh/site-functions/_hpctl
	$(BUILD)/hpctl completion fish > $(SHARE)/fish/vendor_completions.d/hpctl.fish
	$(BUILD)/hpctl man $(SHARE)/man/man1
	tools/man_page $(BUILD)/hp-agent "a node of a Hodgepodge cluster" > $(SHARE)/man/man8/hp-agent.8
	tools/man_page $(BUILD)/hp-coordinator "the coordinator of a Hodgepodge cluster" > $(SHARE)/man/man8/hp-coordinator.8

uninstall: ## remove what `make install` put under PREFIX
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,$(notdir $(PROGRAMS))) $(DESTDIR)$(PREFIX)/lib/hodgepodge/libhp-cuda.so $(DESTDIR)$(PREFIX)/lib/hodgepodge/libhp-grpc.so
	rm -f $(SHARE)/bash-completion/completions/hpctl $(SHARE)/zsh/site-functions/_hpctl $(SHARE)/fish/vendor_completions.d/hpctl.fish
	rm -f $(SHARE)/man/man1/hpctl.1 $(SHARE)/man/man1/hpctl-*.1 $(SHARE)/man/man8/hp-agent.8 $(SHARE)/man/man8/hp-coordinator.8
	rmdir $(DESTDIR)$(PREFIX)/lib/hodgepodge 2>/dev/null || true

docs: all ## write the tables of docs/protocol.md anew from transport/, docs/commands.md from --help, docs/metrics.md and docs/api-reference.md from the coordinator
	@tools/protocol_tables --write
	@HP_BUILD=$(abspath $(BUILD)) tools/reference --write

clean: ## remove build/
	rm -rf $(BUILD)

.SECONDARY:
-include $(shell [ -d $(BUILD)/obj ] && find $(BUILD)/obj -name '*.d') $(wildcard $(CUDA_OBJECTS:.o=.d)) $(filter-out $(BUILD)/obj/%,$(wildcard $(STANDIN_OBJ)/*.d))
