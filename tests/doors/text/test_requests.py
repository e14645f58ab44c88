"""What each text means, and what may be served together."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem import limits
from mainstem.doors.text.requests import (
    GetRequest,
    MetricsRequest,
    PutRequest,
    RegisterRequest,
    RequestRefused,
    StateRequest,
    next_run,
    parse,
)


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("REGISTER t", RegisterRequest("t")),
        ("REGISTER t \r\n", RegisterRequest("t")),
        ("PUT t hello", PutRequest("t", b"hello")),
        ("PUT t hello big  world", PutRequest("t", b"hello big  world")),
        ("PUT t  led by a space", PutRequest("t", b" led by a space")),
        ("PUT t trailing   \t\u00a0\u2003", PutRequest("t", b"trailing")),
        ("PUT t unit\x1f", PutRequest("t", b"unit\x1f")),
        ("PUT t é✓", PutRequest("t", "é✓".encode())),
        ("PUT t \0", PutRequest("t", b"\0")),
        ("GET t", GetRequest("t")),
        ("STATE t", StateRequest("t")),
        ("METRICS", MetricsRequest()),
        ("METRICS\n", MetricsRequest()),
        ("REGISTER", RequestRefused(b"ERR REGISTER requires a topic")),
        ("REGISTER ", RequestRefused(b"ERR REGISTER requires a topic")),
        ("REGISTER  t", RequestRefused(b"ERR REGISTER requires a topic")),
        ("PUT", RequestRefused(b"ERR PUT requires a topic")),
        ("PUT t", RequestRefused(b"ERR PUT requires a payload")),
        ("PUT t ", RequestRefused(b"ERR PUT requires a payload")),
        ("GET", RequestRefused(b"ERR GET requires a topic")),
        ("STATE", RequestRefused(b"ERR STATE requires a topic")),
        ("put t x", RequestRefused(b"ERR unknown command")),
        ("Get t", RequestRefused(b"ERR unknown command")),
        (" GET t", RequestRefused(b"ERR unknown command")),
        ("GET\tt", RequestRefused(b"ERR unknown command")),
        ("   ", RequestRefused(b"ERR unknown command")),
        ("QUIT", RequestRefused(b"ERR unknown command")),
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
        assert request == RequestRefused(b"ERR invalid utf-8")


def test_puts_are_served_together_whatever_their_topics() -> None:
    puts = [PutRequest("a", b"1"), PutRequest("b", b"2"), PutRequest("a", b"3")]
    waiting = deque([*puts, GetRequest("a"), PutRequest("a", b"4")])
    assert next_run(waiting) == puts
    assert next_run(waiting) == [GetRequest("a")]
    assert next_run(waiting) == [PutRequest("a", b"4")]


def test_gets_are_served_together_if_they_are_of_one_topic_and_not_too_many() -> None:
    waiting = deque([GetRequest("a"), GetRequest("a"), GetRequest("b"), MetricsRequest(), MetricsRequest()])
    assert [len(next_run(waiting)) for _ in range(4)] == [2, 1, 1, 1]
    many = deque([GetRequest("a")] * (limits.TEXT_TAKES_PER_RUN_MAX + 1))
    assert len(next_run(many)) == limits.TEXT_TAKES_PER_RUN_MAX
