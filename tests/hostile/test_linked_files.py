# SPDX-License-Identifier: Apache-2.0
"""Files of the base with several names, as uv and conda make them. The daemon finds a file's other names by its inode
(ObjectIds)."""

import os

USER, VICTIM = 20001, 20002
FILES = 20  # several, because the kernel forgets an unlinked file only some time after its last close


def test_a_changed_file_without_a_name_is_not_found_by_its_former_inode(mount, job_of):
    directory = mount.base("other")
    directory.mkdir(exist_ok=True)
    for number in range(FILES):
        (directory / f"{number}.a").write_text("text")
        for name in "bc":
            os.link(directory / f"{number}.a", directory / f"{number}.{name}")
    job = job_of(mount, "j", USER)
    for number in range(FILES):
        path = job.path(f"other/{number}.a")
        fd = job("os.open", path, os.O_RDONLY)
        job("os.unlink", path)
        job("os.fchmod", fd, 0o600)  # the job gets a copy, which has no name
        job("os.close", fd)
    for number in range(FILES):
        other = job("os.stat", job.path(f"other/{number}.b"))
        assert other.st_nlink == 2 and other.st_mode & 0o777 == 0o644
    job_of(mount, "k", VICTIM).write("triton/own", b"x")
