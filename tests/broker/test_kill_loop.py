"""A real process on a real disk is killed again and again; everything it acknowledged is there afterwards."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker
from tests.support.appender import TOPICS, options
from tests.support.history import scan

pytestmark = pytest.mark.slow

_ROUNDS, _WHOLE_ROUNDS = 5, 7
_ACKS_MAX, _WHOLE_ACKS_MAX = 8_000, 20_000

Acked = dict[str, dict[int, str]]  # value by offset, by topic


def _run_and_kill(directory: Path, life: int, acks: int) -> list[str]:
    """The output of one run, which ends after about `acks` acknowledgements."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.support.appender", str(directory), str(life)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    with child.stdout as output:
        lines = [line for _, line in zip(range(acks), output, strict=False)]
        child.kill()
        lines += output.readlines()  # what it printed before it was killed
    child.wait()
    assert len(lines) >= acks, "it ended by itself"
    return [line for line in lines if line.endswith("\n")]


def _note(acked: Acked, lines: list[str]) -> None:
    for line in lines:
        topic, offset, value = line.split()
        before = acked[topic].setdefault(int(offset), value)
        assert before == value, f"{topic}[{offset}] was acked for {before} and for {value}"


async def _check(directory: Path, acked: Acked) -> None:
    broker = await Broker.open(options(directory))
    try:
        for topic in TOPICS:
            values, lost = await scan(broker, topic)
            if topic == "ephemeral":
                assert values == {}
                assert broker.partition(topic).end > max(acked[topic], default=-1)
                continue
            assert lost == []
            found = {offset: value.decode() for offset, value in values.items()}
            missing = {offset: value for offset, value in acked[topic].items() if found.get(offset) != value}
            assert missing == {}, f"{topic} lost what was acked"
            acked[topic].update(found)  # read now, so it may never change either
            _check_order(topic, found)
    finally:
        await broker.close()


def _check_order(topic: str, found: dict[int, str]) -> None:
    last: dict[str, int] = {}
    for offset in sorted(found):
        writer, number = found[offset].split(":")
        assert int(number) == last.get(writer, -1) + 1, f"{topic}[{offset}] is out of order or twice"
        last[writer] = int(number)


async def test_a_killed_process_keeps_every_acknowledged_record_in_order_and_once(
    tmp_path: Path, kill_seed: int, chaos: bool
) -> None:
    randomness = random.Random(kill_seed)
    most = _WHOLE_ACKS_MAX if chaos else _ACKS_MAX
    acked: Acked = {topic: {} for topic in TOPICS}
    for life in range(_WHOLE_ROUNDS if chaos else _ROUNDS):
        acks = randomness.choice((1, 50, randomness.randrange(most), most))
        _note(acked, _run_and_kill(tmp_path / "data", life, acks))
        if randomness.random() < 0.6:  # else the next run finds what the kill left
            await _check(tmp_path / "data", acked)
    await _check(tmp_path / "data", acked)
    assert any((tmp_path / "data" / "objects" / "repacked").iterdir())  # much of it was repacked meanwhile
