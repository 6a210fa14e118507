# SPDX-License-Identifier: Apache-2.0
"""An HTTP server on this machine, for programs that download."""

from __future__ import annotations

import contextlib
import http.server
import threading
import urllib.parse
from collections.abc import Callable

Answer = tuple[int, dict[str, str], bytes]  # status, headers, body


class HttpServer:
    """Answers GET and HEAD with the result of answer(path, with_body), which is called in a thread per connection."""

    def __init__(self, answer: Callable[[str, bool], Answer]):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def _answer(self, with_body: bool) -> None:
                path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
                status, headers, body = answer(path, with_body)
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if with_body:
                    with contextlib.suppress(ConnectionError):  # the client was killed
                        self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.host = f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
