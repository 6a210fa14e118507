# SPDX-License-Identifier: Apache-2.0
"""Two processes of one view link and unlink further names of a file, as strict soft locks do."""

import pytest


@pytest.mark.parametrize("family", ["triton", "other"])
def test_link_finds_a_file_while_another_of_its_names_is_unlinked(mount, job_of, family):
    one, two = (job_of(mount, "one", 20001) for _ in range(2))
    folder = one.path(family)
    for name in ("a", "b"):  # the kernel lets one change of a directory go on at a time
        one("os.makedirs", f"{folder}/{name}")
    one.write(f"{family}/file", b"x")
    for job, name in ((one, "a"), (two, "b")):
        job.start("link_and_unlink", f"{folder}/file", f"{folder}/{name}/name", 5000)
    assert [job.result(timeout=100) for job in (one, two)] == [{}, {}]
    assert one("os.stat", f"{folder}/file").st_nlink == 1
