"""Commands of repacking: which objects, clustered by stream, took the place of which objects of the log."""

from __future__ import annotations

import msgspec


class RepackedFile(msgspec.Struct, frozen=True, array_like=True):
    """One object of the store. It holds places from (stream, offset) up to where the next one of its round begins."""

    key: str
    bytes: int
    stream: int
    offset: int


class PublishRepack(msgspec.Struct, frozen=True, array_like=True, tag=140):
    """Serve what the log's objects [first, end) held from these files, in place of what serves it now."""

    first: int  # numbers of the log's own objects
    end: int
    sources: tuple[str, ...]  # keys of the files that were read; none: the log's own objects
    files: tuple[RepackedFile, ...]  # by place; none: nothing of it is needed any more


class ForgetRepacked(msgspec.Struct, frozen=True, array_like=True, tag=141):
    """These files, which no round names any more, are deleted."""

    keys: tuple[str, ...]
