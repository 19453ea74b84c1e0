# SPDX-License-Identifier: GPL-2.0
#
# Forwards to scripts/, nothing else. In a kernel tree Kbuild is used instead of this file.

help:
	@echo 'make demo    boot arm64 with each allocator and compare test_vmalloc; last line PASS or FAIL'
	@echo '             CPUS=4 THREADS=4 LOOPS=1000 MASK=0x1fff ARCH=arm64|x86_64; default: 2 CPUs, 1 worker, 1000 loops'
	@echo 'make test    the main suites; last line "N passed, N failed"'
	@echo '             SUITES="kunit-* host" runs some; scripts/test --list prints them'
	@echo '             FULL=1 runs the suites on every kernel configuration, which takes hours, or on CONFIGS="arm64-rt arm";'
	@echo '             what has passed is not run again (scripts/test --help)'
	@echo 'make bench   measure both allocators, print the table, draw a plot'
	@echo 'make check   format, lints, style, words, links, and each patch of all series builds'
	@echo ''
	@echo 'In the environment: JOBS=N limits a build; TOOLCHAIN=host uses tools of this machine; KERNEL_TARBALL=FILE is another'
	@echo 'archive of that series of Linux; KERNEL=7.2 uses Linux 7.2 instead of 7.3.'
	@echo 'Everything else is a script with --help: scripts/build, scripts/run (shell, kunit, vmalloc, load and other scenarios),'
	@echo 'scripts/install-into. "scripts/run shell uml --allocator rbtree" gives a shell in a guest with that allocator.'
	@echo 'Toolchain root, kernel source, builds and logs are in'
	@echo '$${VMAP_RUST_CACHE:-$${XDG_CACHE_HOME:-~/.cache}/vmap-rust}: remove that folder to start from nothing.'

demo:
	@scripts/run demo '$(or $(ARCH),arm64)' $(if $(CPUS),--cpus '$(CPUS)') $(if $(THREADS),--threads '$(THREADS)') \
		$(if $(LOOPS),--loops '$(LOOPS)') $(if $(MASK),--mask '$(MASK)')

test:
	@set -f; scripts/test $(if $(FULL),--full $(CONFIGS),$(SUITES))

bench:
	@scripts/bench

check:
	@scripts/check

.PHONY: help demo test bench check
