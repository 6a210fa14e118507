# SPDX-License-Identifier: Apache-2.0
"""Tests each route to the driver with each way to load and each policy, on the fake driver."""

import unittest

import stage
from stage import DEADLOCK, LOADS, PASSED, ROUTES, UNHOOKED

MAIN_ROUTES = {"direct", "dlsym", "v2"}  # tested with all ways to load; the other routes are tested with two


class Policy:
    """The settings of a process and the expected results: whether the process passes (`passes`), the value of
    CUDA_MODULE_LOADING (`mode`), and whether the hooks are active (`hooks`)."""

    def __init__(self, passes, mode, hooks=True, preload="library", options=(), **variables):
        self.passes, self.mode = passes, mode  # passes: "always", "never", or "hooked" (if the hooks see the route)
        self.hooks = hooks
        self.preload, self.options, self.variables = preload, options, variables


POLICIES = {
    "without_the_library": Policy("never", "unset", hooks=False, preload=None),
    "off": Policy("never", "unset", hooks=False, CACHESHIM_CUDA_EAGER="off"),
    "disabled": Policy("never", "unset", hooks=False, CACHESHIM_DISABLE="1"),
    "auto": Policy("always", "EAGER"),
    "force": Policy("always", "EAGER", CACHESHIM_CUDA_EAGER="force", CUDA_MODULE_LOADING="LAZY"),
    "user_is_lazy": Policy("never", "LAZY", CUDA_MODULE_LOADING="LAZY"),
    "select": Policy("hooked", "LAZY", CACHESHIM_CUDA_EAGER="select", CACHESHIM_CUDA_MATCH="^ta.l"),
    "select_no_match": Policy("never", "LAZY", CACHESHIM_CUDA_EAGER="select",
                              CACHESHIM_CUDA_MATCH="^other$"),
    # Only the hooks have an effect: the library has no constructor (hooks_only), or the program has overridden the
    # constructor's setting (set_later).
    "hooks_only": Policy("hooked", None, preload="hooks_only"),
    "hooks_only_select": Policy("hooked", None, preload="hooks_only",
                                CACHESHIM_CUDA_EAGER="select", CACHESHIM_CUDA_MATCH="tail"),
    "set_later": Policy("hooked", None, options=("--set", "LAZY")),
}


def cells():
    for policy in POLICIES:
        for route in ROUTES:
            for load in LOADS if route in MAIN_ROUTES else ("cuModuleLoadData", "cuLibraryLoadData"):
                yield policy, route, load


def is_cured(policy, route):
    passes = POLICIES[policy].passes
    return passes == "always" or (passes == "hooked" and route not in UNHOOKED)


def run_cell(policy, route, load):
    told = POLICIES[policy]
    preload = {"library": [stage.library], "hooks_only": [stage.hooks_only], None: []}[told.preload]
    spin_ms = stage.PATIENT_MS if is_cured(policy, route) else stage.SHORT_MS
    return stage.run_route(route, load, *told.options, preload=preload, spin_ms=spin_ms,
                           **told.variables)


class Matrix(unittest.TestCase):
    """One test for each combination of a policy, a route and a way to load."""

    @classmethod
    def setUpClass(cls):
        cls.runs = stage.run_all({cell: lambda cell=cell: run_cell(*cell) for cell in cells()})

    def check(self, policy, route, load):
        ended, told = self.runs[policy, route, load], POLICIES[policy]
        cured = is_cured(policy, route)
        self.assertEqual(ended.status, PASSED if cured else DEADLOCK, ended)
        self.assertEqual(ended.loads("tail"), ["before-spin" if cured else "beside-spin"], ended)
        hooked = told.hooks and route not in UNHOOKED
        if told.mode is not None:
            self.assertEqual(ended.first_init(), told.mode, ended)
        elif hooked and route != "second_copy":
            lazy = told.variables.get("CACHESHIM_CUDA_EAGER") == "select"
            self.assertEqual(ended.first_init(), "LAZY" if lazy else "EAGER", ended)
        if told.hooks:
            for function in ("cuInit", load):
                self.assertEqual(ended.is_hooked(function), hooked, (function, ended))
        if policy.startswith("select") or policy == "hooks_only_select":
            self.assertIn("mode=EAGER" if hooked else "mode=LAZY", ended.out)
        # With `select`, only functions that match are loaded early.
        if "select" in policy and cured:
            self.assertEqual(ended.loads("other"), [], ended)


for cell in cells():
    setattr(Matrix, "test_" + "__".join(cell), lambda self, cell=cell: self.check(*cell))


class Hooks(unittest.TestCase):
    """One test for each hook; the test must fail if that hook is removed (removal.py)."""

    def hooked(self, function, route, load="cuModuleLoadData"):
        ended = stage.run_route(route, load, "--no-spin", preload=[stage.library])
        self.assertEqual(ended.status, PASSED, ended)
        self.assertTrue(ended.is_hooked(function), (function, route, ended))

    def check_row(self, function, load):
        for route in ("direct", "dlsym", "v1", "v2"):
            with self.subTest(route=route):
                self.hooked(function, route, load)

    def test_cuInit(self):
        self.check_row("cuInit", "cuModuleLoadData")

    def test_cuModuleGetLoadingMode(self):
        for route in ("direct", "dlsym", "v1", "v2"):
            ended = stage.run_route(route, "cuModuleLoadData", "--no-spin", preload=[stage.library],
                                    CACHESHIM_CUDA_EAGER="select", CACHESHIM_CUDA_MATCH="tail")
            self.assertIn("mode=EAGER", ended.out, ended)

    def test_cuGetProcAddress(self):
        self.hooked("cuGetProcAddress", "v1")
        self.hooked("cuInit", "v1")
        self.hooked("cuInit", "v2_v1")

    def test_cuGetProcAddress_v2(self):
        self.hooked("cuGetProcAddress_v2", "v2")
        self.hooked("cuInit", "v2")

    def test_dlsym(self):
        self.hooked("cuInit", "dlsym")

    def test_dlvsym(self):
        self.hooked("cuInit", "dlvsym")

    def test_constructor(self):
        ended = stage.run_route("raw", "cuModuleLoadData", "--no-spin", preload=[stage.library])
        self.assertEqual(ended.first_init(), "EAGER", ended)


for row in LOADS:
    setattr(Hooks, f"test_{row}", lambda self, row=row: self.check_row(row, row))


if __name__ == "__main__":
    stage.main()
