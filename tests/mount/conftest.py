# SPDX-License-Identifier: Apache-2.0
from fixtures import *  # noqa: F401,F403  # fixtures and hooks are found by their names here
