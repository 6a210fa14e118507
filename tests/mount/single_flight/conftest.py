# SPDX-License-Identifier: Apache-2.0
import pytest


@pytest.fixture
def crowd(mount, job_of):
    """crowd(n) starts n processes, each with its own job and user."""

    def make(count, **options):
        return [job_of(mount, f"job{number}", 20001 + number, **options) for number in range(count)]

    return make


@pytest.fixture
def flights(mount):
    """flights() returns the counters of single flight, without their prefix `flight_`."""
    return lambda: {name.removeprefix("flight_"): value for name, value in mount.stats().items()
                    if name.startswith("flight_")}
