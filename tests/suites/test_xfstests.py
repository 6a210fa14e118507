# SPDX-License-Identifier: Apache-2.0
"""Runs xfstests' generic quick group on plain overlays mounted by mount(8), and runs the tests that fail there again on
ext4."""

import contextlib
import shutil
import subprocess
import time
from xml.etree import ElementTree

import bounded
import mounts
import pytest
from outcomes import RESULTS, assert_as_natively

TEST_TIMEOUT_S = 300
RUN_TIMEOUT_S = 7200
END_TIMEOUT_S = 120
POLL_S = 1
DISK_BYTES = 3 << 30
# The users that xfstests requires.
USERS = ["fsgqa", "123456-fsgqa", "fsgqa2"]
HANDLES = "a file handle becomes invalid when the kernel forgets the object (docs/semantics.md)"
# The tests that fail on the overlay but not on ext4, each with the reason.
KNOWN = {
    "generic/003": "access times are those of the underlying mount, or of data that the kernel has cached (docs/semantics.md)",
    "generic/020": "it sets 1,000 xattrs on a FUSE file system: more than the ext4 below can hold",
    "generic/426": HANDLES,
    "generic/467": HANDLES,
    "generic/477": HANDLES,
    "generic/756": HANDLES,
    "generic/777": HANDLES,
    "generic/732": "it mounts an overlay twice: the upper directory is one mount's, as with overlayfs",
    "generic/504": "/proc/locks does not list locks that the daemon grants (docs/semantics.md)",
}


def overlay_options(top):
    for name in ("lower", "upper", "work"):
        (top / name).mkdir(parents=True)
    return f"-olowerdir={top / 'lower'},upperdir={top / 'upper'},workdir={top / 'work'}"


def make_image(path):
    with open(path, "wb") as image:
        image.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)


@contextlib.contextmanager
def overlays(scratch):
    """Yields the settings for two overlays, each on its own disk, because some tests fill their disk."""
    tops = [scratch / "t", scratch / "s"]
    with contextlib.ExitStack() as mounted:
        for top in tops:
            top.mkdir()
            make_image(top.with_suffix(".img"))
            subprocess.run(["mount", "-o", "loop", top.with_suffix(".img"), top], check=True)
            mounted.callback(subprocess.run, ["umount", "-l", top], check=True)
        options = [overlay_options(top) for top in tops]
        yield {"FSTYP": "fuse", "FUSE_SUBTYP": ".cacheshim", "TEST_DEV": "overlay-test",
               "SCRATCH_DEV": "overlay-scratch", "TEST_FS_MOUNT_OPTS": options[0], "MOUNT_OPTIONS": options[1]}


@contextlib.contextmanager
def ext4_disks(scratch):
    """Yields the settings for two loop devices with ext4."""
    devices = []
    try:
        for name in ("test.img", "scratch.img"):
            make_image(scratch / name)
            devices.append(mounts.run("losetup", "--find", "--show", scratch / name).stdout.strip())
        yield {"FSTYP": "ext4", "TEST_DEV": devices[0], "SCRATCH_DEV": devices[1]}
    finally:
        for device in devices:
            subprocess.run(["losetup", "-d", device], check=True)


def wait_for(check, log):
    """Waits until the process `check` exits; returns false if it must be killed after RUN_TIMEOUT_S. Kills the
    processes of a test that takes longer than TEST_TIMEOUT_S, measured from the last new line in `log`: `check` writes
    a line for each test."""
    end = time.monotonic() + RUN_TIMEOUT_S
    line, since = None, time.monotonic()
    while check.poll() is None:
        time.sleep(POLL_S)
        now = time.monotonic()
        last = log.read_bytes().count(b"\n")
        if last != line:
            line, since = last, now
        if now - since > TEST_TIMEOUT_S:
            bounded.end_descendants(check.pid)  # `check` counts the test as failed, and continues with the next one
            since = now
        if now > end:
            check.terminate()  # on SIGTERM, `check` writes its report
            bounded.end_descendants(check.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                check.wait(END_TIMEOUT_S)
            check.kill()
            return False
    return True


def check(top, scratch, settings, *words):
    """Runs xfstests' script `check`; returns {test: result}."""
    points = {"TEST_DIR": scratch / "test", "SCRATCH_MNT": scratch / "scratch",
              "RESULT_BASE": RESULTS / f"xfstests-{settings['FSTYP']}"}
    shutil.rmtree(points["RESULT_BASE"], ignore_errors=True)
    for point in points.values():
        point.mkdir(parents=True, exist_ok=True)
    config = scratch / f"{settings['FSTYP']}.config"
    config.write_text("".join(f'export {name}="{value}"\n'
                              for name, value in {**settings, **points}.items()))
    # `check` requires df to show "fuse" as the type of a FUSE mount, without a subtype.
    wrapper = scratch / "bin/df"
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text('#!/bin/sh\n/usr/bin/df "$@" | sed "s/fuse[.]cacheshim/fuse/"\n')
    wrapper.chmod(0o755)
    env = {"PATH": f"{wrapper.parent}:/usr/sbin:/usr/bin:/sbin:/bin", "HOST_OPTIONS": str(config),
           "HOME": "/root"}
    log = points["RESULT_BASE"] / "check.log"
    with open(log, "wb") as output, \
            subprocess.Popen(["./check", "-R", "xunit", *words], cwd=top, env=env,
                             stdin=subprocess.DEVNULL, stdout=output,
                             stderr=subprocess.STDOUT) as process:
        in_time = wait_for(process, log)
    output = log.read_text(errors="replace")
    assert in_time, f"took longer than {RUN_TIMEOUT_S} s: {output[-3000:]}"
    result = points["RESULT_BASE"] / "result.xml"
    assert result.exists(), output[-3000:]
    found = {}
    for case in ElementTree.parse(result).iter("testcase"):
        ways = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[case.get("name")] = ways[0] if ways else "passed"
    return found


@pytest.fixture
def users(scratch):
    """Adds the suite's users to /etc/passwd, /etc/group, and /etc/shadow, which su(1) requires; only in this run's
    mount namespace."""
    lines = {"passwd": "{name}:x:{id}:{id}::/tmp:/bin/bash\n", "group": "{name}:x:{id}:\n",
             "shadow": "{name}:!:20000:0:99999:7:::\n"}
    for kind, line in lines.items():
        copy = scratch / kind
        shutil.copy(f"/etc/{kind}", copy)
        with open(copy, "a", encoding="utf-8") as users_file:
            users_file.write("".join(line.format(name=name, id=31100 + number)
                                     for number, name in enumerate(USERS)))
        subprocess.run(["mount", "--bind", copy, f"/etc/{kind}"], check=True)
    yield
    for kind in lines:
        subprocess.run(["umount", f"/etc/{kind}"], check=True)


@pytest.mark.usefixtures("sbin", "users")
@pytest.mark.timeout_s(2 * RUN_TIMEOUT_S + 600)
def test_the_quick_group_ends_as_on_ext4(suite, scratch):
    top = suite("xfstests", "ltp/fsx", "src/lstat64")
    with overlays(scratch) as settings:
        found = check(top, scratch, settings, "-fuse", "-g", "generic/quick")
    assert list(found.values()).count("passed") > 100
    failed = [name for name, way in found.items() if way not in ("passed", "skipped")]
    expected = dict(found)
    if failed:
        with ext4_disks(scratch) as settings:
            expected.update(check(top, scratch, settings, *failed))
    assert_as_natively("xfstests", expected, found, KNOWN)
