# SPDX-License-Identifier: Apache-2.0
pytest_plugins = ["begun_files", "mount_fixtures"]  # tests/lib
