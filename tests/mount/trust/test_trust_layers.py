# SPDX-License-Identifier: Apache-2.0
"""[publish] allow: a stranger's writes stay unpublished, whatever happens to the stranger's job. The last tests check
how a stranger's job affects other jobs."""

import fcntl
import os
import subprocess

import jobs
import pytest
from trust import KERNEL, NAME, STRANGER, TRUSTED, explain, is_published, show


# ---- a stranger's writes stay unpublished, whatever happens to the job

def test_a_job_of_several_users_publishes_until_a_stranger_writes(mount, shared):
    trusted, stranger = shared
    trusted.put_group("KEY", KERNEL)
    assert stranger.read("triton/KEY/k.json") == b"{}"
    trusted.put_group("READ", KERNEL)
    assert is_published(mount) and is_published(mount, "READ"), "who only reads does no harm"
    stranger.write("triton/note", b"x")
    trusted.put_group("LATER", KERNEL)
    assert not is_published(mount, "LATER")
    mount.end_job("both")
    assert not is_published(mount, "LATER")


def change_mode(job):
    job("os.chmod", job.path("triton/OPEN/k.cubin"), 0o640)


def truncate(job):
    job("os.truncate", job.path("triton/OPEN/k.cubin"), 3)


def append(job):
    job("write_file", job.path("triton/OPEN/k.cubin"), b"x", flags=os.O_WRONLY | os.O_APPEND)


