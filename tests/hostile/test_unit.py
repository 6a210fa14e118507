# SPDX-License-Identifier: Apache-2.0
"""The systemd unit restricts the daemon, all processes still see the mount, and the daemon still does its work. The
unit runs under a separate systemd."""

import errno
import os
import pathlib
import re
import signal
import subprocess
import tempfile

import injected_call
import mounts
import pytest
import systemd
from jobs import wait_until
from privileges import UNIT, capabilities, capabilities_of_the_unit, directives, status_of, statuses_of

USER = 20001
SERVICE = "cacheshim.service"
HIGHEST_EXPOSURE = 4.9
RESTARTS = 6  # systemd's default allows five starts in ten seconds

# The directives of systemd.exec(5) that, in at least one version of systemd, give the service its own mount namespace.
MOUNT_NAMESPACE_DIRECTIVES = """
    BindPaths BindReadOnlyPaths DynamicUser ExecPaths ExtensionDirectories ExtensionImages InaccessiblePaths
    IPCNamespacePath LogNamespace MountAPIVFS MountFlags MountImages NetworkNamespacePath NoExecPaths PrivateDevices
    PrivateIPC PrivateMounts PrivateNetwork PrivatePIDs PrivateTmp PrivateUsers ProcSubset ProtectControlGroups
    ProtectHome ProtectHostname ProtectKernelLogs ProtectKernelModules ProtectKernelTunables ProtectProc ProtectSystem
    ReadOnlyPaths ReadWritePaths RootDirectory RootImage TemporaryFileSystem""".split()

# An entry of Triton's cache, which the job's last command completes.
BUILD = """
set -e
mkdir -p "$0/triton/KEY"
echo code > "$0/triton/KEY/k.cubin"
chmod 644 "$0/triton/KEY/k.cubin" && touch "$0/triton/KEY/k.cubin"
printf '{"child_paths": {"k.cubin": "%s/triton/KEY/k.cubin"}}' "$0" > "$0/triton/KEY/__grp__k.json"
"""


def test_the_unit_has_no_directive_of_a_mount_namespace():
    assert not set(MOUNT_NAMESPACE_DIRECTIVES) & directives().keys()


def test_the_unit_has_each_restriction():
    unit = directives()
    for name in ("NoNewPrivileges", "RestrictNamespaces", "MemoryDenyWriteExecute", "LockPersonality"):
        assert unit[name] == ["yes"]
    for name in ("SystemCallFilter", "MemoryMax", "TasksMax", "UMask"):
        assert unit[name]
    assert unit["StartLimitIntervalSec"] == ["0"]


@pytest.mark.skipif(not systemd.is_installed(), reason="no systemd")
def test_systemds_own_rating_of_the_unit():
    rated = mounts.run("systemd-analyze", "security", "--offline=true", "--no-pager", UNIT)
    exposure = float(re.search(r"Overall exposure level .*: ([0-9.]+)", rated.stdout)[1])
    assert exposure <= HIGHEST_EXPOSURE


class Service:
    """The unit with the test's store, mount point and program, under a separate systemd."""

    def __init__(self, program, scratch):
        self.store, self.point = scratch / "store", scratch / "point"
        self.store.mkdir()
        self.point.mkdir()
        units = scratch / "units"
        (units / f"{SERVICE}.d").mkdir(parents=True)
        (units / SERVICE).write_text(self._text(program))
        self.log = scratch / "service.log"
        (units / f"{SERVICE}.d/log.conf").write_text(f"[Service]\nStandardError=append:{self.log}\n")
        self.systemd = systemd.Systemd(units, scratch / "systemd.log")

    def _text(self, program):
        text = re.sub("^ExecStartPre=.*$", "", UNIT.read_text(), flags=re.M)  # it changes a setting of the machine
        for path, own in (("/data/ci-cache", self.store), ("/usr/local/bin/cacheshim", program),
                          (" /ci-cache", f" {self.point}"), ("/ci-cache/", f"{self.point}/")):
            text = text.replace(path, str(own))
        return text

    def start(self):
        started = self.systemd.run("systemctl", "start", SERVICE)
        assert started.returncode == 0, started.stderr + self.log.read_text()
        return self

    def daemon(self):
        return self.systemd.main_pid(SERVICE)

    def is_started(self):
        return self.systemd.property_of(SERVICE, "ActiveState") == "active"

    def as_user(self, script, job):
        return self.systemd.run("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "env", "-i",
                                f"CACHESHIM_JOB={job}", "PATH=/usr/bin:/bin", "sh", "-c", script, self.point)

    def version(self):
        return self.systemd.path(f"{self.point}/.cacheshim/version")


@pytest.fixture(scope="module", name="service")
def running_service(all_scratch):
    if not systemd.is_installed():
        pytest.skip("no systemd")
    scratch = pathlib.Path(tempfile.mkdtemp(dir=all_scratch))
    scratch.chmod(0o755)
    try:
        one = Service(mounts.PROGRAM, scratch)
    except systemd.NoCgroups:
        pytest.skip("this machine gives no cgroups")
    try:
        yield one.start()
    finally:
        one.systemd.close()


