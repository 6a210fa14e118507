# SPDX-License-Identifier: Apache-2.0
"""A package index over HTTP on this machine, and wheels for it."""

from __future__ import annotations

import contextlib
import http.server
import io
import threading
import zipfile
from collections.abc import Callable


def wheel_name(name: str) -> str:
    return f"{name}-1.0-py3-none-any.whl"


def wheel_members(name: str, padding: int) -> dict[str, str]:
    """What the wheel of one module holds; the module has about `padding` bytes."""
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


class PackageIndex:
    """Serves `files` by their names, and calls on_wheel(name), in any thread, for each wheel that it is asked for."""

    def __init__(self, files: dict[str, bytes], on_wheel: Callable[[str], None]):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                name = self.path.strip("/").rpartition("/")[2]
                if name in files:
                    body, kind = files[name], "application/octet-stream"
                    if name.endswith(".whl"):
                        on_wheel(name)
                else:
                    links = "".join(f'<a href="/files/{file}">{file}</a>' for file in files
                                    if file.startswith(f"{name}-"))
                    body, kind = f"<html><body>{links}</body></html>".encode(), "text/html"
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "max-age=3600")
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # whoever asked was killed
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.host = f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
