# SPDX-License-Identifier: Apache-2.0
"""Simulates a Hugging Face Hub: an HTTP server on this machine with small kernels of two files each.

It answers the requests of huggingface_hub 2.4 for repositories of kind `kernel`: their revisions, their file lists and
their files. The files of the repository `test/broken` cannot be downloaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re

from http_server import Answer, HttpServer

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


class Hub(HttpServer):
    """The server. It records each download of a file as a build, in the file `builds_log`."""

    VARIABLE = "HF_ENDPOINT"  # the variable that contains its address

    def __init__(self, scratch: pathlib.Path):
        self.builds_log = scratch / "none"
        super().__init__(self.answer)
        self.url = f"http://{self.host}"

    def answer(self, path: str, with_body: bool) -> Answer:
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

    @staticmethod
    def _json(value: object) -> Answer:
        return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()

    @staticmethod
    def _tree(name: str, below: str | None) -> list[dict[str, object]]:
        if below == "build":
            return [{"type": "directory", "oid": commit_of(name), "size": 0, "path": VARIANT}]
        return [describe(path, data) for path, data in files_of(name).items()]

    def _file(self, name: str, path: str, with_body: bool) -> Answer:
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
