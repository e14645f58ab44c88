"""A simulated etcd as a node's client calls it: instead of the gRPC stubs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc
from aetcd import rpc
from grpc.aio import Metadata

from mainstem.ports.commitlog.shared.etcd.client import Connect, Connection, EtcdOptions
from tests.support.simulation.etcd_state import EtcdState
from tests.support.simulation.network import CallLost, Network, check_alive
from tests.support.simulation.nodes import Life


def connect_to(state: EtcdState, network: Network, life: Life) -> Connect:
    """Gives the commit log a connection of that life to the simulated etcd."""

    def connect(endpoint: str, options: EtcdOptions) -> Connection:
        watches = _Watches(state, network, life)
        calls = _Calls(state, network, life)
        return Connection(calls, watches, calls, watches.close)

    return connect


class _Calls:
    def __init__(self, state: EtcdState, network: Network, life: Life) -> None:
        self._state = state
        self._network = network
        self._life = life

    async def Txn(self, request: Any, timeout: float) -> Any:  # noqa: ASYNC109 - gRPC's own names
        return await self._call(
            f"txn {' '.join(_written(request))}", lambda: self._state.txn(request), timeout
        )

    async def Range(self, request: Any, timeout: float) -> Any:  # noqa: ASYNC109
        what = f"range {request.key.decode()}"
        return await self._call(what, lambda: self._state.range(request), timeout)

    async def DeleteRange(self, request: Any, timeout: float) -> Any:  # noqa: ASYNC109
        what = f"delete {request.key.decode()}"
        return await self._call(what, lambda: self._state.delete(request), timeout)

    async def Compact(self, request: Any, timeout: float) -> Any:  # noqa: ASYNC109
        return await self._call("compact", lambda: self._state.compact(request.revision), timeout)

    async def Status(self, request: Any, timeout: float) -> Any:  # noqa: ASYNC109
        return await self._call(
            "status", lambda: rpc.StatusResponse(dbSizeInUse=self._state.bytes_in_use), timeout
        )

    async def _call(self, what: str, act: Callable[[], Any], timeout_s: float) -> Any:
        try:
            return await self._network.call(self._life, what, act, timeout_s)
        except CallLost as error:
            raise _failed(rpc.StatusCode.DEADLINE_EXCEEDED, str(error)) from None


class _Watches:
    def __init__(self, state: EtcdState, network: Network, life: Life) -> None:
        self._state = state
        self._network = network
        self._life = life
        self._open: list[_Watch] = []

    def Watch(self, metadata: Any) -> _Watch:
        watch = _Watch(self._state, self._network, self._life)
        self._open.append(watch)
        return watch

    async def close(self) -> None:
        for watch in self._open:
            watch.cancel()


class _Watch:
    """One watch. Answers come in order, each after some time, until the connection is lost."""

    def __init__(self, state: EtcdState, network: Network, life: Life) -> None:
        self._state = state
        self._network = network
        self._life = life
        self._sent: deque[Any] = deque()
        self._arrived: deque[Any] = deque()
        self._wake = asyncio.Event()
        self._unlisten: Callable[[], None] | None = None
        self._ended = False

    async def write(self, request: Any) -> None:
        create = request.create_request
        try:
            await self._network.call(self._life, "watch", lambda: self._listen(create), 1.0)
        except CallLost as error:
            raise _failed(rpc.StatusCode.UNAVAILABLE, str(error)) from None

    async def read(self) -> Any:
        while not self._arrived:
            if self._ended:
                return grpc.aio.EOF
            self._wake.clear()
            await self._wake.wait()
            check_alive(self._life)
        if self._life.node.cut_off or self._network.watch_is_lost():
            self.cancel()
            raise _failed(rpc.StatusCode.UNAVAILABLE, "the connection was lost")
        return self._arrived.popleft()

    def cancel(self) -> None:
        self._ended = True
        self._wake.set()
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None

    def _listen(self, create: Any) -> None:
        try:
            self._unlisten = self._state.listen(
                create.key, create.range_end, create.start_revision, self._changed
            )
        except LookupError:
            self._send(rpc.WatchResponse(canceled=True, compact_revision=self._state.compacted))

    def _changed(self, events: list[Any]) -> None:
        self._send(rpc.WatchResponse(events=events))

    def _send(self, response: Any) -> None:
        self._sent.append(response)
        self._network.later(self._receive)

    def _receive(self) -> None:
        """One of those under way arrives: whichever timer it was, they come in the order they were sent."""
        self._arrived.append(self._sent.popleft())
        self._wake.set()


def _written(request: Any) -> list[str]:
    """The keys that a transaction puts if all its conditions hold."""
    found: list[str] = []
    for operation in request.success:
        kind = operation.WhichOneof("request")
        if kind == "request_put":
            found.append(operation.request_put.key.decode())
        elif kind == "request_txn":
            found += _written(operation.request_txn)
    return found


def _failed(code: Any, details: str) -> Exception:
    error: Exception = rpc.AioRpcError(code, Metadata(), Metadata(), details)
    return error
