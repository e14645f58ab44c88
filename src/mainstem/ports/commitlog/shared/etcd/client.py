"""Calls to an etcd cluster, to any member. A failed call is repeated at the next member, within a time limit.

Uses the messages and stubs of aetcd. Its own client knows one address and no time limit, and a log must survive the
member it talks to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from aetcd import rpc

from mainstem import limits
from mainstem.errors import Closed, InvalidConfig, MainstemError, NoSpace, StorageError, Unavailable

ETCD_CALL_S = 5.0  # one attempt of a call
ETCD_RETRY_S = 15.0  # all attempts of a call: an election takes a second or two
ETCD_WATCH_IDLE_S = 5.0  # a watch without events for this long is restarted
ETCD_RANGE_BYTES_MAX = 64 * limits.MIB  # one response

_PASSING = frozenset(
    {
        rpc.StatusCode.UNAVAILABLE,
        rpc.StatusCode.DEADLINE_EXCEEDED,
        rpc.StatusCode.CANCELLED,
        rpc.StatusCode.UNKNOWN,
        rpc.StatusCode.ABORTED,
        rpc.StatusCode.INTERNAL,
    }
)
_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),  # etcd rejects pings that come more often than every 5 s
    ("grpc.keepalive_timeout_ms", 5_000),
    (
        "grpc.http2.max_pings_without_data",
        0,
    ),  # unlimited: a watch must notice a dead connection
    ("grpc.max_receive_message_length", ETCD_RANGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_REQUIRE_LEADER = (("hasleader", "true"),)  # a member without a leader ends the call instead of hanging
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.02, 0.5

Operation = Any  # an rpc.RequestOp: the stubs are untyped
Condition = Any  # an rpc.Compare


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """Where the cluster is and how long to wait for it."""

    endpoints: tuple[str, ...]  # host:port of each member
    ca_file: Path | None = None  # TLS if given
    cert_file: Path | None = None  # this client's own certificate, with its key
    key_file: Path | None = None
    call_s: float = ETCD_CALL_S  # one attempt
    retry_s: float = ETCD_RETRY_S  # all attempts of one call


class Connection(NamedTuple):
    """The calls of one member: etcd's own stubs, or a test's."""

    kv: Any  # an rpc.KVStub
    watch: Any  # an rpc.WatchStub
    maintenance: Any  # an rpc.MaintenanceStub
    close: Callable[[], Awaitable[None]]


Connect = Callable[[str, EtcdOptions], Connection]  # the first is the member's endpoint


class TxnResult(NamedTuple):
    """The result of a transaction."""

    succeeded: bool
    responses: Sequence[Any]  # one a step, of the branch that was taken
    repeated: bool  # sent more than once: a refusal does not mean that it was never applied
    revision: int  # of etcd after it


class Compacted(Exception):
    """The requested history was compacted; the current values still exist."""


class EtcdClient:
    """Transactions, ranges and watches. One event loop owns it."""

    def __init__(self, options: EtcdOptions, connect: Connect | None = None) -> None:
        if not options.endpoints:
            raise InvalidConfig("name at least one etcd endpoint, as host:port")
        self._options = options
        self._members = [(connect or _connect)(endpoint, options) for endpoint in options.endpoints]
        self._chosen = 0
        self._closed = False

    async def txn(
        self,
        conditions: Sequence[Condition],
        success: Sequence[Operation],
        failure: Sequence[Operation] = (),
    ) -> TxnResult:
        """One atomic step. It can be sent more than once, so applying it again must have the same result.

        It must write something: etcd before 3.5.5 crashes on a read-only transaction whose caller goes away.
        Raises NoSpace or Unavailable; after Unavailable it may have been applied, or may still be."""
        request = rpc.TxnRequest(compare=conditions, success=success, failure=failure)
        sent = 0

        async def attempt() -> Any:
            nonlocal sent
            sent += 1
            return await self._kv.Txn(request, timeout=self._options.call_s)

        found = await self._call(attempt)
        return TxnResult(found.succeeded, found.responses, sent > 1, found.header.revision)

    async def range(self, start: bytes, end: bytes = b"", *, limit: int = 0, keys_only: bool = False) -> Any:
        """The current values of the keys, linearizable. Without `end`: one key."""
        request = rpc.RangeRequest(key=start, range_end=end, limit=limit, keys_only=keys_only)
        return await self._call(lambda: self._kv.Range(request, timeout=self._options.call_s))

    async def newest(self, start: bytes, end: bytes) -> bytes | None:
        """The last key in a range."""
        request = rpc.RangeRequest(
            key=start,
            range_end=end,
            limit=1,
            keys_only=True,
            sort_order=rpc.RangeRequest.DESCEND,
            sort_target=rpc.RangeRequest.KEY,
        )
        found = await self._call(lambda: self._kv.Range(request, timeout=self._options.call_s))
        return found.kvs[0].key if found.kvs else None

    async def delete(self, start: bytes, end: bytes = b"") -> None:
        request = rpc.DeleteRangeRequest(key=start, range_end=end)
        await self._call(lambda: self._kv.DeleteRange(request, timeout=self._options.call_s))

    async def compact(self, revision: int) -> None:
        """Delete the history before a revision, of all keys of the cluster."""
        request = rpc.CompactionRequest(revision=revision)
        await self._call(lambda: self._kv.Compact(request, timeout=self._options.call_s))

    async def bytes_in_use(self) -> int:
        """The size of the member's database, with the history that is not compacted yet."""
        request = rpc.StatusRequest()
        timeout = self._options.call_s
        found = await self._call(
            lambda: self._members[self._chosen].maintenance.Status(request, timeout=timeout)
        )
        return int(found.dbSizeInUse)

    async def watch(self, start: bytes, end: bytes, revision: int) -> AsyncGenerator[list[Any], None]:
        """Changes from `revision` on. Raises Compacted, or Unavailable once the watch is lost.

        Ends when nothing came for a while: range again, since nothing else reveals a member that stalls."""
        self._check_open()
        create = rpc.WatchCreateRequest(key=start, range_end=end, start_revision=revision)
        call = self._members[self._chosen].watch.Watch(metadata=_REQUIRE_LEADER)
        try:
            async with asyncio.timeout(self._options.call_s):
                await call.write(rpc.WatchRequest(create_request=create))
            while (response := await _next(call)) is not grpc.aio.EOF:
                if response is None:
                    return
                if response.compact_revision:
                    raise Compacted(f"etcd compacted the history before revision {response.compact_revision}")
                if response.canceled:
                    raise Unavailable(f"etcd ended a watch: {response.cancel_reason}")
                if response.events:
                    yield list(response.events)
            raise Unavailable("etcd ended a watch")
        except asyncio.CancelledError:
            self._tell_if_closed()
            raise
        except (rpc.AioRpcError, TimeoutError, asyncio.InvalidStateError) as error:
            self._turn_away()
            raise Unavailable(f"lost the watch at {self._endpoint}: {_said(error)}") from error
        finally:
            call.cancel()

    async def close(self) -> None:
        """Idempotent."""
        self._closed = True
        for member in self._members:
            await member.close()

    @property
    def _kv(self) -> Any:
        return self._members[self._chosen].kv

    @property
    def _endpoint(self) -> str:
        return self._options.endpoints[self._chosen]

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the log is closed")

    def _tell_if_closed(self) -> None:
        """Closing a channel ends its calls with CancelledError, although nobody cancelled them."""
        task = asyncio.current_task()
        if task is not None and not task.cancelling():
            self._check_open()

    def _turn_away(self) -> None:
        """The next attempt goes to the next member."""
        self._chosen = (self._chosen + 1) % len(self._members)

    async def _call(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._options.retry_s
        pause = _PAUSE_FIRST_S
        while True:
            self._check_open()
            try:
                return await attempt()
            except asyncio.CancelledError:
                self._tell_if_closed()
                raise
            except rpc.AioRpcError as error:
                refusal = _refusal(error)
                if refusal is not None:
                    raise refusal from error
                endpoint = self._endpoint
                self._turn_away()
                if loop.time() + pause > give_up_at:
                    raise Unavailable(
                        f"etcd did not answer for {self._options.retry_s:g} s, last asked {endpoint}: {_said(error)}"
                    ) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)


