# SPDX-License-Identifier: Apache-2.0
"""Runs Numba's own tests of its cache, and prints the result of each as a JSON object."""

import json
import sys
import unittest

MODULES = ("numba.tests.test_caching", "numba.tests.test_compile_cache", "numba.tests.test_parfors_caching")


class Outcomes(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.outcomes = {}

    def addSuccess(self, test):
        self.outcomes[test.id()] = "ok"

    def addFailure(self, test, error):
        self.outcomes[test.id()] = f"failed: {error[1]}"

    def addError(self, test, error):
        self.outcomes[test.id()] = f"failed: {error[1]}"

    def addSkip(self, test, reason):
        self.outcomes[test.id()] = f"skipped: {reason}"

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addFailure(test, error)


def main():
    result = Outcomes()
    unittest.defaultTestLoader.loadTestsFromNames(MODULES).run(result)
    print("OUTCOMES " + json.dumps(result.outcomes), file=sys.__stdout__)


if __name__ == "__main__":  # false in the tests' child processes, into which multiprocessing imports this file
    main()
