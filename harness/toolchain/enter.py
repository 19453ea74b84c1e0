# SPDX-License-Identifier: GPL-2.0
"""Commands in the toolchain root, a Debian in the cache whose tools build and boot kernels.

The current folder, the repository and the cache keep their paths there and are writable; all else is read-only. With
TOOLCHAIN=host, and in the root itself, commands run as they are."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from ..machine.options import fill
from ..machine.settings import CACHE, INSIDE, REPO, TOOLCHAIN, Refused, check_settings, need_tool

ROOT = CACHE / "root"
# It is there when the root is complete: the hash of what made it.
STAMP = ROOT / ".vmap-rust-stamp"
PATH = ("/usr/lib/ccache:/opt/cargo/bin:/usr/lib/llvm-22/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:"
        "/bin")
# Variables of the user that are let in.
LET_IN = re.compile(r"JOBS|KERNEL_TARBALL|TERM|COLUMNS|NO_COLOR|CI|SOURCE_DATE_EPOCH|(https?|no|ftp|all)_proxy|(HTTPS?|NO|ALL)_PROXY|"
                    r"(KBUILD|VMAP_RUST|KUNIT)_.*|CARGO_(HTTP|NET|REGISTRIES|SOURCE)_.*")


def variables():
    """Return the environment of commands in the root."""
    return {**{name: value for name, value in os.environ.items() if LET_IN.fullmatch(name) and value},
            "PATH": PATH, "LIBCLANG_PATH": "/usr/lib/llvm-22/lib", "HOME": f"{CACHE}/home",
            "CARGO_HOME": f"{CACHE}/home/.cargo", "CCACHE_DIR": f"{CACHE}/ccache",
            "CCACHE_MAXSIZE": os.environ.get("CCACHE_MAXSIZE") or "5G", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8",
            "TOOLCHAIN": "root", "VMAP_RUST_CACHE": str(CACHE), "VMAP_RUST_IN_ROOT": "1"}


def is_own(root, folder):
    """Tell whether a toolchain root, or what is mounted there, has this folder, which one of the build host must not hide.
    One without files is a mount point, which bubblewrap has made for a former call."""
    if any(folder.is_relative_to(other) for other in (REPO, CACHE, "/dev", "/proc", "/sys")) or str(folder) in ("/tmp", "/run"):
        return True
    return any(files for _, _, files in os.walk(f"{root}{folder}"))


def folders(root, cwd):
    """Return the arguments of bubblewrap for the folders that keep their paths."""
    seen = [REPO, CACHE]
    # A git worktree keeps its objects elsewhere.
    if (REPO / ".git").is_file():
        seen.append(subprocess.run(["git", "-C", REPO, "rev-parse", "--path-format=absolute", "--git-common-dir"],
                                   capture_output=True, text=True, check=False).stdout.strip())
    if not is_own(root, cwd):
        seen.insert(0, cwd)
    return [word for folder in seen if folder and os.path.isdir(folder) for word in ("--bind", folder, folder)]


def in_root_at(root, words, binds=(), cwd=None, env=None, writable=False):
    """Return the command that runs words in a toolchain root.

    binds: further arguments of bubblewrap; cwd: its current folder, by default that of this process; env: further
    variables; writable: of the root itself."""
    need_tool("bwrap", "bubblewrap")
    for name in ("home", "ccache"):
        (CACHE / name).mkdir(parents=True, exist_ok=True)
    cwd = Path(os.path.realpath(cwd or os.getcwd()))
    command = ["bwrap", "--bind", root, "/", "--dev", "/dev", "--proc", "/proc",
               "--ro-bind", "/sys", "/sys", "--perms", "1777", "--tmpfs", "/tmp", "--perms", "1777",
               "--tmpfs", "/var/tmp", "--tmpfs", "/run", "--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf",
               "--ro-bind-try", "/etc/hosts", "/etc/hosts", *folders(root, cwd), *binds, "--clearenv"]
    # A site's own certificates.
    if Path("/etc/ssl/certs/ca-certificates.crt").exists():
        command += ["--ro-bind", "/etc/ssl/certs", "/etc/ssl/certs"]
    for name, value in {**variables(), **(env or {})}.items():
        command += ["--setenv", name, value]
    command += [*([] if writable else ["--remount-ro", "/"]), "--die-with-parent", "--unshare-pid", "--chdir", cwd, *words]
    return [str(word) for word in command]


def in_root(*words, binds=(), cwd=None, **env):
    """Return the command that runs words with the toolchain. Raises Refused if there is none. env: further variables
    of its environment; see in_root_at()."""
    if TOOLCHAIN == "host" and not INSIDE:
        # ccache takes part when the system has its wrapper folder.
        env = {"PATH": f"/usr/lib/ccache:{os.environ['PATH']}", "CCACHE_DIR": f"{CACHE}/ccache", **env}
    if TOOLCHAIN == "host" or INSIDE:
        return [str(word) for word in (["env", *(f"{name}={value}" for name, value in env.items())] if env else [])
                + [*words]]
    if not STAMP.is_file():
        raise Refused("the toolchain is not ready; run scripts/prepare")
    return in_root_at(ROOT, words, binds, cwd, {name: str(value) for name, value in env.items()})


def enter(*arguments):
    """Replace this process by this program in the root, with these arguments, unless it is there, or TOOLCHAIN=host.
    What the program needs must be prepared, as only the build host can do that."""
    if INSIDE or TOOLCHAIN == "host":
        return
    # An interrupt is for Python: bubblewrap would end at once, and Python with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    become(in_root("python3", "-P", "-m", "harness", *arguments, PYTHONPATH=REPO, PYTHONDONTWRITEBYTECODE=1))


def become(command):
    """Replace this process by a command, which ends when what started this one is killed."""
    sys.stdout.flush()
    os.execvp("setpriv", ["setpriv", "--pdeathsig", "TERM", "--", *command])


def root_python(*words):
    """Return the command that runs the Python of the root with words, but on the build host, and its environment. It has
    pytest and other packages; what it runs can enter the root for each command, or make it."""
    loader = next(iter(sorted(ROOT.glob("usr/lib/*/ld-linux*.so.*"))), None)
    if TOOLCHAIN == "host" or INSIDE or not loader:
        return [sys.executable, "-P", *words], os.environ
    return [str(word) for word in (loader, "--library-path", loader.parent, ROOT / "usr/bin/python3", "-P", *words)], \
        {**os.environ, "PYTHONHOME": str(ROOT / "usr")}


def become_root_python(*arguments):
    """Replace this process by this program in the Python of the root, with these arguments, unless it is that."""
    command, environment = root_python("-m", "harness", *arguments)
    if command[0] != sys.executable and sys.prefix != str(ROOT / "usr"):
        sys.stdout.flush()
        # As in scripts/start.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        os.execve(command[0], command, environment)


HELP = f"""usage: scripts/in-root CMD [ARG...]

Runs CMD in the toolchain root, a Debian in {ROOT} whose tools build and boot the kernel.
The current folder, folders that an ARG names, the repository and the cache keep their paths and are writable; everything
else is read-only.
With TOOLCHAIN=host, CMD runs directly on the build host. The exit code is that of CMD."""


def main(arguments):
    """Become a command in the root."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(fill(HELP))
        return 0 if arguments else 1
    check_settings()
    named = [Path(os.path.realpath(word)) for word in arguments[1:] if os.path.isdir(word)]
    become(in_root(*arguments, binds=[word for folder in named if not is_own(ROOT, folder)
                                      for word in ("--bind", folder, folder)]))
