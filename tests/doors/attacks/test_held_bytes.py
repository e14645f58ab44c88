"""What clients can make the server hold by requests that are not complete, and by names that they choose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.address import Address
from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.principal import ANONYMOUS
from mainstem.broker.access.rules import Operation, ResourceType
from mainstem.broker.broker import Broker
from mainstem.doors.budget import Budget
from mainstem.doors.http.door import HttpDoor
from mainstem.doors.http.routes.table import ROUTES
from mainstem.doors.http.transport.errors import Refusal
from mainstem.doors.kafka.transport.group_names import GROUP_NAMED_S, GroupNames
from tests.support.clock import ManualClock

from .attackers import _PREFACE, _SETTINGS, _request_head, frame

_HEADERS, _CONTINUATION, _END_HEADERS = 1, 9, 4
_LITERAL = b"\0\1x\x7f\xe1\x5c"  # a header x of 12,000 bytes follows
_POST = _request_head("/v0/topics/probe", "POST")

_LINES = b"".join(b"x%d: %b\r\n" % (number, b"v" * 1000) for number in range(50))
_SENT = {
    "a head without an end": [b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\n" + _LINES],
    "a head whose body does not come": [
        b"POST /v0/topics/probe HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: 9\r\n" + _LINES + b"\r\n"
    ],
    "HTTP/2 heads whose bodies do not come": [
        _PREFACE + frame(_SETTINGS, 0, 0),
        *(
            frame(_HEADERS, _END_HEADERS, stream, _POST + _LITERAL + b"v" * 12_000)
            for stream in range(1, 20, 2)
        ),
    ],
    "an HTTP/2 head without an end": [
        _PREFACE + frame(_SETTINGS, 0, 0) + frame(_HEADERS, 0, 1, _POST),
        *(frame(_CONTINUATION, 0, 1, _LITERAL + b"v" * 12_000) for _ in range(4)),
    ],
    "HTTP/2 frames without an end": [
        _PREFACE + frame(_SETTINGS, 0, 0) + b"\0\x3f\xff\0\0\0\0\0\1" + bytes(16_000)
    ],
}


@pytest.fixture
async def door(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Budget, Address]]:
    monkeypatch.setattr("mainstem.doors.budget.RECEIVED_BYTES_MAX", 1 << 20)
    budget = Budget()
    door = HttpDoor(broker, budget=budget)
    yield budget, await door.start(Address("127.0.0.1", 0))
    await door.stop(1.0)


@pytest.mark.parametrize("sent", _SENT)
async def test_incomplete_requests_of_one_client_hold_a_share(
    door: tuple[Budget, Address], sent: str
) -> None:
    budget, address = door
    connections = [await asyncio.open_connection(address.host, address.port) for _ in range(60)]
    for part in _SENT[sent]:
        for _, writer in connections:
            if not writer.is_closing():
                writer.write(part)
    async with asyncio.timeout(60):
        while not budget.floods_closed:  # noqa: ASYNC110  # there is no event to await
            await asyncio.sleep(0.01)
    assert budget.received.total <= 1 << 20
    for _, writer in connections:
        writer.transport.abort()
    await asyncio.gather(*(writer.wait_closed() for _, writer in connections), return_exceptions=True)
    async with asyncio.timeout(60):
        while budget.received.total:  # noqa: ASYNC110  # there is no event to await
            await asyncio.sleep(0.01)


async def test_large_heads_are_forgotten_with_their_responses(door: tuple[Budget, Address]) -> None:
    budget, address = door
    reader, writer = await asyncio.open_connection(address.host, address.port)
    for pipelined in (1, 5, 1):
        writer.write(
            (b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\n" + _LINES[:20_000] + b"v\r\n\r\n") * pipelined
        )
        for _ in range(pipelined):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            assert head.startswith(b"HTTP/1.1 200"), head
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
        assert budget.received.total == 0
    assert not budget.floods_closed
    writer.close()


def test_long_paths_are_not_kept() -> None:
    kept = len(ROUTES.cached)
    for number in range(10):
        ROUTES.find("GET", b"/v0/topics/%d%b" % (number, b"p" * 1000))
        with pytest.raises(Refusal):
            ROUTES.find("GET", b"/nowhere/%d%b" % (number, b"p" * 1000))
    assert len(ROUTES.cached) == kept


def test_decisions_about_long_names_are_not_kept(broker: Broker) -> None:
    access = broker.access
    access.configure(AccessOptions(logins=True, rules="on"))
    for number in range(10):
        name = f"{number}" + "n" * 1000
        assert not access.allows(ANONYMOUS, "::1", Operation.READ, ResourceType.TOPIC, name)
    assert not access.allows(ANONYMOUS, "::1", Operation.READ, ResourceType.TOPIC, "short")
    assert sum(len(asked[-1]) for asked in access.decisions) == len("short")


def test_group_names_of_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.doors.kafka.transport.group_names.GROUP_NAMES_KEPT", 500)
    names = GroupNames(ManualClock())
    for client in range(20):
        connection: Any = SimpleNamespace(group=None)
        call: Any = SimpleNamespace(
            restricted=False, principal=ANONYMOUS, host="::1", client_id=f"client {client}"
        )
        for number in range(1000):
            message = SimpleNamespace(group_id=f"group {number}", member_epoch=0)
            names.learn(68, call, message, connection)
    assert len(names) <= 500


def test_clients_are_forgotten_with_their_last_group() -> None:
    clock = ManualClock()
    names = GroupNames(clock)
    for client in range(20):
        connection: Any = SimpleNamespace(group=None)
        call: Any = SimpleNamespace(
            restricted=False, principal=ANONYMOUS, host="::1", client_id=f"client {client}"
        )
        names.learn(68, call, SimpleNamespace(group_id="g", member_epoch=0), connection)
        clock.advance(int(GROUP_NAMED_S * 1000) + 1)
        connection.group = None  # a new connection
        assert names.group_of(call, connection) is None
    assert names.clients == len(names) == 0


def test_very_long_group_names_are_not_kept() -> None:
    names = GroupNames(ManualClock())
    call: Any = SimpleNamespace(restricted=False, principal=ANONYMOUS, host="::1", client_id="client")
    names.learn(68, call, SimpleNamespace(group_id="g" * 30_000), SimpleNamespace())  # type: ignore[arg-type]
    assert len(names) == 0
    names.learn(68, call, SimpleNamespace(group_id="g"), SimpleNamespace())  # type: ignore[arg-type]
    assert len(names) == 1
