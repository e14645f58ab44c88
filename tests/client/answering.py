"""A server that answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Said(NamedTuple):
    """An answer; a status of 0 hangs up without a word."""

    status: int
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()


class AnsweringServer:
    def __init__(self, answer: Callable[[Asked], Said]) -> None:
        self.asked: list[Asked] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, self.path, headers, self.rfile.read(length))
                outer.asked.append(asked)
                said = answer(asked)
                if not said.status:
                    self.close_connection = True
                    return
                self.send_response(said.status)
                for name, value in said.headers:
                    self.send_header(name, value)
                self.send_header("content-length", str(len(said.body)))
                self.end_headers()
                self.wfile.write(said.body)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _serve

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> AnsweringServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
