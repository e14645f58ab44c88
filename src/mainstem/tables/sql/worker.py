"""The child process that runs queries: reads requests from standard input until it ends, one at a time."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

from mainstem.tables.sql.memory import TOO_LARGE, MemoryBound
from mainstem.tables.sql.messages import (
    Answer,
    QueryFailed,
    QueryParsed,
    SqlReply,
    framed,
    read_frame,
    requests,
)

if TYPE_CHECKING:
    from mainstem.tables.sql.engine import SqlEngine


class _NoPandas:
    """Hides pandas, which pyarrow and DuckDB import if they can: that would take half of the start."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints must not end up among the answers
    sys.meta_path.insert(0, _NoPandas())
    from mainstem.tables.sql.engine import SqlEngine

    engine = SqlEngine()
    memory = MemoryBound()
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        answer = _answer(engine, frame)
        last = memory.spent and not _goes_on(answer)
        answers.write(framed(SqlReply(answer, last)))
        answers.flush()
        if last:
            break


def _goes_on(answer: Answer) -> bool:
    """Whether the broker sends another request for the same query: to run it, or to read files that were replaced."""
    return isinstance(answer, QueryParsed) or (isinstance(answer, QueryFailed) and answer.kind == "missing")


def _answer(engine: SqlEngine, frame: bytes) -> Answer:
    try:
        return engine.answer(requests.decode(frame))
    except MemoryError:
        return QueryFailed("too_large", TOO_LARGE)
    except Exception as error:  # noqa: BLE001 - the worker serves the next query
        traceback.print_exc()
        return QueryFailed("failed", f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
