"""Fair shares: of pools, of connections, of watch sessions and of the decoding thread."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h2.connection
import h2.events
import httpx
import pytest
import zstandard

from mainstem.address import Address
from mainstem.broker.access.principal import ANONYMOUS, UNRESTRICTED, Principal
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.decoding import Decoding
from mainstem.broker.watch import WatchOptions
from mainstem.broker.watch_sessions import WatchSessions
from mainstem.doors.budget import Budget, FrameRate, Pool, Seats, Turns, holder_of
from mainstem.doors.http.door import HttpDoor
from mainstem.doors.http.transport.app import App
from mainstem.doors.kafka.door import KafkaDoor
from mainstem.doors.kafka.security.options import KafkaSecurity
from mainstem.doors.pulsar.door import PulsarDoor
from mainstem.doors.pulsar.messages import MessageMetadata
from mainstem.doors.pulsar.wire import FrameBuffer, parse_frame, payload_frame, simple_frame
from mainstem.doors.s3.door import S3Door
from mainstem.doors.text.door import TextDoor
from mainstem.errors import Throttled
from tests.support.certificates import make_self_signed
from tests.support.clock import ManualClock


class _Connection:
    def __init__(self, used_at: float | None = 0.0) -> None:
        self.used_at = used_at
        self.aborted = False

    def unused_since(self) -> float | None:
        return self.used_at

    def abort(self) -> None:
        self.aborted = True


def test_a_principal_gets_half_of_a_pool_and_the_next_one_half_of_the_rest() -> None:
    pool = Pool(lambda: 1024)
    for principal, expected in (("a", 512), ("b", 256), ("c", 128)):
        while pool.fits(principal, 1):
            pool.take(principal, 1)
        assert pool.held(principal) == expected
    pool.give("a", 512)
    assert pool.fits("b", 100)


async def test_waiting_principals_are_served_in_turn() -> None:
    pool = Pool(lambda: 100)
    pool.take("a", 100)
    served: list[str] = []

    async def wait(principal: str) -> None:
        await pool.reserve(principal, 40)
        served.append(principal)

    waiting = [asyncio.ensure_future(wait(name)) for name in ("a", "a", "a", "b")]
    await asyncio.sleep(0)
    pool.give("a", 100)
    await asyncio.sleep(0)
    assert served == ["a", "b"]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert pool.total == 80


async def test_others_come_between_the_steps_of_clients_that_sent_ahead() -> None:
    turns = Turns()
    served: list[str] = []
    for _ in range(4):
        turns.later("ahead", lambda: served.append("ahead"))
    for _ in range(6):
        await asyncio.sleep(0)
        served.append("other")
    assert "ahead, ahead" not in ", ".join(served)


async def test_a_principal_with_many_connections_gets_no_more_steps_than_one_with_one() -> None:
    turns = Turns()
    served: list[str] = []
    for number in range(50):
        turns.later("many", lambda number=number: served.append(f"many {number}"))  # type: ignore[misc]
    turns.later("one", lambda: served.append("one"))
    while turns.waiting:  # noqa: ASYNC110  # there is no event to await
        await asyncio.sleep(0.001)
    assert served.index("one") <= 1
    assert served[:1] + served[2:] == [f"many {number}" for number in range(50)]


async def test_clients_that_send_ahead_share_a_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr("mainstem.doors.budget.time", clock)
    turns = Turns()
    first = turns.share_ends()
    assert first > clock.monotonic()
    clock.advance(1000)
    assert turns.share_ends() == first
    await asyncio.sleep(0.001)
    assert turns.share_ends() > clock.monotonic()
    await asyncio.sleep(0.001)
    turns.later("waiting", lambda: None)
    assert turns.share_ends() <= clock.monotonic()  # those that wait come first
    while turns.waiting:  # noqa: ASYNC110  # there is no event to await
        await asyncio.sleep(0.001)


async def test_the_time_of_tasks_counts_for_the_step_that_started_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mainstem.doors.budget.STEPS_AHEAD_PAUSE_S", 3600.0)
    clock = ManualClock()
    monkeypatch.setattr("mainstem.doors.budget.time", clock)
    turns = Turns()
    served: list[int] = []
    tasks: list[asyncio.Task[None]] = []

    async def serve(number: int) -> None:
        served.append(number)
        clock.advance(1000)

    for number in range(3):
        turns.later("ahead", lambda number=number: tasks.append(asyncio.ensure_future(serve(number))))  # type: ignore[misc]
    for _ in range(10):
        await asyncio.sleep(0)
    assert served == [0]
    await asyncio.gather(*tasks)


async def test_an_unused_connection_makes_room_for_a_new_one() -> None:
    seats = Seats(9)
    unused = [_Connection() for _ in range(8)]
    assert all(seats.admit("flooder", connection) for connection in unused)
    assert seats.admit("other", _Connection())
    assert seats.admit("other", _Connection())
    assert [connection.aborted for connection in unused] == [True] + [False] * 7
    assert seats.taken == 9


async def test_a_principal_cannot_have_every_seat() -> None:
    seats = Seats(90)
    admitted = sum(seats.admit("flooder", _Connection(None)) for _ in range(200))
    assert admitted == 80
    assert seats.admit("other", _Connection())


def test_control_frames_beyond_the_rate_are_too_many() -> None:
    rate = FrameRate(1.0, 100.0)
    assert rate.spend(90)
    assert not rate.spend(20)
    rate.earn(50)
    assert rate.spend(20)


def test_clients_count_by_principal_and_anonymous_ones_by_address() -> None:
    assert holder_of(Principal("User:ann"), "10.0.0.1") == holder_of(Principal("User:ann"), "10.0.0.2")
    assert holder_of(Principal("User:ann"), "10.0.0.1") != holder_of(Principal("User:bob"), "10.0.0.1")
    for anonymous in (ANONYMOUS, UNRESTRICTED):
        assert holder_of(anonymous, "10.0.0.1") != holder_of(anonymous, "10.0.0.2")


def test_one_client_does_not_take_all_watch_sessions() -> None:
    sessions = WatchSessions(ManualClock(), 10)
    taken = [sessions.create(b"", {}, WatchOptions(), holder="greedy") for _ in range(10)]
    with pytest.raises(Throttled):
        sessions.create(b"", {}, WatchOptions(), holder="greedy")
    for _ in range(4):
        sessions.create(b"", {}, WatchOptions(), holder="other")
    assert len(sessions) == 10
    assert [sessions.find(session.wid) is None for session in taken] == [True] * 4 + [False] * 6
    sessions.create(b"", {}, WatchOptions(), holder="other")
    with pytest.raises(Throttled):  # they have equal shares
        sessions.create(b"", {}, WatchOptions(), holder="other")


async def test_the_client_that_used_less_of_the_decoding_thread_is_next() -> None:
    decoding = Decoding()
    gate = threading.Event()
    order: list[str] = []

    def spin(name: str) -> None:
        order.append(name)
        sum(range(300_000))

    first = asyncio.ensure_future(decoding.run("flooder", lambda: gate.wait(10)))
    jobs = [
        asyncio.ensure_future(decoding.run(name, lambda name=name: spin(name)))  # type: ignore[misc]
        for name in ("flooder", "flooder", "flooder", "other")
    ]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *jobs)
    assert order.index("other") <= 1
    decoding.close()


async def test_too_many_jobs_of_one_client_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.broker.decoding.DECODES_WAITING_MAX", 1)
    decoding = Decoding()
    gate = threading.Event()
    jobs = [asyncio.ensure_future(decoding.run("flooder", lambda: gate.wait(10))) for _ in range(3)]
    other = asyncio.ensure_future(decoding.run("other", lambda: True))
    await asyncio.sleep(0)
    gate.set()
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert [type(result) for result in results].count(Throttled) == 1
    assert await other
    decoding.close()


async def test_an_idle_text_connection_is_closed(broker: Broker) -> None:
    door = TextDoor(broker, idle_s=0.1)
    address = await door.start(Address("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection(address.host, address.port)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1), 30)
    writer.close()
    await door.stop(1.0)


async def test_a_text_request_must_not_arrive_forever(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.doors.text.connections.TEXT_FRAME_S", 0.3)
    door = TextDoor(broker)
    address = await door.start(Address("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"\xff\0\0\0")
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(_drip(reader, writer), 30)
    writer.close()
    await door.stop(1.0)


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.05)


async def test_a_deeply_nested_cursor_is_refused(broker: Broker) -> None:
    door = HttpDoor(broker)
    address = await door.start(Address("127.0.0.1", 0))
    cursor = base64.b64encode(b'{"after":"a","x":' + b"[" * 5000 + b"]" * 5000 + b"}").decode()
    async with httpx.AsyncClient(base_url=f"http://{address}") as client:
        answer = await client.get("/v0/topics", params={"cursor": cursor})
    assert answer.status_code == 400
    await door.stop(1.0)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
async def test_a_body_of_many_empty_members_costs_little(
    broker: Broker, pack: Callable[[bytes], bytes]
) -> None:
    member = pack(b"")
    body = member * (4_000_000 // len(member))
    encoding = "gzip" if pack is gzip.compress else "zstd"
    door = HttpDoor(broker)
    address = await door.start(Address("127.0.0.1", 0))
    headers = {"content-type": "application/json", "content-encoding": encoding}
    async with httpx.AsyncClient(base_url=f"http://{address}", timeout=60) as client:
        answer = await client.post("/v0/topics/t", content=body, headers=headers)
    assert answer.status_code == 400
    assert broker.decoding.seconds < 2.0
    await door.stop(1.0)


async def test_more_partitions_than_allowed_are_refused(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path / "data", partitions_max=10))
    await broker.create_topic("a", partitions=6)
    with pytest.raises(Throttled):
        await broker.create_topic("b", partitions=5)
    await broker.create_topic("b", partitions=4)
    with pytest.raises(Throttled):
        await broker.add_partitions("a", 7)
    await broker.close()


async def test_a_request_that_is_cancelled_before_it_begins_is_not_served(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []
    serve = App.serve

    async def recorded(app: App, scope: Any, *rest: Any) -> None:
        served.append(scope["path"])
        await serve(app, scope, *rest)

    monkeypatch.setattr(App, "serve", recorded)
    door = HttpDoor(broker)
    address = await door.start(Address("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection(address.host, address.port)
    client = h2.connection.H2Connection()
    client.initiate_connection()
    for stream, path in ((1, "/v0/topics"), (3, "/v0/health")):
        names = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "localhost")]
        client.send_headers(stream, names, end_stream=True)
    client.reset_stream(1)
    writer.write(client.data_to_send())
    answered = False
    while not answered:
        events = client.receive_data(await asyncio.wait_for(reader.read(65_536), 60))
        answered = any(isinstance(event, h2.events.StreamEnded) for event in events)
    assert served == ["/v0/health"]
    writer.close()
    await door.stop(1.0)


async def test_large_compressed_pulsar_messages_are_decoded_on_their_thread_and_stay_in_order(
    broker: Broker,
) -> None:
    door = PulsarDoor(broker)
    address = await door.start(Address("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(simple_frame("connect", client_version="test", protocol_version=21))
    writer.write(
        simple_frame("producer", producer_id=1, request_id=1, topic="persistent://public/default/large")
    )
    frames = FrameBuffer()
    await _receive_until(reader, frames, "producer_success")
    for number, size in enumerate((1, 2 << 20, 1)):
        content = bytes(size)
        metadata = MessageMetadata(
            producer_name=b"test", sequence_id=number, publish_time=1, compression=3, uncompressed_size=size
        ).SerializeToString()
        send = simple_frame("send", producer_id=1, sequence_id=number, num_messages=1)[8:]
        writer.write(payload_frame(send, metadata, zstandard.compress(content)))
    receipts = [await _receive_until(reader, frames, "send_receipt") for _ in range(3)]
    assert [receipt.sequence_id for receipt in receipts] == [0, 1, 2]
    assert [receipt.message_id.entryId for receipt in receipts] == [0, 1, 2]
    assert broker.decoding.seconds > 0
    writer.close()
    await door.stop(1.0)


async def _receive_until(reader: asyncio.StreamReader, frames: FrameBuffer, name: str) -> Any:
    """The next command of this name."""
    while True:
        while (found := frames.next()) is not None:
            command = parse_frame(found).command
            if command.HasField(name):
                return getattr(command, name)
        frames.feed(await asyncio.wait_for(reader.read(65_536), 60))


@pytest.mark.parametrize("name", ["http", "kafka", "pulsar", "s3"])
async def test_a_handshake_counts_as_a_connection(broker: Broker, tmp_path: Path, name: str) -> None:
    made = make_self_signed(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made / "cert.pem", made / "key.pem")
    budget = Budget()
    doors: dict[str, Callable[[], Any]] = {
        "http": lambda: HttpDoor(broker, tls=tls, budget=budget),
        "kafka": lambda: KafkaDoor(broker, security=KafkaSecurity(tls), budget=budget),
        "pulsar": lambda: PulsarDoor(broker, tls=tls, budget=budget),
        "s3": lambda: S3Door(broker, tls=tls, budget=budget),
    }
    door = doors[name]()
    address = await door.start(Address("127.0.0.1", 0))
    _, writer = await asyncio.open_connection(address.host, address.port)
    async with asyncio.timeout(60):
        while not budget.seats.taken:  # noqa: ASYNC110  # there is no event to await
            await asyncio.sleep(0.01)
    writer.close()
    await door.stop(1.0)


async def test_before_connect_only_small_frames_are_taken(broker: Broker) -> None:
    door = PulsarDoor(broker)
    address = await door.start(Address("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(struct.pack(">I", 1 << 20))
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(1), 60) == b""
    writer.close()
    await door.stop(1.0)


async def test_a_text_client_that_sends_far_ahead_is_cut_off(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.doors.budget.RECEIVED_BYTES_MAX", 1 << 20)
    budget = Budget()
    door = TextDoor(broker, budget=budget)
    address = await door.start(Address("127.0.0.1", 0))
    connections = [await asyncio.open_connection(address.host, address.port) for _ in range(40)]
    half = struct.pack("<I", 60_000) + bytes(50_000)
    for _, writer in connections:
        writer.write(half)
    async with asyncio.timeout(60):
        while budget.floods_closed < 20:  # noqa: ASYNC110  # there is no event to await
            await asyncio.sleep(0.01)
    assert budget.received.total <= 1 << 20
    put = b"REGISTER kept"
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(struct.pack("<I", len(put)) + put)
    assert await asyncio.wait_for(reader.readexactly(6), 60) == b"\2\0\0\0OK"
    for _, one in (*connections, (reader, writer)):
        one.close()
    await door.stop(1.0)
    assert budget.received.total == 0
