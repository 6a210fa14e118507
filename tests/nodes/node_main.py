# SPDX-License-Identifier: Apache-2.0
"""The first process of a node. Its argument is the node's description, a JSON file that node.py writes.

The node's root is an overlay: a tmpfs on top of the host's files, which hostfs provides. So a program can write
everywhere, and the host's files stay unchanged. The overlay may not show later changes by the host. Only the directory
`shared` is mounted as hostfs without the overlay, at its path on the host.
"""

import ctypes
import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys
import traceback

import node_shell

MODULES = ("nfsv4", "fuse", "overlay")
LOCAL_FILE_SYSTEMS = ("/tmp", "/run", "/var/tmp", "/var/lib/cacheshim", "/local", "/dev/shm")
DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0),
           ("ptmx", 5, 2), ("fuse", 10, 229))

_MNT_DETACH, _RB_POWER_OFF = 2, 0x4321FEDC
_SYS_FINIT_MODULE, _SYS_PIVOT_ROOT = 313, 155  # x86-64

_libc = ctypes.CDLL(None, use_errno=True)


def main():
    try:
        boot()
    except Exception:  # the kernel would panic if this process exited, and user-mode-linux would then not end
        traceback.print_exc()
        _libc.reboot(_RB_POWER_OFF)


def boot():
    description = json.loads(pathlib.Path(sys.argv[1]).read_text())
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    load_modules(MODULES)
    enter_overlay()
    mount_local_file_systems()
    mount(description["shared"], "hostfs", options=description["shared"])
    start_network(description)
    mount_export(description)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: power_off(description))
    with socket.create_server(("", description["port"]), backlog=64) as listener:
        node_shell.serve(listener)


def check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(target, kind, source="none", flags=0, options=""):
    pathlib.Path(target).mkdir(parents=True, exist_ok=True)
    check(_libc.mount(source.encode(), str(target).encode(), kind.encode(), flags, options.encode()),
          f"mount {kind} on {target}")


def load_modules(names):
    """Loads modules and their dependencies. Does not use kmod: it may not be installed, and would search the directory
    of the host's modules."""
    top = pathlib.Path("/usr/lib/uml/modules", os.uname().release)
    needs = dict(line.split(":") for line in (top / "modules.dep").read_text().splitlines())
    loaded = set()

    def load(path):
        if path in loaded:
            return
        loaded.add(path)
        for other in needs[path].split():
            load(other)
        with open(top / path, "rb") as file:
            check(_libc.syscall(_SYS_FINIT_MODULE, file.fileno(), b"", 0), f"load {path}")

    for path in needs:
        if pathlib.Path(path).stem in names:
            load(path)


def enter_overlay():
    """Makes the writable overlay the root directory."""
    mount("/mnt", "tmpfs", options="mode=0755")
    for name in ("upper", "work", "root"):
        os.mkdir(f"/mnt/{name}")
    mount("/mnt/root", "overlay", options="lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work")
    os.chdir("/mnt/root")
    # pivot_root(".", ".") mounts the old root on top of the new one (pivot_root(2)); umount2 then removes the old root.
    check(_libc.syscall(_SYS_PIVOT_ROOT, b".", b"."), "pivot_root")
    check(_libc.umount2(b".", _MNT_DETACH), "unmount the old root")
    os.chdir("/")


def mount_local_file_systems():
    mount("/proc", "proc")
    mount("/sys", "sysfs")
    mount("/dev", "tmpfs", options="mode=0755")
    for name, major, minor in DEVICES:
        os.mknod(f"/dev/{name}", stat.S_IFCHR, os.makedev(major, minor))
        os.chmod(f"/dev/{name}", 0o666)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"/dev/{name}")
    mount("/dev/pts", "devpts", options="ptmxmode=0666")
    for path in LOCAL_FILE_SYSTEMS:
        mount(path, "tmpfs", options="mode=0755" if path in ("/run", "/var/lib/cacheshim") else "mode=1777")


def start_network(description):
    name = description["name"]
    socket.sethostname(name)
    pathlib.Path("/etc/hosts").write_text(
        "127.0.0.1 localhost\n" + "".join(f"{address} {host}\n" for host, address in description["hosts"].items()))
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{description['hosts'][name]}/24", "dev", "vec0")
    run("ip", "link", "set", "vec0", "up")


def mount_export(description):
    """Mounts the export by NFS 4.2 with the default options. `retry=0` is an option of mount.nfs, which by default
    repeats a failed mount for two minutes."""
    point = description["mount_point"]
    pathlib.Path(point).mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "nfs", "-o", "vers=4.2,retry=0", f"{description['server']}:{description['export']}", point)


def run(*argv):
    subprocess.run(argv, check=True)


def power_off(description):
    """Kills all processes and unmounts the export, so that the server keeps no state of this node; then powers off."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.kill(-1, signal.SIGKILL)
    subprocess.run(["umount", "-l", description["mount_point"]], check=False)
    os.sync()
    _libc.reboot(_RB_POWER_OFF)


if __name__ == "__main__":
    main()
