"""Backups of a running broker: its files are linked, so that nothing drops them, and copied from there."""

from __future__ import annotations

import asyncio
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from mainstem.errors import Throttled
from mainstem.log.backup import BackupReport, FileLength, write_backup
from mainstem.log.log import Log
from mainstem.ports.clock import Clock
from mainstem.ports.objectstore.open import open_store

_LINKS = ".backup"
_OBJECTS = "objects"


class Backups:
    def __init__(self, log: Log, directory: Path, clock: Clock) -> None:
        self._log = log
        self._directory = directory
        self._clock = clock
        self._running = False

    async def run(self, url: str) -> BackupReport:
        """Copy the data directory as of now to a store. One at a time.

        Raises InvalidConfig, Throttled, StoreRefused, StoreUnreachable; InvalidInput in a cluster."""
        store = open_store(url)
        if self._running:
            raise Throttled("backups", 1, "a backup is under way: wait until it is done")
        self._running = True
        links = self._directory / _LINKS
        try:
            await asyncio.to_thread(shutil.rmtree, links, True)  # of one that was cut off
            position, files = await self._log.link_files(links)
            # What the log refers to by now was written before: linked after it, nothing is missed.
            files += await asyncio.to_thread(_link_objects, self._directory, links)
            return await write_backup(
                links,
                [FileLength(PurePosixPath(path), length) for path, length in files],
                store,
                log=self._log.identity,
                position=position,
                now=datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC),
            )
        finally:
            self._running = False
            await asyncio.to_thread(shutil.rmtree, links, True)


def _link_objects(directory: Path, links: Path) -> list[tuple[Path, int]]:
    """The files of the local object store, which never change once they are there."""
    linked: list[tuple[Path, int]] = []
    for path in sorted((directory / _OBJECTS).rglob("*")):
        inside = path.relative_to(directory)
        target = links / inside
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except FileNotFoundError:  # half-written, or garbage that went just now
            continue
        linked.append((inside, target.stat().st_size))
    return linked
