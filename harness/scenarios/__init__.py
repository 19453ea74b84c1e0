# SPDX-License-Identifier: GPL-2.0
"""One file for each scenario; its name is that of the scenario, and a new file needs no entry anywhere else.

Its docstring is printed by --help, the first line also by "scripts/run --help". run(args, result) boots and counts:
boot() of harness/guest.py boots once and counts the verdict on the log, for which Expected of harness/verdict.py says
what the log must have; boot_script() boots make_busybox() or make_guest_image() (harness/initramfs.py) with a script of
qemu/, and counts the checks that it must report, as lines "guest: ok|FAIL|skip CHECK". inject.py is a short example.

DEFAULTS has the defaults of the common options (harness/run.py), the kernel if a user need not name one, the allocators
to choose from, "guest_image" if kernels that can boot the guest image do so; "totals": False if the last line is not a
count. Without a "timeout" there, check() must set args.timeout, or guests have no limit.

Optional: options(parser) declares more options, check(args) may refuse or complete them, MAKE_TEST has the suites of
"make test" (name: seconds on 2 cores, kernel and options), and FULL the column of "make test FULL=1" and the options
there, for kernels that name the scenario in qemu/kernels.toml. USES has further files and folders that a result depends on.
"""

CHECKER = "--append vmap_rust.check=1"
