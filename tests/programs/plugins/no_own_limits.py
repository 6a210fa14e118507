# SPDX-License-Identifier: Apache-2.0
"""A plugin for other projects' pytest suites: removes a test's own timeout unless it is longer than --timeout."""


def limit_of(mark):
    return (mark.args[0] if mark.args else mark.kwargs.get("timeout")) or 0


def pytest_collection_modifyitems(config, items):
    least = float(config.getoption("--timeout"))
    for item in items:
        for node in item.listchain():
            node.own_markers = [mark for mark in node.own_markers
                                if mark.name != "timeout" or limit_of(mark) > least]
