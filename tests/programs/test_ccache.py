# SPDX-License-Identifier: Apache-2.0
"""Builds a C project with ninja and ccache, with the project and CCACHE_DIR in a view."""

import places
import pytest
import workers

SOURCES = 40


def environment(place):
    return {"CCACHE_DIR": place.path / "ccache", "CCACHE_NOCOMPRESS": "1",
            # Without this, ccache does not use its cache for sources that are as new as the build.
            "CCACHE_SLOPPINESS": "include_file_mtime,include_file_ctime"}


def build(place, cores):
    place.run("ninja", "-C", "project", "-j", 2 * cores, env=environment(place))


def rebuild(place, cores):
    """Cleans the project and builds it again; returns ccache's counters of this build."""
    place.run("ccache", "-z", env=environment(place))
    place.run("ninja", "-C", "project", "-t", "clean", env=environment(place))
    build(place, cores)
    lines = place.run("ccache", "--print-stats", env=environment(place)).splitlines()
    return {name: int(value) for name, value in (line.split("\t") for line in lines)}


def hits(counters):
    return counters["direct_cache_hit"] + counters["preprocessed_cache_hit"]


def objects(place):
    found = place.tree("project", times=False)
    return {path: seen for path, seen in found.items() if path.endswith((".o", "program"))}


@pytest.mark.timeout_s(300)
def test_a_cold_and_a_warm_build_make_the_same_objects(two_places, uid, cores):
    built = []
    for place in two_places(uid):
        place.python("write_c_project", "project", SOURCES)
        cold = rebuild(place, cores)
        cold_objects = objects(place)
        warm = rebuild(place, cores)
        assert (hits(cold), cold["cache_miss"]) == (0, SOURCES)
        assert (hits(warm), warm["cache_miss"]) == (SOURCES, 0)
        places.assert_equal_trees(cold_objects, objects(place))
        assert place.run("project/program") == f"{workers.sum_of_c_project(SOURCES)}\n"
        built.append(objects(place))
    assert len(built[0]) == SOURCES + 1
    places.assert_equal_trees(*built)


def filled_cache(directory):
    place = places.Place(directory, 0, None)
    place.python("write_c_project", "project", SOURCES)
    build(place, 2)


@pytest.mark.timeout_s(300)
def test_a_cache_in_the_base_hits_for_every_object(two_places, uid, cores):
    native, view = two_places(uid, filled_cache)
    before = objects(view)
    counters = rebuild(view, cores)
    assert (hits(counters), counters["cache_miss"]) == (SOURCES, 0)
    places.assert_equal_trees(objects(native), objects(view))
    places.assert_equal_trees(before, objects(view))
