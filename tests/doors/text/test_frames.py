"""However the bytes arrive, the frames are the same."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.doors.text.frames import FrameReader, InvalidLength, frame


def _bodies(reader: FrameReader) -> list[bytes]:
    return list(iter(reader.next, None))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=50), max_size=10), st.data())
def test_any_split_of_the_stream_gives_the_same_bodies(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(frame, bodies))
    reader = FrameReader()
    found: list[bytes] = []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        reader.feed(stream[at : at + size])
        if data.draw(st.booleans()):
            found += _bodies(reader)
        at += size
    assert found + _bodies(reader) == bodies


@pytest.mark.parametrize("length", [0, 65_537, 2**31, 2**32 - 1])
def test_a_length_outside_the_limits_is_refused_before_any_body(length: int) -> None:
    reader = FrameReader()
    reader.feed(frame(b"before") + struct.pack("<I", length))
    assert reader.next() == b"before"
    for _ in range(2):
        with pytest.raises(InvalidLength):
            reader.next()


def test_the_largest_frame_passes() -> None:
    reader = FrameReader()
    reader.feed(frame(b"x" * 65_536))
    assert reader.next() == b"x" * 65_536
    assert reader.next() is None
