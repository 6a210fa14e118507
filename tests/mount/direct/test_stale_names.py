# SPDX-License-Identifier: Apache-2.0
"""When a name appears in the base, the kernel may have a negative dentry for it until the daemon invalidates the name.
Direct answers show the name before the invalidation. After such an answer, the process's next calls on the name must
not fail with ENOENT."""

import contextlib
import errno
import os
import select

import pytest
from direct import KEY, warm
from jobs import standing_still, threads, wait_until, waits_for_an_answer


NEW = f"{KEY}/new"

# Each call needs the directory NEW, or its file `there`.
CALLS = {
    "create": lambda at: ("os.open", at("x"), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600),
    "open-for-writing": lambda at: ("os.open", at("there"), os.O_RDWR),
    "list": lambda at: ("os.listdir", at("")),
    "mkdir": lambda at: ("os.mkdir", at("x")),
    "mkdir-with-a-slash": lambda at: ("os.mkdir", at("x/")),
    "mkstemp": lambda at: ("tempfile.mkstemp", None, None, at("")),
    "symlink": lambda at: ("os.symlink", "target", at("x")),
    "rename": lambda at: ("os.rename", at("../own"), at("x")),
    "rename-from": lambda at: ("os.rename", at("there"), at("../own2")),
    "link": lambda at: ("os.link", at("../own"), at("x")),
    "link-from": lambda at: ("os.link", at("there"), at("../own2")),
    "chmod": lambda at: ("os.chmod", at("there"), 0o600),
    "unlink": lambda at: ("os.unlink", at("there")),
    "truncate": lambda at: ("os.truncate", at("there"), 0),
}


def is_absent(process, path):
    with contextlib.suppress(FileNotFoundError):
        process("os.close", process("os.open", path, os.O_DIRECTORY))  # the mount answers this open
        return False
    return True


def has_answered(process):
    return select.select([process.stdout_fd], [], [], 0)[0]


def waits_for_the_daemon(process):
    return any(waits_for_an_answer(thread) for thread in threads(process.pid))


@pytest.mark.parametrize("call", CALLS)
def test_a_new_base_name_is_usable_before_its_invalidation(mount, shimmed, base, call):
    shimmed.write(f"{KEY}/own", b"own")
    assert is_absent(shimmed, shimmed.path(NEW))
    wanted = CALLS[call](lambda name: os.path.join(shimmed.path(NEW), name))
    with standing_still(mount.daemon_pid()):  # the daemon cannot invalidate the kernel's cache
        (base / NEW).mkdir()
        (base / NEW / "there").write_bytes(b"there")
        with pytest.raises(FileExistsError):
            shimmed("os.mkdir", shimmed.path(NEW))
        assert shimmed.exists(f"{NEW}/there")
        shimmed.start(*wanted)
        wait_until(lambda: has_answered(shimmed) or waits_for_the_daemon(shimmed))
    shimmed.result()


def test_a_name_whose_directory_is_missing_still_gives_enoent(mount, shimmed, base):
    assert is_absent(shimmed, shimmed.path(NEW))
    for call in CALLS.values():
        name, *arguments = call(lambda name: os.path.join(shimmed.path(NEW), name))
        with pytest.raises(OSError) as raised:
            shimmed(name, *arguments)
        assert raised.value.errno == errno.ENOENT
    assert not (base / NEW).exists() and not shimmed.exists(NEW)


@pytest.mark.parametrize("how", ["rename", "link", "create", "mkdir", "symlink"])
def test_a_name_that_another_process_has_created_meanwhile_is_found(mount_store, store, job_of, how):
    """A job creates names in its view while the test creates the same names in the base. If the test creates a name
    first, the kernel may still have a negative dentry for it. The job's call must then fail with EEXIST, and its next
    open must find the name."""
    mount = mount_store(store)
    job = job_of(mount, "one", 20001)
    (store / "other").mkdir()
    job.write("other/first", b"")
    upper, = mount.uppers("one")
    job.start("claim_repeatedly", how, job.path("other"), 1000)
    for number in range(1000):
        wait_until(lambda: any((upper / "other" / name).exists()
                               for name in (f"own{number}", str(number))))
        (store / f"other/{number}").touch()
    others, errors = job.result()
    assert errors == {}
    assert 0 < others < 1000
