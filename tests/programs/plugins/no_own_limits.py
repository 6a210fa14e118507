# SPDX-License-Identifier: Apache-2.0
"""A plugin for other projects' pytest suites: raises each test's own timeout to that of --timeout."""


def pytest_collection_modifyitems(config, items):
    least = float(config.getoption("--timeout"))
    for item in items:
        for node in item.listchain():
            node.own_markers = [mark for mark in node.own_markers
                                if mark.name != "timeout" or (mark.args and mark.args[0] > least)]
