# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of direct answers: a base, and processes of a job with and without the library."""

import pytest
from direct import KEY, UID, Race, Turns, warm


@pytest.fixture
def base(store):
    """A base with a few names of each kind."""
    (store / KEY / "sub").mkdir(parents=True)
    (store / KEY / "file").write_bytes(b"of the base")
    (store / KEY / "sub/deep").write_bytes(b"deep in the base")
    (store / "other/directory").mkdir(parents=True)
    (store / "other/directory/file").write_bytes(b"in a directory of no family")
    (store / "other/file").write_bytes(b"of no family")
    return store


@pytest.fixture
def mount(mount_store, base):
    return mount_store(base)


@pytest.fixture
def shimmed(mount, shimmed_job_of):
    """A process of job j with direct answers."""
    return warm(mount, shimmed_job_of(mount, "j", UID))


@pytest.fixture
def plain(mount, job_of):
    """A process of the same job without the library."""
    return job_of(mount, "j", UID)


@pytest.fixture
def turns(mount, scratch, shimmed_job_of):
    return Turns(mount, scratch, shimmed_job_of)


@pytest.fixture
def race(mount, scratch, job_of, shimmed_job_of):
    return Race(mount, scratch, job_of, shimmed_job_of)
