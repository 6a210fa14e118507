# SPDX-License-Identifier: Apache-2.0
"""When a file with several names loses one, the daemon remembers this for a while (PendingUnlinks). The directory of
that name may be removed meanwhile."""

USER, VICTIM = 20001, 20002
CHUNK = 4096  # Arena::kChunk: the daemon frees the memory of nodes in chunks of this size


def test_stat_works_after_the_directory_and_node_of_an_unlinked_name_are_freed(mount, job_of):
    """Frees the nodes in three chunks, then stats a file that has lost a name in a directory whose node was in one of
    these chunks."""
    job = job_of(mount, "j", USER)
    job.write("triton/kept", b"x")
    many = [job.path(f"triton/many/{number}") for number in range(3 * CHUNK)]
    job("os.makedirs", job.path("triton/many"))
    for path in many[:2 * CHUNK]:
        job("os.mkdir", path)
    job("os.mkdir", job.path("triton/gone"))
    job("os.link", job.path("triton/kept"), job.path("triton/gone/link"))
    for path in many[2 * CHUNK:]:
        job("os.mkdir", path)
    job("os.unlink", job.path("triton/gone/link"))
    job("os.rmdir", job.path("triton/gone"))
    for path in many:
        job("os.rmdir", path)
    assert job("os.stat", job.path("triton/kept")).st_nlink == 1
    job_of(mount, "k", VICTIM).write("triton/own", b"x")
