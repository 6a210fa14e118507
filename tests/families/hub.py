# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face Hub over HTTP on this machine, with small kernels, each of two files.

It answers what huggingface_hub 2.4 asks for a repository of kind `kernel`, by file and by tree. One repository, `test/broken`,
has a file that cannot be downloaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import re
import threading
import urllib.parse

NAMES = ("relu", "silu", "gelu", "norm")
VARIANT = "build/torch-cpu"
PADDING = "#" * 50_000


def files_of(name: str) -> dict[str, bytes]:
    metadata = json.dumps({"name": name, "id": f"_{name}", "version": 1, "license": "Apache-2.0",
                           "python-depends": [], "backend": {"type": "cpu"}})
    return {f"{VARIANT}/__init__.py": f"NAME = {name!r}\n{PADDING}".encode(),
            f"{VARIANT}/metadata.json": metadata.encode()}


def commit_of(name: str) -> str:
    return hashlib.sha1(name.encode()).hexdigest()


def blob_of(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


def describe(path: str, data: bytes) -> dict[str, object]:
    return {"type": "file", "oid": blob_of(data), "size": len(data), "path": path}


class Hub:
    """Notes each download of a file as a build, in the file that `builds_log` names."""

    VARIABLE = "HF_ENDPOINT"  # by which users know it

    def __init__(self, scratch: pathlib.Path):
        self.builds_log = scratch / "none"
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def _answer(self, with_body: bool) -> None:
                path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
                status, headers, body = hub.answer(path, with_body)
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if with_body:
                    with contextlib.suppress(ConnectionError):  # whoever asked was killed
                        self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str, with_body: bool) -> tuple[int, dict[str, str], bytes]:
        if found := re.fullmatch(r"/kernels/test/(\w+)/resolve/[^/]+/(.+)", path):
            return self._file(*found.groups(), with_body)
        if found := re.fullmatch(r"/api/kernels/test/(\w+)/tree/[^/]+(?:/(.+))?", path):
            return self._json(self._tree(*found.groups()))
        if found := re.fullmatch(r"/api/kernels/test/(\w+)/refs", path):
            branch = {"name": "main", "ref": "refs/heads/main", "targetCommit": commit_of(found[1])}
            return self._json({"branches": [branch], "converts": [], "tags": []})
        if found := re.fullmatch(r"/api/kernels/test/(\w+)(?:/revision/.+)?", path):
            return self._json({"id": f"test/{found[1]}", "sha": commit_of(found[1])})
        return 404, {}, b""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @staticmethod
    def _json(value: object) -> tuple[int, dict[str, str], bytes]:
        return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()

    @staticmethod
    def _tree(name: str, below: str | None) -> list[dict[str, object]]:
        if below == "build":
            return [{"type": "directory", "oid": commit_of(name), "size": 0, "path": VARIANT}]
        return [describe(path, data) for path, data in files_of(name).items()]

    def _file(self, name: str, path: str, with_body: bool) -> tuple[int, dict[str, str], bytes]:
        headers = {"X-Repo-Commit": commit_of(name)}
        data = files_of(name).get(path)
        if data is None:
            return 404, {**headers, "X-Error-Code": "EntryNotFound"}, b""
        if with_body:
            self._note(path)
            if name == "broken":
                return 403, headers, b""
        return 200, {**headers, "ETag": f'"{blob_of(data)}"'}, data

    def _note(self, name: str) -> None:
        fd = os.open(self.builds_log, os.O_WRONLY | os.O_APPEND)
        os.write(fd, f"{name}\n".encode())
        os.close(fd)
