"""A driver's progress: a live table on a terminal, JSON lines otherwise."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Protocol, TextIO

from mainstem.api.lake import LakeStatus

if TYPE_CHECKING:
    from rich.table import Table


class Progress(Protocol):
    def event(self, name: str, **fields: object) -> None:
        """Show an event."""
        ...

    def status(self, status: LakeStatus) -> None:
        """Show the lag of every topic."""
        ...

    def close(self) -> None: ...


def open_progress(out: TextIO | None = None) -> Progress:
    """Progress for a terminal or a program, by the kind of output."""
    out = sys.stdout if out is None else out
    if out.isatty():
        return TerminalProgress()
    return JsonProgress(out)


class JsonProgress:
    """One JSON object a line. Writes a status only if it changed."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last: object = None

    def event(self, name: str, **fields: object) -> None:
        ts = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._out.write(json.dumps({"ts": ts, "event": name, **fields}, default=str) + "\n")
        self._out.flush()

    def status(self, status: LakeStatus) -> None:
        lag = {topic.topic: topic.lag_records for topic in status.topics}
        if lag != self._last:
            self._last = lag
            self.event("status", lag_records=lag)

    def close(self) -> None:
        self._out.flush()


class TerminalProgress:
    """A table of topics that is redrawn on every change, and lines for errors."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()
        self._status: LakeStatus | None = None
        self._activity = "starting"
        self._records = 0
        self._records_per_s = 0.0

    def event(self, name: str, **fields: object) -> None:
        if name == "published":
            records, seconds = fields["records"], fields["seconds"]
            if isinstance(records, int) and isinstance(seconds, float):
                self._records += records
                self._records_per_s = records / max(seconds, 0.001)
        elif name == "tasks":
            self._activity = f"{fields['count']} tasks: {fields['of']}"
        elif "error" in fields:
            where = f"{fields['topic']}: " if "topic" in fields else ""
            # No markup: errors may contain brackets, as in ranges of offsets.
            self._console.print(
                f"{name} {where}{fields['error']}", style="red", markup=False, highlight=False
            )
        else:
            self._activity = name
        self._draw()

    def status(self, status: LakeStatus) -> None:
        self._status = status
        self._activity = "idle"
        self._draw()

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> None:
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        title = Text(
            f"{self._activity} · {self._records:,} records · {self._records_per_s:,.0f} records/s a worker"
        )
        table = Table(title=title, title_justify="left")
        for column in ("topic", "lag", "parts", "files", "MiB"):
            table.add_column(column, justify="left" if column == "topic" else "right")
        for topic in self._status.topics if self._status else ():
            table.add_row(
                Text(topic.topic),
                f"{topic.lag_records:,}",
                str(sum(partition.parts for partition in topic.partitions)),
                str(sum(partition.files for partition in topic.partitions)),
                f"{topic.file_bytes / (1 << 20):,.1f}",
            )
        return table