def test_all_processes_see_the_mount(service):
    daemon = service.daemon()
    assert os.readlink(f"/proc/{daemon}/ns/mnt") == os.readlink(f"/proc/{service.systemd.pid}/ns/mnt")
    assert service.version().read_text()


def test_each_thread_is_restricted(service):
    statuses = statuses_of(service.daemon())
    assert len(statuses) > 4
    own = capabilities(status_of("/proc/self"), "Prm")
    for status in statuses:
        for which in ("Prm", "Eff", "Bnd"):
            assert capabilities(status, which) == own & capabilities_of_the_unit()
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_a_job_builds_and_publishes(service):
    built = service.as_user(BUILD, "builder")
    assert built.returncode == 0, built.stderr
    # The kernel sends FUSE_RELEASE for the last close of a file after close(2) has returned.
    wait_until((service.store / "triton/KEY/k.cubin").exists, what="the entry")
    assert (service.store / "triton/KEY/k.cubin").read_text() == "code\n"
    read = service.as_user('cat "$0/triton/KEY/k.cubin"; ls -l "$0/triton"', "reader")
    assert read.returncode == 0 and "code" in read.stdout


def test_users_can_enter_the_directories_that_the_daemon_makes(service):
    """The unit's UMask=0077 must not make these directories inaccessible."""
    assert (service.store / "triton").stat().st_mode & 0o777 == 0o755
    read = service.as_user('ls "$0/.cacheshim/jobs" /run/cacheshim/*/base', "reader")
    assert read.returncode == 0, read.stderr


def test_the_daemon_watches_by_fanotify(service):
    status = service.systemd.path(f"{service.point}/.cacheshim/status").read_text()
    assert '"fanotify"' in status


CLONE_NEWUSER = 0x10000000
READ_WRITE_EXECUTE, PRIVATE_ANONYMOUS = 7, 0x22
# Calls on x86_64, and the errors with which they fail in the unit. Without the unit, they succeed, or fail for another
# reason.
FORBIDDEN = {
    "unshare": ((272, CLONE_NEWUSER), errno.EPERM),
    "setns": ((308, 0, 0), errno.EPERM),
    "process_vm_readv": ((310, 1, 0, 0, 0, 0, 0), errno.EPERM),
    "ptrace": ((101, 16, 0x3fffffff, 0, 0), errno.EPERM),
    "bpf": ((321, 0, 0, 0), errno.EPERM),
    "perf_event_open": ((298, 0, 0, 0, 0, 0), errno.EPERM),
    "keyctl": ((250, 0, 0, 0), errno.EPERM),
    "userfaultfd": ((323, 0), errno.EPERM),
    "personality": ((135, 0x0040000), errno.EPERM),
    "mmap": ((9, 0, 4096, READ_WRITE_EXECUTE, PRIVATE_ANONYMOUS, -1, 0), errno.EPERM),
    "sched_setscheduler": ((144, 0, 1, (1).to_bytes(4, "little")), errno.EPERM),
    "setuid": ((105, USER), errno.EPERM),
    "setresuid": ((117, 0, 0, USER), errno.EPERM),
    "swapon": ((167, b"/nonexistent\0", 0), errno.EPERM),
    "pivot_root": ((155, b"/nonexistent\0", b"/nonexistent\0"), errno.EPERM),
    "sethostname": ((170, b"x", -1), errno.EPERM),
    "socket(AF_INET)": ((41, 2, 1, 0), errno.EAFNOSUPPORT),
    "socket(AF_NETLINK)": ((41, 16, 3, 0), errno.EAFNOSUPPORT),
    "open(/dev/kmsg)": ((2, b"/dev/kmsg\0", os.O_RDONLY), errno.EPERM),
}


@pytest.mark.skipif(not injected_call.IS_POSSIBLE, reason="calls can be injected only on x86_64")
@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_call_that_the_daemon_does_not_need_fails(service, name):
    call, error = FORBIDDEN[name]
    with injected_call.stopped_thread(service.daemon()) as thread:
        assert thread.call(*call) == -error
    assert service.version().read_text()


def test_systemd_restarts_the_daemon_without_limit(service):
    for _ in range(RESTARTS):
        before = wait_until(service.daemon, what="a daemon")
        wait_until(service.is_started, what="a started service")
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: service.daemon() not in (0, before), what="a new daemon")  # pylint: disable=cell-var-from-loop
    wait_until(lambda: subprocess.run(["test", "-e", service.version()], check=False).returncode == 0,
               what="a new mount")


def test_stopping_the_unit_unmounts(service):
    """Must be the last test of this file, because it ends the service."""
    wait_until(service.is_started, what="a started service")
    assert service.systemd.run("systemctl", "stop", SERVICE).returncode == 0
    assert service.systemd.property_of(SERVICE, "Result") == "success"
    assert list(service.systemd.path(str(service.point)).iterdir()) == []
    assert service.daemon() == 0
