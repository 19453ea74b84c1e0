# SPDX-License-Identifier: GPL-2.0
"""Tests of vmap-report on a made-up system. Run with pytest."""

import gzip
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
# pylint: disable=wrong-import-position
from vmap_map import snapshot

MAP = "vmap_rust map 1 page 4096 home 0x1000000-0x2000000\n0x1000000-0x1005000 area busy\n"
DEBUGFS = "sys/kernel/debug/vmap_rust/"
SYSTEM = {
    "proc/mounts": "proc /proc proc rw 0 0\ndebugfs /sys/kernel/debug debugfs rw 0 0\n",
    "proc/cmdline": "vmap_allocator=rust\n", "proc/version": "Linux version 7.3.4\n", "proc/meminfo": "PageTables: 88 kB\n",
    "proc/vmallocinfo": "0x1000000-0x1005000   20480 kernel_clone+0x1/0x2 pages=4 vmalloc\n",
    "proc/sys/kernel/kptr_restrict": "1\n",
    DEBUGFS + "allocator": "rust\n", DEBUGFS + "stats": "hit 7\n", DEBUGFS + "counters": "hit 7\n", DEBUGFS + "map": MAP,
    DEBUGFS + "callers": "no memory\n", DEBUGFS + "checker": "off\n", DEBUGFS + "validate": "ok\n",
    "proc/config.gz": "CONFIG_VMAP_RUST=y\n", "bin/dmesg": "#!/bin/sh\necho '[ 1.0] the log'\n",
}
# Runs the tool as that user.
WRAPPER = "import os, runpy, sys; user = int(sys.argv.pop(1)); os.geteuid = lambda: user; runpy.run_path(sys.argv.pop(1), run_name='__main__')"


