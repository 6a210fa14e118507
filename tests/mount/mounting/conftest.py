# SPDX-License-Identifier: Apache-2.0
"""A fixture: a mount with a profile in profiles.d, as a site would add it."""

import pytest

SITE_PROFILE = """
name = "site"
variable = "SITE_CACHE_DIR"
default_paths = ["~/.site-cache"]
evidence = "run"

[[entry]]
path = "*"
files = [""]
"""


@pytest.fixture
def site_mount(own_profiles, mount_store, store):
    (own_profiles / "site.toml").write_text(SITE_PROFILE)
    return mount_store(store)
