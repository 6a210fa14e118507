# SPDX-License-Identifier: Apache-2.0
"""A plugin for other projects' pytest suites: each test may take what --timeout says, if its own limit is less."""


def pytest_collection_modifyitems(config, items):
    least = float(config.getoption("--timeout"))
    for item in items:
        for node in item.listchain():
            node.own_markers = [mark for mark in node.own_markers
                                if mark.name != "timeout" or (mark.args and mark.args[0] > least)]
