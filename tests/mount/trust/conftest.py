# SPDX-License-Identifier: Apache-2.0
import pytest
from trust import STRANGER, TRUSTED


@pytest.fixture
def mount(mount_allowing):
    return mount_allowing(f"{{ users = [{TRUSTED}] }}")


@pytest.fixture
def shared(mount, job_of):
    """Processes of TRUSTED and STRANGER in one job, which several users share."""
    mount.cli("job", "start", "both", "--shared-uids")
    return job_of(mount, "both", TRUSTED), job_of(mount, "both", STRANGER)
