"""One event, one line, for people or for machines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from mainstem import events


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def _logged(stream: io.StringIO, format: str = "auto", level: str = "info") -> events.EventLog:
    events.configure(format, level, stream)
    return events.named("door")


def test_a_terminal_gets_key_and_value() -> None:
    stream = Terminal()
    _logged(stream).info("client gone", address="[::1]:5", reason='said "bye"', empty="", split="a\nb")
    stamp, rest = stream.getvalue().split(" ", 1)
    assert stamp.endswith("Z")
    assert (
        rest == 'info    door: client gone address=[::1]:5 reason="said \\"bye\\"" empty="" split="a\\nb"\n'
    )


def test_anything_else_gets_json() -> None:
    stream = io.StringIO()
    _logged(stream).warning("client gone", bytes=5, level="no field wins over these")
    line = json.loads(stream.getvalue())
    assert list(line) == ["ts", "level", "part", "event", "bytes"]
    assert (line["level"], line["part"], line["event"], line["bytes"]) == (
        "warning",
        "door",
        "client gone",
        5,
    )


def test_the_format_can_be_forced() -> None:
    stream, terminal = io.StringIO(), Terminal()
    _logged(stream, "text").info("x")
    assert stream.getvalue().endswith("door: x\n")
    _logged(terminal, "json").info("x")
    assert json.loads(terminal.getvalue())["event"] == "x"


def test_levels_below_the_one_asked_for_are_left_out() -> None:
    stream = io.StringIO()
    log = _logged(stream, level="warning")
    log.debug("a")
    log.info("b")
    log.error("c")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["c"]


def test_an_exception_is_still_one_line() -> None:
    for stream in (io.StringIO(), Terminal()):
        log = _logged(stream)
        try:
            raise ZeroDivisionError("a bug")
        except ZeroDivisionError:
            log.exception("request failed", request="Get")
        assert stream.getvalue().count("\n") == 1
        assert "ZeroDivisionError: a bug" in stream.getvalue()
        assert "traceback" in stream.getvalue()


def test_lines_of_other_loggers_keep_their_fields() -> None:
    stream = io.StringIO()
    _logged(stream)
    logging.getLogger("mainstem.log").warning("records lost", extra={"stream": 3})
    logging.getLogger("asyncio").error("something %s", "odd")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["part"], first["event"], first["stream"]) == ("log", "records lost", 3)
    assert (second["part"], second["event"]) == ("asyncio", "something odd")


def test_a_handler_of_another_program_prints_the_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "mainstem.consumer"):
        events.named("consumer").warning("records gone", topic="a b", partition=3)
    assert caplog.messages == ['records gone topic="a b" partition=3']
