# SPDX-License-Identifier: Apache-2.0
"""Verifies that the claims of each profile match its family test: its `evidence`, and whether the library sets the
variable."""

import tomllib

import pytest
from family import REPOSITORY
from loading import load_all

FAMILIES = load_all()
PROFILES = {path.stem: tomllib.loads(path.read_text()) for path in (REPOSITORY / "profiles").glob("*.toml")}


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_profile_has_a_family_test_or_is_a_guess(name):
    proofs = [family for family in FAMILIES if family.profile == name]
    assert bool(proofs) == (PROFILES[name]["evidence"] != "guess")


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_profile_with_evidence_run_has_a_family_test(name):
    titles = [family.title for family in FAMILIES if family.profile == name]
    is_run = any("replayed" not in title for title in titles)
    assert is_run == (PROFILES[name]["evidence"] == "run")


def test_families_and_profiles_agree_on_whether_the_library_sets_the_variable():
    for family in FAMILIES:
        profile = PROFILES[family.profile]
        sets = "variable" in profile and profile.get("set_variable", True)
        assert family.library_sets_variable == sets, family.name
