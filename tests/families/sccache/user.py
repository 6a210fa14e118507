# SPDX-License-Identifier: Apache-2.0
"""Compiles six C files with sccache, through a server that this process starts and ends.

By default, all users of a machine would share the server of the first user.
"""

import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import compiling  # noqa: E402

SCCACHE = os.environ["FAMILY_SCCACHE"]
START_TIMEOUT_S = 60


def start_server() -> subprocess.Popen:
    os.environ["SCCACHE_SERVER_UDS"] = f"{os.getcwd()}/server"
    server = subprocess.Popen([SCCACHE], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              env={**os.environ, "SCCACHE_START_SERVER": "1", "SCCACHE_NO_DAEMON": "1"})
    deadline = time.monotonic() + START_TIMEOUT_S
    while not pathlib.Path("server").exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("sccache's server did not start")
        time.sleep(0.01)
    return server


server = start_server()
try:
    compiling.run(SCCACHE)
finally:
    server.terminate()
    server.wait()
