"""One request as its handler sees it."""

from __future__ import annotations

from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qs

import msgspec

from mainstem import limits
from mainstem.api.base import Performance
from mainstem.api.routes import Scope
from mainstem.broker.broker import Broker
from mainstem.doors.http.transport.auth import ApiKey
from mainstem.doors.http.transport.errors import Refusal, invalid

if TYPE_CHECKING:
    from mainstem.doors.http.transport.context import Context

T = TypeVar("T")

_TRUE = {"true", "1"}
_FALSE = {"false", "0"}


class HttpRequest:
    """`started` is the moment it came in, on the perf_counter's clock."""

    def __init__(
        self,
        context: Context,
        key: ApiKey,
        parameters: dict[str, str],
        query_string: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        started: float,
    ) -> None:
        self.context = context
        self.key = key
        self.parameters = parameters
        self.query_string = query_string
        self.headers = headers
        self.body = body
        self.started = started
        self.principal = ""
        self._reserved_bytes = 0

    @property
    def broker(self) -> Broker:
        return self.context.broker

    @property
    def topic(self) -> str:
        return self.parameters["topic"]

    def header(self, name: bytes) -> bytes | None:
        """The first header of this lower-case name."""
        return self.headers.get(name)

    # Memory of the response

    async def reserve(self, amount: int) -> None:
        """Count this many bytes for the response, instead of those before, until the client has read it.

        Waits while the client's other responses, or those of all clients, hold too much."""
        self.release()
        await self.context.budget.responses.reserve(self.principal, amount)
        self._reserved_bytes = amount

    def reserved_is(self, amount: int) -> None:
        """The response turned out to be this large."""
        self.context.budget.responses.take(self.principal, amount)
        self.release()
        self._reserved_bytes = amount

    async def before_large(self) -> None:
        """A very large batch is to be decoded for the response."""
        await self.reserve(limits.LARGE_READ_BYTES)

    def release(self) -> None:
        if self._reserved_bytes:
            self.context.budget.responses.give(self.principal, self._reserved_bytes)
            self._reserved_bytes = 0

    # Query parameters

    @cached_property
    def _query(self) -> dict[str, list[str]]:
        if not self.query_string:
            return {}
        return parse_qs(self.query_string.decode("latin-1"), keep_blank_values=True, errors="replace")

    def text(self, name: str) -> str | None:
        return self._query[name][0] if self.query_string and name in self._query else None

    def flag(self, name: str, default: bool) -> bool:
        """true/1 or false/0; anything else is the default."""
        if not self.query_string:
            return default
        given = self.text(name)
        return True if given in _TRUE else False if given in _FALSE else default

    def number(self, name: str, default: int) -> int:
        """A whole number from 0 on; anything else is the default."""
        given = self.text(name) if self.query_string else None
        if given is None or not (given.isascii() and given.isdigit()) or len(given) > 20:
            return default
        return int(given)

    @property
    def partition(self) -> int:
        return self.number("partition", 0)

    # Body

    def json(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The body as what the decoder makes of it. Raises Refusal 400."""
        return decoded(decoder, self.body)

    # Rights

    def require(self, scope: Scope) -> None:
        """Raises Refusal 403 unless the key has the scope."""
        missing = int(scope) & ~int(self.key.scopes)  # plain numbers: flags make a new flag of every step
        if missing:
            raise Refusal(
                403, "forbidden", f"this key lacks the scope {_scope_names(scope & ~self.key.scopes)}"
            )

    def require_name(self, name: str) -> None:
        """Raises Refusal 403 unless the key's prefixes allow the name."""
        if not self.key.allows(name):
            raise Refusal(403, "forbidden", f"this key's prefixes do not cover {name!r}", {"topic": name})

    # Answering

    def performance(self, *, records_scanned: int | None = None) -> Performance:
        """How long the request took so far."""
        return Performance(self.elapsed_ms(), records_scanned=records_scanned)

    def elapsed_ms(self) -> float:
        return round((perf_counter() - self.started) * 1000, 3)


def decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Raises Refusal 400 for what is no JSON, or JSON of another shape."""
    try:
        if not body.isascii():
            body.decode()  # raw parts are taken over byte by byte, so all of it must be text
        return decoder.decode(body)
    except UnicodeDecodeError:
        raise invalid("the body is not UTF-8") from None
    except msgspec.ValidationError as wrong:
        raise invalid(f"the body does not fit: {wrong}") from None
    except (msgspec.DecodeError, RecursionError) as wrong:
        raise invalid(f"the body is no JSON: {wrong}") from None


def _scope_names(scope: Scope) -> str:
    return "+".join(flag.name.lower() for flag in scope if flag.name)
