"""The kernels that render records as JSON, compared to the standard library, interpreted and compiled."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mainstem.records import json_kernels
from mainstem.records.compiled import compiled, octets

NESTING = 64

_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return not text.startswith(b"\xef\xbb\xbf")


def _judged(text: bytes) -> bool:
    padded = b"[" + text + b"]"  # so that a read past the span would find something
    scratch = np.zeros(NESTING, np.uint8)
    interpreted = json_kernels.is_json(padded, 1, len(text), bytearray(NESTING))
    assert compiled(json_kernels.is_json)(octets(padded), 1, len(text), scratch) == interpreted
    return bool(interpreted)


@settings(max_examples=400, deadline=None)
@given(value=_values, indent=st.none() | st.integers(0, 3), ascii=st.booleans())
def test_json_is_recognised(value: Any, indent: int | None, ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    assert _judged(text) == _is_json(text)


@settings(max_examples=600, deadline=None)
@given(value=_values, at=st.integers(0, 1000), byte=st.integers(0, 255), how=st.sampled_from("rid"))
def test_damaged_json_is_judged_as_the_standard_library_does(
    value: Any, at: int, byte: int, how: str
) -> None:
    text = bytearray(json.dumps(value).encode())
    at %= len(text)
    if how == "r":
        text[at] = byte
    elif how == "i":
        text.insert(at, byte)
    else:
        del text[at]
    assert _judged(bytes(text)) == _is_json(bytes(text))


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='[]{}:,"\\ 0123456789.eE+-tfnrualsu\n\x00', max_size=12))
@example("-")
@example("01")
@example("1.")
@example("1e")
@example("-0")
@example('"\\u12g4"')
@example('{"a":1,}')
@example("[1,]")
@example("{1:2}")
@example("")
@example(" ")
def test_any_short_text_is_judged_as_the_standard_library_does(text: str) -> None:
    assert _judged(text.encode()) == _is_json(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        b"\xff",
        b'"\xff"',
        b'"\xc3"',
        b'"\xed\xa0\x80"',
        b'"\xf4\x90\x80\x80"',
        b'"\xc0\x80"',
        b'"\xe0\x80\x80"',
    ],
)
def test_what_is_no_utf_8_is_no_json(text: bytes) -> None:
    assert not _judged(text)


def test_nesting_is_bounded() -> None:
    assert _judged(b"[" * NESTING + b"]" * NESTING)
    assert not _judged(b"[" * (NESTING + 1) + b"]" * (NESTING + 1))
    assert not _judged(b"[" * 100_000)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_strings_and_base64_are_whatever_the_bytes(data: bytes) -> None:
    out = np.zeros(6 * len(data) + 8, np.uint8)
    size = compiled(json_kernels.put_string)(out, 0, octets(data), 0, len(data))
    shown = json.loads(out[:size].tobytes())
    try:
        assert shown == data.decode()
    except UnicodeDecodeError:
        assert "\N{REPLACEMENT CHARACTER}" in shown
    size = compiled(json_kernels.put_base64)(out, 0, octets(data), 0, len(data))
    assert out[:size].tobytes() == base64.b64encode(data)


@pytest.mark.parametrize("number", [0, 1, 9, 10, 99, 100, 2**53, 2**62, -1, -10, -(2**62)])
def test_numbers(number: int) -> None:
    out = bytearray(32)
    size = json_kernels.put_number(out, 0, number)
    assert out[:size] == str(number).encode()
