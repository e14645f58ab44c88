"""Structured logs: one line an event, as key=value text or JSON.

log = events.named("text")
log.info("listening", address="127.0.0.1:9091")
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Literal, TextIO

Format = Literal["text", "json"]

_ROOT = "mainstem"
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class LoggedEvent:
    """The message of a log record: a name, which never changes, and fields.

    The handler of a program that imports Mainstem prints both: `records gone topic=orders partition=0`."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: dict[str, object]) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.name, *_pairs(self.fields)])


class EventLog:
    """Logs named events with fields."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Log an unexpected error with the traceback of the exception being handled."""
        self._logger.error(LoggedEvent(event, fields), exc_info=True)

    def failure(self, event: str, error: BaseException, **fields: object) -> None:
        """Like `exception`, for an exception that is not being handled."""
        self._logger.error(LoggedEvent(event, fields), exc_info=error)

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, LoggedEvent(event, fields))


def named(name: str) -> EventLog:
    """The log of one part of the program."""
    return EventLog(logging.getLogger(f"{_ROOT}.{name}"))


def configure(format: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Send every log line of the process to `stream` (stderr), in one format."""
    out = sys.stderr if stream is None else stream
    as_json = format == "json" or (format == "auto" and not out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(_JsonLine() if as_json else _TextLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    if isinstance(record.msg, LoggedEvent):
        fields |= record.msg.fields
    if record.exc_info and record.exc_info[0] is not None:
        fields["error"] = f"{record.exc_info[0].__name__}: {record.exc_info[1]}"
        fields["traceback"] = logging.Formatter().formatException(record.exc_info)
    return fields


def _name(record: logging.LogRecord) -> str:
    return record.msg.name if isinstance(record.msg, LoggedEvent) else record.getMessage()


def _stamp(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


def _part(record: logging.LogRecord) -> str:
    return record.name.removeprefix(_ROOT + ".")


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head = {
            "ts": _stamp(record),
            "level": record.levelname.lower(),
            "part": _part(record),
            "event": _name(record),
        }
        return json.dumps(head | (_fields(record) | head), default=str, ensure_ascii=False)


class _TextLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head = f"{_stamp(record)} {record.levelname.lower():<7} {_part(record)}: {_escaped(_name(record))}"
        return " ".join([head, *_pairs(_fields(record))])


def _pairs(fields: dict[str, object]) -> list[str]:
    return [f"{key}={_quoted(value)}" for key, value in fields.items()]


def _escaped(text: str) -> str:
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)


def _quoted(value: object) -> str:
    text = str(value)
    plain = text and text.isprintable() and not any(sign in text for sign in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)
