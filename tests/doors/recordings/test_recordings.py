"""Each door answers what it answered when the recording was made, byte for byte."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from .recording import DOORS, FOLDER, dump, load, opened, parse, replayed
from .steps import steps_of


@pytest.mark.parametrize("door", DOORS)
async def test_a_door_answers_as_recorded(door: str, tmp_path: Path) -> None:
    steps = load(door)
    async with opened(door, tmp_path) as address:
        found = await replayed(address, steps)
    assert dump(door, found) == dump(door, steps)


@pytest.mark.parametrize("door", DOORS)
async def test_another_byte_is_found(door: str, tmp_path: Path) -> None:
    first = load(door)[0]
    *before, last = first.received
    async with opened(door, tmp_path) as address:
        changed = dataclasses.replace(first, received=bytes((*before, last ^ 1)))
        assert await replayed(address, [changed]) != [changed]


@pytest.mark.parametrize("door", DOORS)
def test_every_step_is_recorded(door: str) -> None:
    assert [(step.title, step.connects) for step in load(door)] == [
        (step.title, step.connects) for step in steps_of(door)
    ]


@pytest.mark.parametrize("door", DOORS)
def test_a_recording_is_read_as_it_is_written(door: str) -> None:
    text = (FOLDER / f"{door}.txt").read_text()
    assert dump(door, parse(text)) == text
