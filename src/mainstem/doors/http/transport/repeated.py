"""The head of a request that a client repeats.

A client that makes one request after another sends the same head each time, except for the length of the body. So the
bytes are compared instead of parsed, and the request gets the scope of the one before.
"""

from __future__ import annotations

import re

from mainstem import limits
from mainstem.doors.http.transport.responses import Asgi

_HEAD_BYTES_MAX = 2 * limits.KIB
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,6})[ \t]*\r\n", re.IGNORECASE)
_LENGTH_NAME = b"content-length"
_LENGTH_DIGITS_MAX = 6
# Heads with these need the parser.
_SPECIAL = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"connection", b"trailer"})


class RepeatedHead:
    """`scope`: of the last request with this head."""

    __slots__ = ("_after", "_before", "_length", "scope")

    def __init__(self, before: bytes, length: bytes, after: bytes, scope: Asgi) -> None:
        self._before = before  # up to the length of the body
        self._length = length
        self._after = after
        self.scope = scope

    @classmethod
    def of(cls, data: bytes, scope: Asgi, url: bytes) -> RepeatedHead | None:
        """The head of a request that the parser found in `data`. None: `data` is not exactly that request, or later
        ones need the parser."""
        headers = scope["headers"]
        names = [name for name, _ in headers]
        if names.count(_LENGTH_NAME) != 1 or not _SPECIAL.isdisjoint(names):
            return None
        if not data.startswith(b"%b %b HTTP/1.1\r\n" % (scope["method"].encode(), url)):
            return None
        end = data.find(b"\r\n\r\n") + 4
        if not 4 < end <= _HEAD_BYTES_MAX or data.count(b"\n", 0, end) != data.count(b"\r\n", 0, end):
            return None
        found = _LENGTH.search(data, 0, end)
        if found is None or len(data) - end != int(found[1]):
            return None
        first, last = found.span(1)
        return cls(data[:first], found[1], data[last:end], scope)

    def body_of(self, data: bytes) -> bytes | None:
        """The body, if `data` is exactly one request with this head."""
        before, after = self._before, self._after
        if not data.startswith(before):
            return None
        first = len(before)
        last = data.find(b"\r", first)
        length = data[first:last]
        if length != self._length and not (length.isdigit() and len(length) <= _LENGTH_DIGITS_MAX):
            return None
        begin = last + len(after)
        if not data.startswith(after, last) or len(data) - begin != int(length):
            return None
        if length != self._length:
            headers = [
                (name, length if name == _LENGTH_NAME else value) for name, value in self.scope["headers"]
            ]
            self.scope = {**self.scope, "headers": headers}
            self._length = length
        return data[begin:]