CHANGES = {
    "mkdir": lambda job: job("os.mkdir", job.path("triton/new")),
    "mkdir in the root": lambda job: job("os.makedirs", job.path("another/cache")),
    "create": lambda job: job.write("triton/new", b"x"),
    "mkfifo": lambda job: job("os.mkfifo", job.path("triton/new")),
    "symlink": lambda job: job("os.symlink", "k.json", job.path("triton/OPEN/k.link")),
    "link": lambda job: job("os.link", job.path("triton/OPEN/k.json"), job.path("triton/OPEN/k2")),
    "rename": lambda job: job("os.rename", job.path("triton/OPEN/k.json"), job.path("triton/moved")),
    "unlink": lambda job: job("os.unlink", job.path("triton/OPEN/k.json")),
    "rmdir": lambda job: job("os.rmdir", job.path("triton/empty")),
    "chmod": change_mode,
    "truncate": truncate,
    "open for writing": append,
    "utimes": lambda job: job("os.utime", job.path("triton/OPEN/k.json"), (1, 1)),
    "setxattr": lambda job: job("os.setxattr", job.path("triton/OPEN/k.json"), "user.x", b"x"),
    "O_TMPFILE": lambda job: job("os.open", job.path("triton/OPEN"), os.O_TMPFILE | os.O_RDWR, 0o644),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_every_kind_of_change_counts(mount, shared, change):
    trusted, stranger = shared
    for name, data in KERNEL.items():
        trusted.put("OPEN", name, data)
    for name in KERNEL:
        trusted("os.chmod", trusted.path("triton/OPEN", name), 0o666)
    trusted("os.mkdir", trusted.path("triton/empty"))
    assert show(mount, "both")["refused"] == ""
    CHANGES[change](stranger)
    assert str(STRANGER) in show(mount, "both")["refused"]
    trusted.put("OPEN", "__grp__k.json", b"{}")
    mount.end_job("both")
    assert not is_published(mount, "OPEN")


def test_reading_does_not_change_the_publish_policy(mount, shared):
    trusted, stranger = shared
    trusted.put("OPEN", "k.cubin", b"x")
    stranger.read("triton/OPEN/k.cubin")
    stranger.listdir("triton/OPEN")
    stranger.exists("triton/OPEN/missing")
    stranger("os.access", stranger.path("triton/OPEN/k.cubin"), os.W_OK)
    assert show(mount, "both")["refused"] == ""


def test_a_passed_descriptor_counts_by_its_writer(mount, agent):
    """A child changes its user to STRANGER, and writes to a file that its parent has opened as TRUSTED."""
    code = f"""if 1:
        import os, sys
        entry = sys.argv[1]
        os.makedirs(entry)
        fd = os.open(entry + "/k.cubin", os.O_RDWR | os.O_CREAT, 0o644)
        if os.fork() == 0:
            os.setresuid({STRANGER}, {STRANGER}, {STRANGER})
            os.write(fd, b"stranger's")
            os._exit(0)
        os.wait()
        os.close(fd)
        """
    done = subprocess.run(
        ["setpriv", f"--reuid={TRUSTED}", f"--regid={TRUSTED}", "--clear-groups",
         "--inh-caps=+setuid", "--ambient-caps=+setuid", "--", jobs.PYTHON, "-c", code,
         str(mount.path / "triton/KEY")],
        env=jobs.environment("one"), check=False, timeout=60)
    assert done.returncode == 0
    assert str(STRANGER) in show(mount, "one")["refused"]


def test_a_layer_cannot_be_renamed_or_begun_anew_into_trust(mount_allowing, mount, job_of, store):
    """The test gives a stranger's layer the name of a trusted user's job, and writes that user into the layer's
    record."""
    stranger = job_of(mount, "two", STRANGER)
    stranger.put_group("THEIRS", KERNEL)
    mount.kill_daemon()
    mount.detach()
    layers = store / ".cacheshim/layers"
    os.rename(layers / "two", layers / f"uid-{TRUSTED}")
    record = next((layers / f"uid-{TRUSTED}").glob("*/meta.json"))
    record.write_text(record.read_text().replace('"two"', f'"uid-{TRUSTED}"')
                      .replace(str(STRANGER), str(TRUSTED), 1))
    again = mount_allowing(f"{{ users = [{TRUSTED}] }}")
    assert again.layer_files(f"uid-{TRUSTED}")
    trusted = job_of(again, f"uid-{TRUSTED}", TRUSTED)
    trusted.put_group("MINE", KERNEL)
    again.cli("job", "publish", f"uid-{TRUSTED}")
    again.end_job(f"uid-{TRUSTED}")
    assert not is_published(again, "THEIRS") and not is_published(again, "MINE")


@pytest.mark.parametrize("allow_again", ["{ users = [20001, 20002] }", None, "{ users = [20001] }"])
def test_the_next_daemon_that_takes_a_layer_up_does_not_publish_it(
        mount_allowing, mount, job_of, allow_again):
    stranger = job_of(mount, "two", STRANGER)
    stranger.put_group("THEIRS", KERNEL)
    mount.kill_daemon()
    mount.detach()
    again = mount_allowing(allow_again)
    assert str(STRANGER) in show(again, "two")["refused"]
    again.cli("job", "publish", "two")
    again.end_job("two")
    assert not is_published(again, "THEIRS")
    job_of(again, "one", TRUSTED).put_group("KEY", KERNEL)
    assert is_published(again)


def test_a_layer_from_before_the_policy_is_not_published(mount_allowing, job_of):
    open_to_all = mount_allowing(None)
    trusted = job_of(open_to_all, "one", TRUSTED)
    trusted.put("KEY", "k.cubin", b"x")
    open_to_all.kill_daemon()
    open_to_all.detach()
    mount = mount_allowing(f"{{ users = [{TRUSTED}] }}")
    job_of(mount, "one", TRUSTED).put_group("KEY", KERNEL)
    assert not is_published(mount)
    assert "nobody checked who wrote" in explain(mount, "triton/KEY/k.cubin", "one")["not_published"]


def test_a_trusted_layer_stays_trusted_with_the_next_daemon(mount_allowing, mount, job_of):
    trusted = job_of(mount, "one", TRUSTED)
    trusted.put("KEY", "k.cubin", b"x")
    mount.kill_daemon()
    mount.detach()
    again = mount_allowing(f"{{ users = [{TRUSTED}] }}")
    job_of(again, "one", TRUSTED).put_group("KEY", {"k.json": b"{}"})
    assert is_published(again)


def test_another_cycle_of_the_job_begins_clean_and_the_old_layer_stays_back(mount, job_of):
    stranger = job_of(mount, "both", STRANGER, env={"CACHESHIM_CYCLE": "1"})
    stranger.put_group("THEIRS", KERNEL)
    mount.cli("job", "end", "both", "--failure")
    stranger.close()
    again = job_of(mount, "both", STRANGER, env={"CACHESHIM_CYCLE": "2"})
    assert not again.exists("triton/THEIRS")
    again.put_group("AGAIN", KERNEL)
    mount.end_job("both")
    assert not is_published(mount, "THEIRS") and not is_published(mount, "AGAIN")


def test_discarded_changes_no_longer_count(mount, shared):
    trusted, stranger = shared
    held = stranger("hold", stranger.path("triton/note"), os.O_RDWR | os.O_CREAT)
    mount.cli("job", "discard", "both")
    assert show(mount, "both")["refused"] == ""
    trusted.put_group("KEY", KERNEL)
    assert is_published(mount)
    try:
        stranger("os.pwrite", held, b"still", 0)
    except OSError:
        pass  # the discard has removed the file with the layer
    trusted.put_group("LATER", KERNEL)
    assert not is_published(mount, "LATER")


# ---- how a stranger's job affects other jobs

def test_a_strangers_job_builds_for_itself(mount, job_of):
    stranger, second = job_of(mount, "two", STRANGER), job_of(mount, "two", STRANGER)
    trusted = job_of(mount, "one", TRUSTED)
    look = ("create_and_look_up", "triton/KEY", NAME)
    assert not stranger(look[0], stranger.path(look[1]), NAME)
    assert not trusted(look[0], trusted.path(look[1]), NAME), "it waits for no stranger"
    second.start(look[0], second.path(look[1]), NAME)
    jobs.wait_until(lambda: mount.stats()["flight_waits"] == 1)
    trusted("triton_put", trusted.path("triton/KEY"), NAME, b"built")
    stranger("triton_put", stranger.path("triton/KEY"), NAME, b"stranger's")
    assert second.result()
    assert second.read(f"triton/KEY/{NAME}") == b"stranger's"
    assert mount.base("triton/KEY", NAME).read_bytes() == b"built"


def test_a_stranger_in_a_trusted_job_builds_only_for_that_job(mount, shared, job_of):
    trusted, stranger = shared
    other = job_of(mount, "other", TRUSTED)
    trusted("os.makedirs", trusted.path("triton/KEY"))
    assert not stranger.exists(f"triton/KEY/{NAME}")  # the stranger builds, but only for its own job
    assert not other("create_and_look_up", other.path("triton/KEY"), NAME)


def test_a_strangers_job_has_locks_of_its_own(mount, job_of):
    trusted, stranger = job_of(mount, "one", TRUSTED), job_of(mount, "two", STRANGER)
    name = "triton/KEY/lock"
    trusted("os.makedirs", trusted.path("triton/KEY"))
    held = trusted("os.open", trusted.path(name), os.O_RDWR | os.O_CREAT, 0o644)
    trusted("fcntl.flock", held, fcntl.LOCK_EX)
    assert stranger("try_flock_path", stranger.path(name)), "one who only reads it, too"
    trusted("fcntl.flock", held, fcntl.LOCK_UN)
    own = stranger("os.open", stranger.path(name), os.O_RDWR)
    stranger("fcntl.flock", own, fcntl.LOCK_EX)
    trusted("fcntl.flock", held, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_strangers_job_truncates_no_lock_file_of_the_base(mount, job_of):
    trusted, stranger = job_of(mount, "one", TRUSTED), job_of(mount, "two", STRANGER)
    name = "triton/KEY/lock"
    trusted("os.makedirs", trusted.path("triton/KEY"))
    trusted.write(name, b"123")
    stranger("os.truncate", stranger.path(name), 0)
    assert mount.base(name).read_bytes() == b"123"
    assert stranger.read(name) == b""
    assert trusted.read(name) == b"123"


def test_a_strangers_job_opens_no_lock_file_of_the_base_through_proc(mount, job_of):
    """An open with O_PATH succeeds, but an open or truncate through that descriptor must fail."""
    trusted, stranger = job_of(mount, "one", TRUSTED), job_of(mount, "two", STRANGER)
    name = "triton/KEY/lock"
    trusted("os.makedirs", trusted.path("triton/KEY"))
    trusted.write(name, b"123")
    fd = stranger("os.open", stranger.path(name), os.O_PATH)
    stranger("os.mkdir", stranger.path("triton/OTHER"))  # after this change, the job may not publish
    stranger("os.stat", stranger.path(name))
    with pytest.raises(OSError):
        stranger("os.open", f"/proc/self/fd/{fd}", os.O_RDWR)
    with pytest.raises(OSError):
        stranger("os.truncate", f"/proc/self/fd/{fd}", 0)
    assert mount.base(name).read_bytes() == b"123"
    held = trusted("os.open", trusted.path(name), os.O_RDWR)
    trusted("fcntl.flock", held, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_strangers_job_creates_no_lock_file_in_the_base(mount, job_of):
    stranger = job_of(mount, "two", STRANGER)
    stranger("os.makedirs", stranger.path("triton/KEY"))
    stranger("os.open", stranger.path("triton/KEY/lock"), os.O_RDWR | os.O_CREAT, 0o644)
    assert not mount.base("triton/KEY").exists()
    assert mount.layer_names("two") == ["triton/KEY/lock"]


def test_shared_names_are_not_written_through(mount, job_of):
    shared_file = "tensorrt-rtx/runtime.cache"  # of class shared
    trusted, stranger = job_of(mount, "one", TRUSTED), job_of(mount, "two", STRANGER)
    directory = os.path.dirname(shared_file)
    trusted("os.makedirs", trusted.path(directory), exist_ok=True)
    trusted.write(shared_file, b"trusted")
    assert mount.base(shared_file).read_bytes() == b"trusted"
    assert stranger.read(shared_file) == b"trusted"
    stranger.write(shared_file, b"stranger's")
    assert stranger.read(shared_file) == b"stranger's"
    stranger.write(f"{shared_file}.new", b"renamed")
    stranger("os.rename", stranger.path(f"{shared_file}.new"), stranger.path(shared_file))
    stranger("os.unlink", stranger.path(shared_file))
    assert trusted.read(shared_file) == mount.base(shared_file).read_bytes() == b"trusted"
