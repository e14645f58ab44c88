"""A server between Spark and the broker that holds, loses or watches single requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import httpx

from tests.support.background_server import BackgroundServer

Rule = Callable[[str, str], bool]  # of method and path: whether this request is the one

_PASSED_ON = ("content-type", "mainstem-next-offset", "retry-after")


class Proxy(BackgroundServer):
    """Passes requests on to `target`, which may change. Use it as a context."""

    url = BackgroundServer.endpoint

    def __init__(self, target: str) -> None:
        self.target = target
        self.seen: list[tuple[str, str]] = []
        self._before: tuple[Rule, Callable[[], None]] | None = None
        self._after: tuple[Rule, Callable[[], None]] | None = None
        self._lock = threading.Lock()
        super().__init__(self._handler())

    def before(self, path: str, act: Callable[[], None]) -> None:
        """Once, when the next request to this path has come in and nobody else knows of it."""
        self._before = (lambda method, asked: asked.startswith(path)), act

    def after(self, path: str, act: Callable[[], None]) -> None:
        """Once, when the next request to this path is served and its answer not sent; it is then lost."""
        self._after = (lambda method, asked: asked.startswith(path)), act

    def _take(self, which: str, method: str, path: str) -> Callable[[], None] | None:
        with self._lock:
            rule = self._before if which == "before" else self._after
            if rule is None or not rule[0](method, path):
                return None
            if which == "before":
                self._before = None
            else:
                self._after = None
            return rule[1]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._pass_on("GET")

            def do_POST(self) -> None:
                self._pass_on("POST")

            def do_PUT(self) -> None:
                self._pass_on("PUT")

            def _pass_on(self, method: str) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                proxy.seen.append((method, self.path))
                act = proxy._take("before", method, self.path)
                if act is not None:
                    act()
                sent = {"content-type": self.headers["content-type"]} if self.headers["content-type"] else {}
                try:
                    answer = httpx.request(
                        method, proxy.target + self.path, content=body, headers=sent, timeout=60
                    )
                except httpx.HTTPError:
                    self.close_connection = True
                    self.connection.close()
                    return
                act = proxy._take("after", method, self.path)
                if act is not None:
                    act()
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send_response(answer.status_code)
                for name in _PASSED_ON:
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.send_header("content-length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: tests look at `seen`."""

        return Handler
