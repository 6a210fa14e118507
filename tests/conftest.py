# SPDX-License-Identifier: Apache-2.0
pytest_plugins = ["file_claims", "mount_fixtures"]  # tests/lib
