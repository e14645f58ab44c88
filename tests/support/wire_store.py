"""The common part of the test doubles of Google's and Azure's object stores: a bucket over HTTP.

A double implements the part of the vendor's documented protocol that the client library uses, in memory. It is not the
service: it shows that requests, responses and errors follow the documentation.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit
from xml.sax.saxutils import escape

from tests.support.background_server import BackgroundServer

PAGE_OBJECTS = 7  # of a listing; a store's own pages hold thousands

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str  # as it came, without the query
    query: dict[str, str]
    headers: dict[str, str]  # names in lower case
    body: bytes


@dataclass(slots=True)
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kept:
    content: bytes
    generation: int
    modified: float  # seconds since the epoch

    def headers(self) -> dict[str, str]:
        return {"etag": f'"{self.generation}"', "last-modified": formatdate(self.modified, usegmt=True)}


class WireStore(BackgroundServer):
    """One bucket. A vendor's class says how it is asked. Use it as a context."""

    bucket = "box"

    def __init__(self) -> None:
        self.objects: dict[str, Kept] = {}
        self.asked: list[Request] = []
        self._failures: deque[tuple[Answer, bool]] = deque()
        self._lock = threading.Lock()
        self._generation = 0
        super().__init__(_handler(self), _Server)

    def fail(self, status: int, code: str, *, times: int = 1, after: bool = False) -> None:
        """Answer the next requests like that; with `after`, what they ask for is done all the same."""
        self._failures.extend([(error(status, code), after)] * times)

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self.asked.append(request)
            if not self._failures:
                return self.respond(request)
            failure, after = self._failures.popleft()
            if after:
                self.respond(request)
            return failure

    def respond(self, request: Request) -> Answer:
        raise NotImplementedError

    def keep(self, key: str, content: bytes) -> Kept:
        self._generation += 1
        self.objects[key] = Kept(content, self._generation, time.time())
        return self.objects[key]

    def read(self, key: str, asked: str) -> Answer:
        """All of an object that is there, or the range that the header asks for."""
        kept = self.objects[key]
        found = _RANGE.fullmatch(asked)
        if found is None:
            return Answer(200, kept.content, kept.headers())
        size = len(kept.content)
        first, last = int(found[1]), min(int(found[2] or size), size - 1)
        if first >= size:
            return error(416, "InvalidRange")
        part = kept.headers() | {"content-range": f"bytes {first}-{last}/{size}"}
        return Answer(206, kept.content[first : last + 1], part)

    def page(self, prefix: str, after: str) -> tuple[list[tuple[str, Kept]], str]:
        """The next objects of a listing, and where the one after it goes on; empty: there is none."""
        names = sorted(name for name in self.objects if name.startswith(prefix) and name > after)
        some = names[:PAGE_OBJECTS]
        return [(name, self.objects[name]) for name in some], some[-1] if len(names) > len(some) else ""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client may be killed
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def error(status: int, code: str) -> Answer:
    return Answer(
        status, f"<Error><Code>{escape(code)}</Code><Message>said by a test</Message></Error>".encode()
    )


def _handler(store: WireStore) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer is sent at once, not its head and then its body

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = dict(parse_qsl(parts.query, keep_blank_values=True))
            answer = store.answer(Request(self.command, parts.path, asked, headers, body))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

        def log_message(self, format: str, *args: object) -> None:
            pass  # not into the tests' output

    return Handler
