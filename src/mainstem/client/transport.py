"""Requests to a server: a connection pool, retries within a time limit, and Mainstem's errors."""

from __future__ import annotations

import asyncio
import os
import random
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec

from mainstem import limits
from mainstem.api.route import JSON, OCTETS, Body, Route
from mainstem.client.environment import KEY_ENV, NAMESPACE_ENV, URL_DEFAULT, URL_ENV
from mainstem.client.failures import failure
from mainstem.errors import InvalidInput, InvariantBroken, MainstemError, ServerFault, Unreachable
from mainstem.version import VERSION

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
Query = Mapping[str, str | int | bool | None]
Verify = bool | str | ssl.SSLContext

BATCHES = OCTETS
TIMEOUT_S = 30.0

_RETRIED = (429, 502, 503, 504)
_REDIRECT = 307
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_LEAST_ATTEMPT_S = 0.1
_BEATS_MISSED_MAX = 3


class ServerResponse(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]
    repeated: bool  # the server may have served an earlier attempt whose response was lost


class Transport:
    """`timeout_s` limits one call, retries included. Without retries, each call is one attempt."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        retries: bool = True,
        verify: Verify = True,
        namespace: str | None = None,
    ) -> None:
        self._namespace = namespace or os.environ.get(NAMESPACE_ENV)
        self.url = validated_url(url or os.environ.get(URL_ENV) or URL_DEFAULT)
        self.timeout_s = timeout_s
        self._retries = retries
        self._verify = verify
        self._headers = {"user-agent": f"mainstem-python/{VERSION}"}
        if self.url.split("://")[1].startswith(("127.0.0.1", "localhost", "[::1]")):
            self._headers["accept-encoding"] = "identity"  # compression costs more time than it saves here
        key = api_key if api_key is not None else os.environ.get(KEY_ENV)
        if key:
            self._headers["authorization"] = f"Bearer {key}"
        self._client: httpx.AsyncClient | None = None
        self._background: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a background task, which ends with the client at the latest."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def close(self) -> None:
        """Cancel background tasks and close all connections. Idempotent."""
        background = list(self._background)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def call(
        self,
        route: Route[T],
        *names: str,
        body: object = None,
        query: Query | None = None,
        wait_s: float = 0.0,
    ) -> T:
        """Call a route that returns JSON. `names` fill in its path. `wait_s` is how long the server may wait before it
        responds."""
        return decoded_as(route, await self.request(route, *names, body=body, query=query, wait_s=wait_s))

    async def request(
        self,
        route: Route[Any],
        *names: str,
        body: object = None,
        query: Query | None = None,
        wait_s: float = 0.0,
    ) -> ServerResponse:
        """Call a route with a body of bytes, or one that is encoded as JSON."""
        return await self.send(
            route.method,
            route.url(*names),
            body if body is None or isinstance(body, bytes) else msgspec.json.encode(body),
            query=query,
            wait_s=wait_s,
            content_type=BATCHES if route.body is Body.BYTES else JSON,
        )

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str = JSON,
        wait_s: float = 0.0,
        timeout_s: float | None = None,
    ) -> ServerResponse:
        """Send one request, and retry until there is a response or the time is over. The request must be idempotent.

        Raises the error in the response, or Unreachable."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        extra = dict(headers or {})
        if body is not None:
            extra["content-type"] = content_type
        repeated = False
        pause_s = _FIRST_PAUSE_S
        while True:
            left_s = max(deadline - time.monotonic(), _LEAST_ATTEMPT_S)
            outcome = await self._attempt(method, path, body, query, extra, left_s + wait_s)
            if isinstance(outcome, ServerResponse):
                return outcome._replace(repeated=repeated)
            error, again_s, unsure = outcome
            repeated = repeated or unsure
            wait = max(again_s, random.uniform(pause_s / 2, pause_s))
            if not self._retries or again_s < 0 or time.monotonic() + wait >= deadline:
                if repeated and again_s < 0:
                    error.add_note("the server may have served an earlier attempt whose response was lost")
                raise error
            await asyncio.sleep(wait)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _attempt(
        self,
        method: str,
        path: str,
        body: bytes | None,
        query: Query | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> ServerResponse | tuple[MainstemError, float, bool]:
        """The response, or: the error, the delay before the next attempt (-1: none), and whether the server may have
        served the request."""
        import httpx

        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, self.timeout_s))
        pool, sent = self._pool(), dict(headers)
        try:
            got = await pool.request(
                method, path, content=body, params=_written(query), headers=sent, timeout=timeout
            )
            if got.status_code == _REDIRECT and "location" in got.headers:
                # To the broker that coordinates a group. The location has the query already.
                place = httpx.URL(got.headers["location"])
                got = await pool.request(method, place, content=body, headers=sent, timeout=timeout)
        except httpx.HTTPError as wrong:
            return self._unreachable(wrong), 0.0, not isinstance(wrong, httpx.ConnectError)
        except httpx.InvalidURL as wrong:
            raise InvalidInput(f"{self.url} is not a valid server URL: {wrong}") from None
        if got.is_success:
            return ServerResponse(got.status_code, got.content, got.headers, False)
        error = failure(got.status_code, got.content)
        if got.status_code in _RETRIED:
            return error, _retry_after(got.headers.get("retry-after")), False
        return error, -1.0, False

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Query | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The bytes of an event stream as they arrive. One attempt. Raises the response's error, or Unreachable."""
        import httpx

        # The server sends a heartbeat at fixed intervals; a stream without any is dead.
        silence_s = limits.WATCH_HEARTBEAT_MS_DEFAULT / 1000 * _BEATS_MISSED_MAX
        try:
            async with self._pool().stream(
                "GET",
                path,
                params=_written(query),
                headers={"accept": "text/event-stream", **(headers or {})},
                timeout=httpx.Timeout(self.timeout_s, read=silence_s),
            ) as got:
                if not got.is_success:
                    raise failure(got.status_code, await got.aread())
                async with aclosing(cast("AsyncGenerator[bytes]", got.aiter_raw())) as chunks:
                    yield chunks
        except httpx.HTTPError as wrong:
            raise self._unreachable(wrong) from None

    def _unreachable(self, wrong: httpx.HTTPError) -> Unreachable:
        reason = str(wrong) or type(wrong).__name__
        return Unreachable(self.url, reason[:1].lower() + reason[1:])

    def _pool(self) -> httpx.AsyncClient:
        if self._client is None:
            import httpx

            self._client = httpx.AsyncClient(
                base_url=self.url,
                headers=self._headers,
                params={"namespace": self._namespace} if self._namespace else None,
                verify=_ssl_context(self._verify) if self.url.startswith("https:") else False,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
                trust_env=False,  # a proxy variable must not redirect calls to a local server
            )
        return self._client


