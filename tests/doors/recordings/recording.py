"""Recorded exchanges with a door: what a client sends and what it receives, byte for byte, as readable files.

A recording has one `# title` for each step: the bytes that the client sends (`>`), then all bytes that it receives
(`<`) before the next step. `> …` and `< …` are text with the escapes of a Python bytes literal, one line of text each.
`>x …` and `<x …` are hexadecimal, followed by the printable characters between bars. The steps below a `## title` share
a connection.

What differs between two servers is a hole: «any 4» stands for any 4 bytes, «number» for any number. Another name stands
for an id, which the client sends in later steps.

Where bytes of a response change on purpose, or steps are added (`steps.py`), record again and review the difference:

    .venv/bin/python -m tests.doors.recordings
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mainstem.address import Address
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.groups.options import GroupOptions
from mainstem.doors.http.door import HttpDoor
from mainstem.doors.kafka.door import KafkaDoor
from mainstem.doors.pulsar.door import PulsarDoor
from mainstem.doors.s3.door import S3Door
from mainstem.doors.text.door import TextDoor
from tests.support.clock import ManualClock

FOLDER = Path(__file__).parent
BINARY = {"kafka", "pulsar"}  # recorded in hexadecimal
PATIENCE_S = 5.0
QUIET_S = 0.25  # while recording, a response is complete if nothing follows it for this long

_LINE_BYTES = 16
_HOLE = re.compile(rb"\xc2\xab([a-z]+(?: [0-9]+)?)\xc2\xbb")

# What differs between two servers, by door: an expression whose group it is, and the hole for it.
_VARYING = {
    "kafka": ((rb"\0\0\x17([\w-]{22})", "any 22"),),  # the id of the cluster
    "http": (
        (rb'_ms":([0-9.]+)', "number"),
        (rb'content-length: ([0-9]+)\r\n\r\n[^\n]*_ms":', "number"),
        (rb'"wid":"([\w-]+)"', "wid"),
        (rb"/v0/watch/([\w-]+)", "wid"),
        (rb'\x81~\0(.)\{"op":"ack"', "any 1"),  # length of a message with a number
    ),
    "s3": ((rb"x-amz-request-id: ([0-9A-F]{16})", "any 16"), (rb"<RequestId>([0-9A-F]{16})<", "any 16")),
}


@dataclass
class Step:
    """Bytes that a client sends, and all that it receives before it sends more."""

    title: str
    sent: bytes = b""
    received: bytes = b""  # may contain «any 4»
    connects: str = ""  # title of the connection that begins with this step


class _FixedRandom:
    """The same ids in every run."""

    def __init__(self) -> None:
        self._random = random.Random(0)

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)


DOORS: dict[str, Callable[[Broker, ManualClock], Any]] = {
    "kafka": lambda broker, clock: KafkaDoor(broker, clock=clock, advertise=Address("localhost", 9092)),
    "http": lambda broker, _: HttpDoor(broker),
    "text": lambda broker, _: TextDoor(broker),
    "pulsar": lambda broker, _: PulsarDoor(broker, advertise=Address("localhost", 6650)),
    "s3": lambda broker, _: S3Door(broker),
}


@asynccontextmanager
async def opened(door: str, folder: Path) -> AsyncIterator[Address]:
    """The address of a door of a new broker, whose clock stands still."""
    clock = ManualClock()
    options = BrokerOptions(folder / "data", groups=GroupOptions(initial_delay_ms=0))
    broker = await Broker.open(options, clock, _FixedRandom())
    listening = DOORS[door](broker, clock)
    try:
        yield await listening.start(Address("127.0.0.1", 0))
    finally:
        await listening.stop(1.0)
        await broker.close()


async def replayed(address: Address, steps: list[Step]) -> list[Step]:
    """The steps with what the door sends back now; as in the recording where that matches."""
    found: list[Step] = []
    ids: dict[str, bytes] = {}
    for connection in _connections(steps):
        async with _connected(address) as (reader, writer):
            for step in connection:
                writer.write(_with_ids(step.sent, ids))
                expected = _pattern(step.received, ids)
                received = b""
                while not (match := expected.fullmatch(received)):
                    late_s = PATIENCE_S if len(received) < _least(step.received) else QUIET_S
                    data = await _more(reader, late_s)
                    if not data:
                        break
                    received += data
                if match:
                    ids |= match.groupdict()
                found.append(step if match else dataclasses.replace(step, received=received))
            rest = await _rest(reader, writer)
            if rest:
                found.append(Step("after the last step of the connection", received=rest))
    return found


async def recorded(door: str, address: Address, steps: list[Step]) -> list[Step]:
    """The steps with what the door sends back now."""
    found: list[Step] = []
    ids: dict[str, bytes] = {}
    for connection in _connections(steps):
        async with _connected(address) as (reader, writer):
            for step in connection:
                writer.write(_with_ids(step.sent, ids))
                received = b""
                while data := await _more(reader, QUIET_S if received else PATIENCE_S):
                    received += data
                found.append(dataclasses.replace(step, received=_with_holes(door, received, ids)))
    return found


def _pattern(recorded: bytes, ids: dict[str, bytes]) -> re.Pattern[bytes]:
    """What a response has to match. Ids are groups."""
    expression, names = b"", set[str]()
    for index, piece in enumerate(_HOLE.split(recorded)):
        name = piece.decode("latin-1")
        if index % 2 == 0:
            expression += re.escape(piece)
        elif name == "number":
            expression += rb"[0-9.]+"
        elif name.startswith("any "):
            expression += b".{%d}" % int(name[4:])
        elif name in ids:
            expression += re.escape(ids[name])
        else:
            expression += (b"(?P=%b)" if name in names else rb"(?P<%b>[\w-]+)") % piece
            names.add(name)
    return re.compile(expression, re.DOTALL)


def _least(recorded: bytes) -> int:
    """How many bytes a response has at least that matches."""
    pieces = _HOLE.split(recorded)
    holes = [int(name[4:]) if name.startswith(b"any ") else 1 for name in pieces[1::2]]
    return sum(map(len, pieces[::2])) + sum(holes)


def _with_ids(sent: bytes, ids: dict[str, bytes]) -> bytes:
    return _HOLE.sub(lambda hole: ids.get(hole[1].decode(), hole[0]), sent)


def _with_holes(door: str, received: bytes, ids: dict[str, bytes]) -> bytes:
    for expression, name in _VARYING.get(door, ()):
        for match in reversed(list(re.finditer(expression, received, re.DOTALL))):
            ids[name] = match[1]
            start, end = match.span(1)
            received = received[:start] + f"«{name}»".encode() + received[end:]
    return received


def _connections(steps: list[Step]) -> Iterator[list[Step]]:
    starts = [index for index, step in enumerate(steps) if step.connects]
    for start, end in itertools.pairwise([*starts, len(steps)]):
        yield steps[start:end]


@asynccontextmanager
async def _connected(address: Address) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _more(reader: asyncio.StreamReader, late_s: float) -> bytes:
    """What arrives next; nothing if nothing arrives or the door closes the connection."""
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(reader.read(1 << 16), late_s)
    return b""


async def _rest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """What the door still sends after the client has sent everything."""
    found = b""
    with contextlib.suppress(OSError):  # the door closed the connection
        writer.write_eof()
        while data := await _more(reader, PATIENCE_S):
            found += data
    return found


# Files


def load(door: str) -> list[Step]:
    return parse((FOLDER / f"{door}.txt").read_text())


def parse(text: str) -> list[Step]:
    steps: list[Step] = []
    connects = ""
    for line in text.splitlines():
        mark, _, rest = line.partition(" ")
        match mark:
            case "##":
                connects = rest
            case "#":
                steps.append(Step(rest, connects=connects))
                connects = ""
            case ">" | ">x":
                steps[-1].sent += _parsed(mark, rest)
            case "<" | "<x":
                steps[-1].received += _parsed(mark, rest)
            case _ if line:
                raise ValueError(f"not a line of a recording: {line}")
    return steps


def dump(door: str, steps: list[Step]) -> str:
    lines_of = _hexadecimal if door in BINARY else _text
    lines: list[str] = []
    for step in steps:
        if step.connects:
            lines += [f"## {step.connects}", ""]
        lines += [f"# {step.title}", *lines_of(">", step.sent), *lines_of("<", step.received), ""]
    return "\n".join(lines)


def _parsed(mark: str, line: str) -> bytes:
    if mark.endswith("x"):
        digits, _, _ = line.partition("|")
        return digits.strip().encode() if digits.startswith("«") else bytes.fromhex(digits)
    return b"".join(
        part.encode()
        if part.startswith("«")
        else part.encode("latin-1").decode("unicode_escape").encode("latin-1")
        for part in re.split("(«[^»]*»)", line)
    )


def _pieces(content: bytes) -> Iterator[tuple[bytes, bool]]:
    """Bytes, and whether they are the name of a hole."""
    for index, piece in enumerate(_HOLE.split(content)):
        if piece:
            yield (f"«{piece.decode()}»".encode(), True) if index % 2 else (piece, False)


def _hexadecimal(mark: str, content: bytes) -> Iterator[str]:
    for piece, is_hole in _pieces(content):
        if is_hole:
            yield f"{mark}x {piece.decode()}"
            continue
        for at in range(0, len(piece), _LINE_BYTES):
            row = piece[at : at + _LINE_BYTES]
            characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
            yield f"{mark}x {row.hex(' '):{3 * _LINE_BYTES}}|{characters}|"


def _text(mark: str, content: bytes) -> Iterator[str]:
    """One line for each line of the content, however it ends."""
    for line in re.findall(rb"[^\n]*\n|[^\n]+", content):
        yield f"{mark} " + "".join(
            piece.decode() if is_hole else repr(piece)[2:-1].replace("\\'", "'")
            for piece, is_hole in _pieces(line)
        )
