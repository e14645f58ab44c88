"""Commands of the lake: who works on what, which files serve which offsets, and what became of those files."""

from __future__ import annotations

import msgspec

from mainstem.api.lake import Part, PartName


class TakeTask(msgspec.Struct, frozen=True, array_like=True, tag=90):
    """Hold a piece of work alone, for a while. Refused as long as someone else holds it."""

    task: str  # as `parts/<stream>`
    holder: str  # for people
    token: int  # 63 random bits that prove who holds it
    lease_ms: int
    reach: int = 0  # of `parts/<stream>`: a swap up to this offset ends the lease; 0 = only a release does
    compacts_before_ms: int = (
        0  # its swaps may leave out records that are older and have a newer of their key
    )


class ReleaseTask(msgspec.Struct, frozen=True, array_like=True, tag=91):
    """Give a piece of work up. Releasing what somebody else holds, or nobody, changes nothing."""

    task: str
    token: int


class ExtendTask(msgspec.Struct, frozen=True, array_like=True, tag=92):
    """Hold it for `lease_ms` from now on."""

    task: str
    token: int
    lease_ms: int


class SwapParts(msgspec.Struct, frozen=True, array_like=True, tag=93):
    """Serve a range of a stream from these parts, in place of the parts named, or of the log."""

    stream: int
    token: int  # that holds `parts/<stream>`
    sources: tuple[PartName, ...]  # none: the range was served by the log
    parts: tuple[Part, ...]


class RetireParts(msgspec.Struct, frozen=True, array_like=True, tag=94):
    """Give up the parts of these streams that lie below the start."""

    streams: tuple[int, ...]


class ForgetObjects(msgspec.Struct, frozen=True, array_like=True, tag=95):
    """These files, which no part names any more, are deleted."""

    keys: tuple[str, ...]