def _ssl_context(verify: Verify) -> ssl.SSLContext | bool:
    """The system's certificates (and SSL_CERT_FILE), an authority's file, or the caller's context."""
    if verify is True or isinstance(verify, str):
        try:
            return ssl.create_default_context(cafile=None if verify is True else verify)
        except OSError as wrong:
            raise InvalidInput(f"verify={verify!r} is not a certificate file: {wrong}") from None
    return verify


def decoded_as(route: Route[T], answer: ServerResponse) -> T:
    """Raises ServerFault for a body that is not the route's response."""
    if route.response is None:
        raise InvariantBroken(f"{route.method} {route.path} does not return JSON")
    return decoded(answer.body, route.response)


def decoded(body: bytes, kind: type[T]) -> T:
    """Raises ServerFault if the body does not have this type."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as wrong:
        raise ServerFault(f"cannot decode the server's response: {wrong}") from None


def validated_url(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("http", "https") or not rest.strip("/"):
        raise InvalidInput(
            f"a server URL begins with http:// or https://, such as {URL_DEFAULT}, not {url!r}"
        )
    return url.rstrip("/")


def _written(query: Query | None) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (query or {}).items()
        if value is not None
    }


def _retry_after(text: str | None) -> float:
    """Seconds the server asks to wait."""
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 6 else 0.0


class Calls:
    """Part of a client: the calls of one kind of resource."""

    _transport: Transport
