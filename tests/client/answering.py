"""A server that answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

from tests.support.background_server import BackgroundServer


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Said(NamedTuple):
    """A response; a status of 0 closes the connection without one."""

    status: int
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()


class AnsweringServer(BackgroundServer):
    url = BackgroundServer.endpoint

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

        super().__init__(Handler)
