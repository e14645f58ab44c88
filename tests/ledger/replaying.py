"""What a log gives when it is applied again, in whatever way: always the state that it gave at first."""

from __future__ import annotations

import random

from mainstem.ledger.entry import Entry
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.replay import apply_all

from .writer import Writer


def check_replays(writer: Writer) -> None:
    """All at once; with a checkpoint somewhere on the way; and in other entries."""
    log, state = writer.log, writer.ledger.encode()
    rng = random.Random(len(log))
    buffers = [entry.encode() for entry in log]
    replayed = Ledger()
    apply_all(buffers, replayed)
    assert replayed.encode() == state
    assert replayed.digest() == writer.ledger.digest()
    half = rng.randrange(len(log) + 1)
    resumed = Ledger()
    apply_all(buffers[:half], resumed)
    saved = resumed.encode()
    resumed = Ledger.decode(saved)
    assert resumed.encode() == saved
    for buffer in buffers[half:]:
        resumed.apply(Entry.decode(buffer))
    assert resumed.encode() == state
    assert resumed.digest() == writer.ledger.digest()
    assert _split_again(log, rng).digest() == writer.ledger.digest()


def _split_again(log: list[Entry], rng: random.Random) -> Ledger:
    """The same commands in other entries: neighbours joined at random, never across a boot or a time."""
    ledger = Ledger()
    index = 0
    while index < len(log):
        first = log[index]
        parts = list(first.parts)
        index += 1
        while (
            index < len(log)
            and rng.random() < 0.7
            and first.broker_epoch == log[index].broker_epoch != 0
            and first.time_ms == log[index].time_ms
        ):
            parts += log[index].parts
            index += 1
        ledger.apply(Entry(first.broker, first.broker_epoch, first.commit_id, first.time_ms, parts))
    return ledger
