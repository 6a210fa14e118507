# SPDX-License-Identifier: Apache-2.0
"""A package index over HTTP on this machine, and wheels for it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

from http_server import Answer, HttpServer


def wheel_name(name: str) -> str:
    return f"{name}-1.0-py3-none-any.whl"


def wheel_members(name: str, padding: int) -> dict[str, str]:
    """Returns the members of a wheel with one module of about `padding` bytes."""
    info = f"{name}-1.0.dist-info"
    return {f"{name}.py": f"NAME = {name!r}\n" + "#" * padding,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": ""}


def wheel(name: str, padding: int) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for member, text in wheel_members(name, padding).items():
            archive.writestr(member, text)
    return data.getvalue()


class PackageIndex(HttpServer):
    """Serves `files` by their names, and calls on_wheel(name), in any thread, for each download of a wheel."""

    def __init__(self, files: dict[str, bytes], on_wheel: Callable[[str], None]):
        self._files, self._on_wheel = files, on_wheel
        super().__init__(self._answer)

    def _answer(self, path: str, with_body: bool) -> Answer:
        name = path.strip("/").rpartition("/")[2]
        if name in self._files:
            body, kind = self._files[name], "application/octet-stream"
            if with_body and name.endswith(".whl"):
                self._on_wheel(name)
        else:
            links = "".join(f'<a href="/files/{file}">{file}</a>' for file in self._files
                            if file.startswith(f"{name}-"))
            body, kind = f"<html><body>{links}</body></html>".encode(), "text/html"
        return 200, {"Content-Type": kind, "Cache-Control": "max-age=3600"}, body
