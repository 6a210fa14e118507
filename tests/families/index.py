# SPDX-License-Identifier: Apache-2.0
"""A package index over HTTP on this machine: three wheels, and two source distributions of which one cannot be built.

The backend of the source distributions is in them, so that building them needs nothing else.
"""

from __future__ import annotations

import contextlib
import http.server
import io
import os
import pathlib
import tarfile
import threading
import zipfile

WHEELS = ("alpha", "beta", "gamma")

# The build takes a while, so that users who build at the same time meet.
BACKEND = '''\
import os
import time
import zipfile


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    fd = os.open(os.environ["FAMILY_BUILDS"], os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"NAME\\n")
    os.close(fd)
    time.sleep(0.3)
    if "NAME" == "broken":
        raise RuntimeError("cannot be built")
    name = "NAME-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:
        for member, text in MEMBERS.items():
            wheel.writestr(member, text)
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError


MEMBERS = {
'''


def _members(name: str) -> dict[str, str]:
    info = f"{name}-1.0.dist-info"
    return {f"{name}.py": f"NAME = {name!r}\n" + "#" * 50_000,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": ""}


def _wheel(name: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as wheel:
        for member, text in _members(name).items():
            wheel.writestr(member, text)
    return data.getvalue()


def _source(name: str) -> bytes:
    lines = "".join(f"    {member!r}: {text!r},\n" for member, text in _members(name).items())
    files = {"backend.py": BACKEND.replace("NAME", name) + lines + "}\n",
             "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\n'
                               'backend-path = ["."]\n'
                               f'[project]\nname = "{name}"\nversion = "1.0"\n',
             "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-1.0/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


class Index:
    """Notes each download of a wheel as a build, in the file that `builds_log` names."""

    def __init__(self, scratch: pathlib.Path):
        self.builds_log = scratch / "none"
        files = {f"{name}-1.0-py3-none-any.whl": _wheel(name) for name in WHEELS}
        files |= {f"{name}-1.0.tar.gz": _source(name) for name in ("built", "broken")}
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                name = self.path.strip("/").rpartition("/")[2]
                if name in files:
                    body, kind = files[name], "application/octet-stream"
                    if name.endswith(".whl"):
                        index.note(name)
                else:
                    links = "".join(f'<a href="/files/{file}">{file}</a>' for file in files
                                    if file.startswith(f"{name}-"))
                    body, kind = f"<html><body>{links}</body></html>".encode(), "text/html"
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "max-age=3600")
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # the user was killed
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/simple/"

    def note(self, name: str) -> None:
        fd = os.open(self.builds_log, os.O_WRONLY | os.O_APPEND)
        os.write(fd, f"{name}\n".encode())
        os.close(fd)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
