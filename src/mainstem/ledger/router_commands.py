"""Commands of routers. A part of commands.py, whose rules hold here too."""

from __future__ import annotations

from typing import Literal

import msgspec

Guarantee = Literal["at_least_once", "exactly_once"]


class PutRouter(msgspec.Struct, frozen=True, array_like=True, tag=80):
    """Copy what is written to one topic to another, from now on; or change how a router does it."""

    name: str
    source: bytes  # topic ids
    dest: bytes
    preserve_node: bool = True
    preserve_tag: bool = True
    match: tuple[bytes, bool] | None = None  # (tag, whether it is only how the tag begins)
    allow_cycle: bool = False
    guarantee: Guarantee = "at_least_once"
    starts: tuple[int, ...] = ()  # ends by partition of an ephemeral source, which the ledger does not know


class DeleteRouter(msgspec.Struct, frozen=True, array_like=True, tag=81):
    name: str


class Forward(msgspec.Struct, frozen=True, array_like=True, tag=82):
    """Let every router that copies a stream's records as they are go on up to `end`.

    The ledger knows which routers these are, so the command is as short for a thousand as for one."""

    stream: int
    end: int  # what readers of the source can see; beyond it nothing is copied
    time_ms: int  # of the copies


class NoteForwarded(msgspec.Struct, frozen=True, array_like=True, tag=83):
    """The slice right before this command holds copies of records in [start, end) for this leg."""

    leg: int
    start: int
    end: int
    copies: int
    # The append run before it, all of it, is refused unless the leg stands at `start`: another broker may have made
    # these copies. Logs from before this was so have none.
    once: bool = False


class PassOver(msgspec.Struct, frozen=True, array_like=True, tag=84):
    """A leg has nothing (more) to append for [start, end).

    `lost` records of it were gone before they could be copied: as many offsets of the destination stay empty."""

    leg: int
    start: int
    end: int
    lost: int = 0
    copies: int = 0  # already handed to a destination that is in memory only …
    base: int = -1  # … where they begin at this offset


RouterCommand = PutRouter | DeleteRouter | Forward | NoteForwarded | PassOver