class Report(unittest.TestCase):
    """What a report has, and that there is none if something is wrong."""

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="vmap-report-test-")
        self.addCleanup(subprocess.run, ["rm", "-r", self.root], check=True)
        self.out = os.path.join(self.root, "out")
        os.mkdir(self.out)
        self.write(**SYSTEM)

    def write(self, **files):
        """Write files of the system; None removes one."""
        for name, text in files.items():
            path = os.path.join(self.root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if text is None:
                os.unlink(path)
                continue
            with (gzip.open if name.endswith(".gz") else open)(path, "wt", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, 0o755)

    def run_tool(self, *args, user=0, **options):
        """Run it in the folder "out". Returns exit code, stdout and stderr."""
        command = [sys.executable, "-B", "-c", WRAPPER, str(user), os.path.join(HERE, "vmap-report"), "--root", self.root, *args]
        done = subprocess.run(command, cwd=self.out, capture_output=True, text=True, check=False,
                              env={"PATH": os.path.join(self.root, "bin") + ":/bin:/usr/bin"}, **options)
        return done.returncode, done.stdout, done.stderr

    def refused(self, words, *args, **options):
        """Check that one line with these words is all that there is, and no file."""
        code, out, err = self.run_tool(*args, **options)
        self.assertEqual((code, out, err.count("\n"), os.listdir(self.out)), (1, "", 1, []), err)
        self.assertIn(words, err)

    def unpacked(self, name):
        """Unpack an archive. Returns its folder and the contents of its files."""
        with tarfile.open(os.path.join(self.out, name)) as archive:
            archive.extractall(self.root, filter="data")
            files = {entry.name.partition("/")[2]: archive.extractfile(entry).read().decode() for entry in archive}
        return os.path.join(self.root, name.split(".")[0]), files

    def test_a_report_has_everything(self):
        code, out, err = self.run_tool("-o", "bug.tar.gz")
        self.assertEqual((code, err, os.listdir(self.out)), (0, "", ["bug.tar.gz"]))
        self.assertIn("bug.tar.gz: 14 files.", out)
        self.assertEqual(os.stat(os.path.join(self.out, "bug.tar.gz")).st_mode & 0o777, 0o600)
        folder, files = self.unpacked("bug.tar.gz")
        for name, text in SYSTEM.items():
            name = os.path.basename(name)
            if name not in ("mounts", "validate", "dmesg", "config.gz"):
                self.assertEqual(files.pop(name), text)
        self.assertEqual(files, {"dmesg": "[ 1.0] the log\n", "config": "CONFIG_VMAP_RUST=y\n", "missing": ""})
        # vmap-map draws it.
        self.assertEqual(snapshot.load(folder)["pieces"][0]["owner"], "kernel_clone")

    def test_the_default_name_says_when(self):
        self.assertEqual(self.run_tool("--validate")[0], 0)
        name, = os.listdir(self.out)
        self.assertRegex(name, r"^vmap-report-\d{8}-\d{6}\.tar\.gz$")
        self.assertEqual(self.unpacked(name)[1]["validate"], "ok\n")

    def test_what_cannot_be_read_is_named(self):
        self.write(**{"proc/config.gz": None, "proc/sys/kernel/kptr_restrict": None, DEBUGFS + "allocator": "rbtree\n", "bin/dmesg": "#!/bin/sh\nexit 3\n"})
        # Only CONFIG_VMAP_RUST_DEBUG has these.
        self.write(**{DEBUGFS + "callers": None, DEBUGFS + "checker": None, DEBUGFS + "validate": None})
        code, out, err = self.run_tool("-o", "bug.tar.gz", "--validate")
        self.assertEqual((code, err), (0, ""))
        missing = self.unpacked("bug.tar.gz")[1]["missing"].splitlines()
        self.assertEqual([line.split(":")[0] for line in missing], ["kptr_restrict", "validate", "config", "dmesg"])
        for line in missing:
            self.assertIn(f"not there: {line}\n", out)
        self.assertIn("rb-trees", out)

    def test_hidden_addresses_are_named(self):
        self.write(**{"proc/sys/kernel/kptr_restrict": "0\n"})
        self.assertIn("not there: addresses in vmallocinfo: they are hidden; sysctl kernel.kptr_restrict=1", self.run_tool("-o", "bug.tar.gz")[1])

    def test_a_configuration_may_be_in_boot(self):
        self.write(**{"proc/config.gz": None, f"boot/config-{os.uname().release}": "CONFIG_MMU=y\n"})
        self.run_tool("-o", "bug.tar.gz")
        self.assertEqual(self.unpacked("bug.tar.gz")[1]["config"], "CONFIG_MMU=y\n")

    def test_only_root_reports(self):
        self.refused("run it as root", user=1000)

    def test_debugfs_must_be_mounted(self):
        self.write(**{"proc/mounts": "proc /proc proc rw 0 0\n"})
        self.refused("mount -t debugfs")

    def test_debugfs_may_be_mounted_elsewhere(self):
        os.rename(os.path.join(self.root, "sys/kernel/debug"), os.path.join(self.root, "dbg"))
        self.refused("CONFIG_VMAP_RUST")
        self.write(**{"proc/mounts": "none /dbg debugfs rw 0 0\n"})
        self.assertEqual(self.run_tool("-o", "bug.tar.gz")[0], 0)

    def test_a_kernel_without_the_allocator_is_named(self):
        os.rename(os.path.join(self.root, DEBUGFS), os.path.join(self.root, "sys/kernel/debug/other"))
        self.refused("/sys/kernel/debug/vmap_rust: this kernel is built without CONFIG_VMAP_RUST")

    def test_without_space_nothing_remains(self):
        # A lack of space at the same place: no file may be larger than a part of the archive.
        self.refused("cannot write bug.tar.gz", "-o", "bug.tar.gz",
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
        self.refused("cannot write none/bug.tar.gz: No such file", "-o", "none/bug.tar.gz")

    def test_a_report_is_not_overwritten(self):
        self.write(**{"out/bug.tgz": "precious"})
        code, _, err = self.run_tool("-o", "bug.tgz")
        self.assertEqual((code, err), (1, "vmap-report: bug.tgz exists; give another name with -o\n"))
        with open(os.path.join(self.out, "bug.tgz"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "precious")
