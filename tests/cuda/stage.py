# SPDX-License-Identifier: Apache-2.0
"""Runs the clients of this directory on the fake driver."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PASSED, DRIVER_ERROR, DEADLOCK, WATCHDOG = 0, 2, 3, 4
# The milliseconds for which the spin kernel runs if nothing ends it. In a scenario that must pass, the client ends it
# much earlier. A scenario that must deadlock takes this long, so it uses SHORT_MS.
PATIENT_MS, SHORT_MS = 20000, 700

build, library, hooks_only = "", "", ""  # main() sets them


class Run:
    """The results of a client: its exit status, its output, and the calls that the fake driver has recorded
    (`trace`)."""

    def __init__(self, status, out, err, trace):
        self.status, self.out, self.err = status, out, err
        self.trace = trace

    def callers(self, function):
        """Returns the libraries from which the driver's function was called, one for each call."""
        return [words[-1] for words in self.trace if words[0] == function]

    def first_init(self):
        """Returns the value of CUDA_MODULE_LOADING at the driver's first initialization."""
        return next((words[1] for words in self.trace if words[0] == "cuInit"), None)

    def loads(self, kernel):
        """Returns, for each load of the kernel, when it happened: "before-spin" or "beside-spin"."""
        return [words[2] for words in self.trace if words[:2] == ["load", kernel]]

    def is_hooked(self, function):
        callers = self.callers(function)
        return bool(callers) and all(by.startswith("libcacheshim") for by in callers)

    def __repr__(self):
        trace = "\n".join(" ".join(words) for words in self.trace)
        return f"status {self.status}\n{self.out}{self.err}{trace}"


def run(command, preload=(), driver="", spin_ms=PATIENT_MS, prefix=(), **variables):
    """Runs a client from the build directory on the fake driver, or on the libcuda.so.1 in the build directory's
    subdirectory `driver`. `prefix`: the words of a command that runs the client."""
    with tempfile.TemporaryDirectory(prefix="cacheshim-cuda-") as scratch:
        image = pathlib.Path(scratch, "image")
        image.write_text("tail;other")
        trace = pathlib.Path(scratch, "trace")
        environment = {
            "PATH": "/usr/bin:/bin",
            "LD_LIBRARY_PATH": f"{build}/{driver}:{build}",
            "FAKE_CUDA_TRACE": str(trace),
            "FAKE_CUDA_SPIN_MS": str(spin_ms),
            "CACHESHIM_WARNED": "1",  # suppresses the message that there is no mount
            "CACHESHIM_MOUNT": f"{scratch}/mount",
        }
        if preload:
            environment["LD_PRELOAD"] = ":".join(preload)
        environment.update(variables)
        words = [str(image) if word == "IMAGE" else word for word in command]
        words[0] = words[0] if words[0].startswith("/") else f"{build}/{words[0]}"
        ended = subprocess.run([*prefix, *words], env=environment, capture_output=True, text=True, timeout=120,
                               stdin=subprocess.DEVNULL, check=False)
        lines = trace.read_text().splitlines() if trace.exists() else []
        return Run(ended.returncode, ended.stdout, ended.stderr, [line.split() for line in lines])


# The client and its arguments for each route to the driver.
ROUTES = {
    "direct": ["client_direct"],
    "local": ["client_open", "local", "BUILD/libclient_direct.so"],
    "dlsym": ["client_lookup", "dlsym"],
    "dlvsym": ["client_lookup", "dlvsym"],
    "default": ["client_lookup", "default"],
    "v1": ["client_lookup", "v1"],
    "v2": ["client_lookup", "v2"],
    "v2_v1": ["client_lookup", "v2-v1"],
    "torch": ["client_lookup", "torch"],
    "second_copy": ["client_lookup", "dlmopen"],
    "raw": ["client_lookup", "raw"],
    "deepbind": ["client_open", "deepbind", "BUILD/libclient_direct.so"],
    "namespace": ["client_open", "dlmopen", "BUILD/libclient_direct.so"],
}
UNHOOKED = {"raw", "deepbind", "namespace"}
MODULE_LOADS = ["cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary"]
LIBRARY_LOADS = ["cuLibraryLoadData", "cuLibraryLoadFromFile"]
LOADS = MODULE_LOADS + LIBRARY_LOADS


def run_route(route, load, *options, **arguments):
    command = [word.replace("BUILD", build) for word in ROUTES[route]]
    if route == "dlvsym":
        arguments["driver"] = "versioned"
    return run([*command, load, "IMAGE", *options], **arguments)


def run_all(jobs):
    """Calls the functions in `jobs`, {name: function}, in parallel, because they wait for timeouts; returns {name:
    result}."""
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        futures = {name: pool.submit(job) for name, job in jobs.items()}
        return {name: future.result() for name, future in futures.items()}


def main():
    """Runs the tests of the calling script. Usage: SCRIPT BUILD_DIRECTORY LIBRARY HOOKS_ONLY [unittest's arguments]."""
    global build, library, hooks_only  # pylint: disable=global-statement
    build, library, hooks_only = (os.path.abspath(path) for path in sys.argv[1:4])
    del sys.argv[1:4]
    unittest.main(module="__main__", verbosity=2)
