# SPDX-License-Identifier: Apache-2.0
"""Many processes at once, in one job and in several jobs."""

import pytest

PROCESSES = 8
ACTIONS = 1500


def run_crowd(jobs, directory):
    for seed, job in enumerate(jobs):
        job.start("crowd", job.path(directory), seed, ACTIONS)
    for job in jobs:
        assert job.result() == []


@pytest.mark.parametrize("in_base", [False, True], ids=["new", "over-the-base"])
@pytest.mark.parametrize("several_jobs", [False, True], ids=["one-job", "eight-jobs"])
def test_a_crowd_meets_no_error_and_loses_no_byte(mount_store, store, job_of, several_jobs,
                                                  in_base):
    if in_base:
        for number in range(4):
            directory = store / f"triton/KEY/shared{number}"
            directory.mkdir(parents=True)
            for file in range(6):
                (directory / f"file{file}").write_bytes(b"shared" * 100)
    mount = mount_store(store)
    jobs = [job_of(mount, f"job{n}" if several_jobs else "job", 20001 + (n if several_jobs else 0))
            for n in range(PROCESSES)]
    run_crowd(jobs, "triton/KEY")
    if in_base:
        assert all(path.read_bytes() == b"shared" * 100
                   for path in (store / "triton/KEY").rglob("file*"))
        assert len(list((store / "triton/KEY").rglob("file*"))) == 24
    assert mount.stats()["worker_restarts"] == 0


@pytest.mark.parametrize("kind", ["view", "plain"])
def test_a_process_with_an_open_file_does_not_notice_its_move(mount_store, store, overlay, job_of,
                                                           kind):
    """One process renames and removes files while the others open them."""
    mount = mount_store(store) if kind == "view" else overlay.mount().path
    jobs = [job_of(mount, "job", 20001 if kind == "view" else 0) for _ in range(4)]
    top = jobs[0].path("triton/KEY" if kind == "view" else "KEY")
    for directory in range(3):
        jobs[0]("os.makedirs", f"{top}/{directory}")
    for looker in jobs[1:]:
        looker("os.getpid")  # returns once the process is running
    for looker in jobs[1:]:
        looker.start("look_at_the_moved", top)
    jobs[0]("move_about", top, 800)
    for looker in jobs[1:]:
        assert looker.result() == []


def test_a_removal_in_one_view_does_not_affect_other_jobs(mount_store, store, job_of):
    """A job removes key directories in its own view while others write and read the same keys."""
    mount = mount_store(store)
    keys = [f"KEY{number}" for number in range(12)]
    cleaner = job_of(mount, "cleaner", 20100)
    workers = [job_of(mount, f"job{uid}", uid) for uid in range(20001, 20005)]
    for worker in workers:
        worker.start("triton_put_groups", str(worker.mount / "triton"), keys, b"same")
    for _ in range(6):
        for key in keys:
            cleaner("shutil.rmtree", cleaner.path("triton", key), ignore_errors=True)
    for worker in workers:
        assert worker.result() == []
    for worker in workers:
        for key in keys:
            assert len(worker.listdir(f"triton/{key}")) == 6, key
    for key in keys:
        assert len(list((store / "triton" / key).iterdir())) == 6, key


def test_a_process_killed_in_mid_put_stops_nobody(mount_store, store, job_of):
    mount = mount_store(store)
    keys = [f"KEY{number}" for number in range(40)]
    victim, other = job_of(mount, "victim", 20001), job_of(mount, "other", 20002)
    victim.start("triton_put_groups", str(victim.mount / "triton"), keys, b"victim")
    other("os.makedirs", other.path("triton/KEY0"), exist_ok=True)
    victim.kill()
    assert other("triton_put_groups", str(other.mount / "triton"), keys, b"other") == []
    again = job_of(mount, "victim", 20001)
    assert again("triton_put_groups", str(again.mount / "triton"), keys, b"victim") == []
    for key in keys:
        found = {path.name: path.read_bytes() for path in (store / "triton" / key).iterdir()}
        builders = {data.split(b" ")[0] for name, data in found.items() if "__grp__" not in name}
        assert len(found) == 6 and len(builders) == 1, (key, sorted(found))
