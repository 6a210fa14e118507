# SPDX-License-Identifier: Apache-2.0
"""Processes in one view link and remove names of a file while others stat it, as with filelock's strict soft locks."""

import pathlib

import pytest

COUNT = 2000


@pytest.fixture(params=["plain", "preloaded"])
def process_of(request):
    return request.getfixturevalue("job_of" if request.param == "plain" else "shimmed_job_of")


@pytest.fixture
def link_and_remove(mount, process_of, scratch):
    """link_and_remove(family, removal, linkers) runs `linkers` processes that each link and remove one name of a common
    file, while two others stat all names. Returns the errors of all processes."""

    def run(family, removal, linkers):
        jobs = [process_of(mount, "one", 20001) for _ in range(linkers + 2)]
        directory, end = jobs[0].path(family), scratch / "end"
        path, names = f"{directory}/file", [f"{directory}/{number}/name" for number in range(linkers)]
        for name in names:  # each in its own directory, because the kernel serializes the changes to a directory
            jobs[0]("os.makedirs", str(pathlib.Path(name).parent))
        jobs[0].write(f"{family}/file", b"x")
        for job in jobs[linkers:]:
            job.start("stat_until", str(end), path, names, 1 + linkers)
        for job, name in zip(jobs, names):
            job.start("link_and_remove", path, name, removal, COUNT, linkers == 1)
        errors = [job.result(timeout=100) for job in jobs[:linkers]]
        end.touch()
        errors += [job.result() for job in jobs[linkers:]]
        assert jobs[0]("os.stat", path).st_nlink == 1
        return [found for found in errors if found]

    return run


@pytest.mark.parametrize("removal", ["unlink", "rename"])
@pytest.mark.parametrize("family", ["triton", "other"])
def test_link_finds_a_file_while_another_of_its_names_is_removed(link_and_remove, family, removal):
    assert link_and_remove(family, removal, linkers=2) == []


def test_link_count_after_each_change_while_others_stat_the_file(link_and_remove):
    assert link_and_remove("other", "unlink", linkers=1) == []
