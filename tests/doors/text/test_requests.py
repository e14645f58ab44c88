"""What each text means, and what may be served together."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem import limits
from mainstem.doors.text.requests import Get, Metrics, Put, Refused, Register, State, next_run, parse


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("REGISTER t", Register("t")),
        ("REGISTER t \r\n", Register("t")),
        ("PUT t hello", Put("t", b"hello")),
        ("PUT t hello big  world", Put("t", b"hello big  world")),
        ("PUT t  led by a space", Put("t", b" led by a space")),
        ("PUT t trailing   \t\u00a0\u2003", Put("t", b"trailing")),
        ("PUT t unit\x1f", Put("t", b"unit\x1f")),
        ("PUT t é✓", Put("t", "é✓".encode())),
        ("PUT t \0", Put("t", b"\0")),
        ("GET t", Get("t")),
        ("STATE t", State("t")),
        ("METRICS", Metrics()),
        ("METRICS\n", Metrics()),
        ("REGISTER", Refused(b"ERR REGISTER requires a topic")),
        ("REGISTER ", Refused(b"ERR REGISTER requires a topic")),
        ("REGISTER  t", Refused(b"ERR REGISTER requires a topic")),
        ("PUT", Refused(b"ERR PUT requires a topic")),
        ("PUT t", Refused(b"ERR PUT requires a payload")),
        ("PUT t ", Refused(b"ERR PUT requires a payload")),
        ("GET", Refused(b"ERR GET requires a topic")),
        ("STATE", Refused(b"ERR STATE requires a topic")),
        ("put t x", Refused(b"ERR unknown command")),
        ("Get t", Refused(b"ERR unknown command")),
        (" GET t", Refused(b"ERR unknown command")),
        ("GET\tt", Refused(b"ERR unknown command")),
        ("   ", Refused(b"ERR unknown command")),
        ("QUIT", Refused(b"ERR unknown command")),
    ],
)
def test_a_text_means_this(text: str, request_: object) -> None:
    assert parse(text.encode()) == request_


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=64))
def test_any_bytes_are_a_request_or_refused(body: bytes) -> None:
    request = parse(body)
    try:
        body.decode()
    except UnicodeDecodeError:
        assert request == Refused(b"ERR invalid utf-8")


def test_puts_are_served_together_whatever_their_topics() -> None:
    puts = [Put("a", b"1"), Put("b", b"2"), Put("a", b"3")]
    waiting = deque([*puts, Get("a"), Put("a", b"4")])
    assert next_run(waiting) == puts
    assert next_run(waiting) == [Get("a")]
    assert next_run(waiting) == [Put("a", b"4")]


def test_gets_are_served_together_if_they_are_of_one_topic_and_not_too_many() -> None:
    waiting = deque([Get("a"), Get("a"), Get("b"), Metrics(), Metrics()])
    assert [len(next_run(waiting)) for _ in range(4)] == [2, 1, 1, 1]
    many = deque([Get("a")] * (limits.TEXT_TAKES_PER_RUN_MAX + 1))
    assert len(next_run(many)) == limits.TEXT_TAKES_PER_RUN_MAX
