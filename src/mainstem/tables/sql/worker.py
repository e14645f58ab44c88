"""The child process that runs queries: reads requests from standard input until it ends, one at a time."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

from mainstem.tables.sql.messages import Answer, QueryFailed, framed, read_frame, requests

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
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        answers.write(framed(_answer(engine, frame)))
        answers.flush()


def _answer(engine: SqlEngine, frame: bytes) -> Answer:
    try:
        return engine.answer(requests.decode(frame))
    except Exception as error:  # noqa: BLE001 - the worker serves the next query
        traceback.print_exc()
        return QueryFailed("failed", f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
