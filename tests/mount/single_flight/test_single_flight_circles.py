# SPDX-License-Identifier: Apache-2.0
"""Builders that need each other's entries do not wait for each other."""

import pytest
from flights import NAME, build, look, start_look, wait_for_waits


@pytest.fixture
def nested(own_profiles):
    """A profile without one_by_one: the build of one entry may need another entry."""
    (own_profiles / "nested.toml").write_text(
        'name = "nested"\nevidence = "run"\n[[entry]]\npath = "*"\ncomplete = ["stub.so"]\n'
        '[class]\nscratch = ["tmp.pid_*"]\nflight = ["stub.so"]\n')


def test_a_wait_that_would_close_a_cycle_does_not_begin(nested, mount, crowd, flights):
    one, two, three = crowd(3)
    keys = ["nested/A", "nested/B", "nested/C"]
    for process, key in zip((one, two, three), keys):
        assert not look(process, key)
    start_look(one, keys[1])
    wait_for_waits(mount, 1)
    start_look(two, keys[2])
    wait_for_waits(mount, 2)
    assert not look(three, keys[0]), "the third would close the circle"
    build(three, keys[0])
    build(three, keys[2])
    assert two.result()
    build(two, keys[1])
    assert one.result()
    assert flights()["timeouts"] == 0


def test_a_wait_of_a_child_for_its_parents_waiter_closes_a_cycle_too(nested, mount, crowd):
    one, two = crowd(2)
    assert not look(one, "nested/A")
    assert not look(two, "nested/B")
    one.start("look_in_child", one.path("nested/B"), NAME)
    wait_for_waits(mount, 1)
    assert not look(two, "nested/A"), "the first waits for its child, which waits for the second"
    build(two, "nested/B")
    assert one.result() == 1
