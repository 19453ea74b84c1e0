# SPDX-License-Identifier: GPL-2.0
"""One file for each scenario; its name is that of the scenario, and a new file needs no entry anywhere else.

Its docstring is printed by --help, the first line also by "scripts/run --help". run(args, result) boots and counts:
boot_of(...).run(result) of harness/boot/guest.py boots once and counts the verdict on the log, which is named after the second
argument, the kernel and the allocator; Expected of harness/boot/verdict.py says what the log must have. boot_script() boots make_busybox()
or make_guest_image() (harness/boot/initramfs.py) with a script of qemu/, and counts the checks that it must report, as lines
"guest: ok|FAIL|skip CHECK". inject.py is a short example.

DEFAULTS has the defaults of the common options (harness/boot/run.py): "cpus", "timeout" and so on; "kernel" if a user need not
name one; "allocators" to choose from, and "allocator" if a user need not choose. args.allocators has what is
booted one after the other. "guest_image": True boots the guest image on kernels that can.

Optional: options(parser) declares more options, check(args) may refuse or complete them; build_all(args) builds, if that is
more than one kernel. What "make test" and "make test FULL=1" run is in harness/suites.toml.
"""
