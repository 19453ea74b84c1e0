# SPDX-License-Identifier: GPL-2.0
#
# Forwards to scripts/, nothing else. In a kernel tree Kbuild is used instead of this file.

# A variable that nothing reads is a typing mistake.
DEMO := ARCH CPUS THREADS LOOPS MASK
TEST := SUITES FULL CONFIGS
KNOWN := JOBS TOOLCHAIN KERNEL KERNEL_TARBALL LLVM VMAP_RUST_% CCACHE_% %_proxy %_PROXY \
	$(if $(filter demo,$(MAKECMDGOALS)),$(DEMO)) $(if $(filter test,$(MAKECMDGOALS)),$(TEST))
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
ifneq ($(filter-out $(KNOWN) MAKEFLAGS,$(GIVEN)),)
$(error make $(or $(MAKECMDGOALS),help) takes no $(filter-out $(KNOWN) MAKEFLAGS,$(GIVEN)); make help lists the variables)
endif
ifneq ($(filter-out 0 1,$(FULL)),)
$(error FULL=$(FULL) must be 0 or 1)
endif
ifneq ($(if $(filter 1,$(FULL)),$(SUITES),$(CONFIGS)),)
$(error FULL=1 goes with CONFIGS, and SUITES without it)
endif

help:
	@echo 'make demo    show that it works, and what it is good for; says PASS at its end'
	@echo '             ARCH=arm64|uml|x86_64  CPUS=2  THREADS=1  LOOPS=100  MASK=0x1fff'
	@echo '             uml is user-mode Linux, the quickest way; THREADS, LOOPS and MASK'
	@echo '             are for test_vmalloc: its workers, loops and cases'
	@echo 'make test    the main suites; last line "N passed, N failed"'
	@echo '             SUITES="kunit-* host" runs some; scripts/test --list prints them'
	@echo '             FULL=1 runs the suites on every kernel configuration, which takes'
	@echo '             hours, or on CONFIGS="arm64-rt arm"; what has passed is not run'
	@echo '             again (scripts/test --help)'
	@echo 'make bench   measure both allocators, print the table, draw a plot'
	@echo 'make complaints  what users complain about, on both allocators, a row for each'
	@echo 'make figures  draw the tables of docs/bench.md as docs/figures-*.svg'
	@echo 'make check   format, lints, style, links; builds each patch'
	@echo ''
	@echo 'In the environment or behind make: JOBS=N limits a build; TOOLCHAIN=host uses'
	@echo 'tools of this machine; KERNEL_TARBALL=FILE is another archive of that series of'
	@echo 'Linux.'
	@echo 'Everything else is a script with --help: scripts/build, scripts/run (shell,'
	@echo 'kunit, vmalloc, load and other scenarios), scripts/install-into.'
	@echo '"scripts/run shell uml --allocator rbtree" gives a shell in a guest.'
	@echo 'Toolchain root, kernel source, builds and logs are in'
	@echo '$${VMAP_RUST_CACHE:-$${XDG_CACHE_HOME:-~/.cache}/vmap-rust}:'
	@echo 'remove that folder to start from nothing.'

demo:
	@scripts/run demo '$(or $(ARCH),arm64)' $(if $(CPUS),--cpus '$(CPUS)') $(if $(THREADS),--threads '$(THREADS)') \
		$(if $(LOOPS),--loops '$(LOOPS)') $(if $(MASK),--mask '$(MASK)')

test:
	@set -f; scripts/test $(if $(filter 1,$(FULL)),--full $(CONFIGS),$(SUITES))

# 4: not on this machine.
bench:
	@scripts/bench native || [ $$? = 4 ]
	@scripts/bench

complaints:
	@scripts/bench complaints

figures:
	@scripts/bench draw

check:
	@scripts/check

.PHONY: help demo test bench complaints figures check
