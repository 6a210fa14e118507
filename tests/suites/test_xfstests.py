# SPDX-License-Identifier: Apache-2.0
"""xfstests' generic quick group on plain overlays by mount(8): what fails there is run on ext4 too."""

import contextlib
import subprocess
from xml.etree import ElementTree

import mounts
import pytest
from outcomes import assert_as_natively

RUN_TIMEOUT_S = 3000
DISK_BYTES = 3 << 30
# As xfstests wants them.
USERS = ["fsgqa", "123456-fsgqa", "fsgqa2"]
# Tests that end otherwise, each with the reason.
KNOWN = {}


def overlay_options(top):
    for name in ("lower", "upper", "work"):
        (top / name).mkdir(parents=True)
    return f"-olowerdir={top / 'lower'},upperdir={top / 'upper'},workdir={top / 'work'}"


def settings_of_overlays(scratch):
    return {"FSTYP": "fuse", "FUSE_SUBTYP": ".cacheshim", "TEST_DEV": "overlay-test",
            "SCRATCH_DEV": "overlay-scratch",
            "TEST_FS_MOUNT_OPTS": overlay_options(scratch / "t"),
            "MOUNT_OPTIONS": overlay_options(scratch / "s")}


@contextlib.contextmanager
def ext4_disks(scratch):
    """The settings for two loop devices with ext4."""
    devices = []
    try:
        for name in ("test.img", "scratch.img"):
            with open(scratch / name, "wb") as image:
                image.truncate(DISK_BYTES)
            devices.append(mounts.run("losetup", "--find", "--show", scratch / name).stdout.strip())
            subprocess.run(["mkfs.ext4", "-q", devices[-1]], check=True)
        yield {"FSTYP": "ext4", "TEST_DEV": devices[0], "SCRATCH_DEV": devices[1]}
    finally:
        for device in devices:
            subprocess.run(["losetup", "-d", device], check=True)


def check(top, scratch, settings, *words):
    """Runs `check` and returns how each test ended."""
    points = {"TEST_DIR": scratch / "test", "SCRATCH_MNT": scratch / "scratch",
              "RESULT_BASE": scratch / f"results-{settings['FSTYP']}"}
    for point in points.values():
        point.mkdir(exist_ok=True)
    config = scratch / f"{settings['FSTYP']}.config"
    config.write_text("".join(f'export {name}="{value}"\n'
                              for name, value in {**settings, **points}.items()))
    # It wants "fuse" as the type of a FUSE mount, without a subtype.
    wrapper = scratch / "bin/df"
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text('#!/bin/sh\n/usr/bin/df "$@" | sed "s/fuse[.]cacheshim/fuse/"\n')
    wrapper.chmod(0o755)
    env = {"PATH": f"{wrapper.parent}:/usr/sbin:/usr/bin:/sbin:/bin", "HOST_OPTIONS": str(config),
           "HOME": "/root"}
    output = subprocess.run(["./check", "-R", "xunit", *words], cwd=top, env=env,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=RUN_TIMEOUT_S,
                            check=False).stdout
    result = points["RESULT_BASE"] / "result.xml"
    assert result.exists(), output[-3000:]
    found = {}
    for case in ElementTree.parse(result).iter("testcase"):
        ways = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[case.get("name")] = ways[0] if ways else "passed"
    return found


@pytest.fixture
def users(scratch):
    """/etc/passwd and /etc/group with the suite's users, for this run's mount namespace alone."""
    for kind, line in (("passwd", "{name}:x:{id}:{id}::/tmp:/bin/bash\n"), ("group", "{name}:x:{id}:\n")):
        copy = scratch / kind
        with open(f"/etc/{kind}", encoding="utf-8") as real:
            copy.write_text(real.read() + "".join(line.format(name=name, id=31100 + number)
                                                  for number, name in enumerate(USERS)))
        subprocess.run(["mount", "--bind", copy, f"/etc/{kind}"], check=True)
    yield
    for kind in ("group", "passwd"):
        subprocess.run(["umount", f"/etc/{kind}"], check=True)


@pytest.mark.usefixtures("sbin", "users")
@pytest.mark.timeout_s(2 * RUN_TIMEOUT_S)
def test_the_quick_group_ends_as_on_ext4(suite, scratch):
    top = suite("xfstests", "ltp/fsx", "src/lstat64")
    found = check(top, scratch, settings_of_overlays(scratch), "-fuse", "-g", "generic/quick")
    assert list(found.values()).count("passed") > 100
    failed = [name for name, way in found.items() if way not in ("passed", "skipped")]
    expected = dict(found)
    if failed:
        with ext4_disks(scratch) as settings:
            expected.update(check(top, scratch, settings, *failed))
    assert_as_natively(expected, found, KNOWN, scratch.parent / "xfstests.json")