async def _next(call: Any) -> Any:
    """A watch's next answer; None if it takes too long, which ends the call."""
    try:
        async with asyncio.timeout(ETCD_WATCH_IDLE_S):
            return await call.read()
    except TimeoutError:
        return None


def put(key: bytes, value: bytes) -> Operation:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value))


def get(start: bytes, end: bytes = b"", *, limit: int = 0) -> Operation:
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=start, range_end=end, limit=limit))


def either(
    conditions: Sequence[Condition], success: Sequence[Operation], failure: Sequence[Operation]
) -> Operation:
    """A transaction inside another one: its conditions select a branch."""
    return rpc.RequestOp(request_txn=rpc.TxnRequest(compare=conditions, success=success, failure=failure))


def remove(start: bytes, end: bytes = b"") -> Operation:
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=start, range_end=end))


def absent(key: bytes) -> Condition:
    compare = rpc.Compare
    return compare(result=compare.EQUAL, target=compare.CREATE, key=key, create_revision=0)


def holds(key: bytes, value: bytes) -> Condition:
    compare = rpc.Compare
    return compare(result=compare.EQUAL, target=compare.VALUE, key=key, value=value)


def below(key: bytes, value: bytes) -> Condition:
    """The key exists and its value sorts before this one, byte by byte."""
    compare = rpc.Compare
    return compare(result=compare.LESS, target=compare.VALUE, key=key, value=value)


def unchanged(key: bytes, mod_revision: int) -> Condition:
    """Not written since that revision; 0: the key does not exist."""
    compare = rpc.Compare
    return compare(result=compare.EQUAL, target=compare.MOD, key=key, mod_revision=mod_revision)


def _refusal(error: Any) -> MainstemError | None:
    """A final error; None if another attempt may succeed."""
    code = error.code()
    if code in _PASSING:
        return None
    if code is rpc.StatusCode.RESOURCE_EXHAUSTED:
        if "space exceeded" in str(error.details()):
            return NoSpace(
                "etcd's database has reached its quota: compact and defragment it, then disarm its alarm"
            )
        return None  # too many requests, or a message that is too large
    return StorageError(f"etcd refused a call: {_said(error)}")


def _said(error: BaseException) -> str:
    if isinstance(error, rpc.AioRpcError):
        return f"{error.code().name}, {error.details()}"
    return repr(error)


def _credentials(options: EtcdOptions) -> Any:
    if options.ca_file is None:
        return None
    own = (options.key_file, options.cert_file)
    key, cert = (path.read_bytes() if path else None for path in own)
    return grpc.ssl_channel_credentials(options.ca_file.read_bytes(), key, cert)


def _connect(endpoint: str, options: EtcdOptions) -> Connection:
    credentials = _credentials(options)
    if credentials is None:
        channel = rpc.insecure_channel(endpoint, options=_OPTIONS)
    else:
        channel = rpc.secure_channel(endpoint, credentials, options=_OPTIONS)
    return Connection(
        rpc.KVStub(channel), rpc.WatchStub(channel), rpc.MaintenanceStub(channel), channel.close
    )
