"""Backups of a running broker, which hard-links its files and copies the links so that they are not deleted; and of a
data directory that no server has open."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from mainstem.api.server import BackupReport
from mainstem.broker.buckets.blobs import BLOBS
from mainstem.errors import DirectoryUnusable, ObjectMissing, Throttled
from mainstem.ledger.erasures import NoteBackup
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.repacked_objects import REPACKED
from mainstem.ledger.tiers import Tier
from mainstem.log.log import Log
from mainstem.log.objects.backup import Progress, write_backup
from mainstem.log.objects.backup_contents import (
    OBJECTS,
    BackupContent,
    LocalFile,
    cold_contents,
    file_contents,
    files_of,
    stored_contents,
)
from mainstem.log.recovery import load_ledger, replay
from mainstem.ports.clock import Clock
from mainstem.ports.commitlog.local.identity import LogId, read_format
from mainstem.ports.commitlog.local.layout import WAL
from mainstem.ports.commitlog.local.locking import block_owner
from mainstem.ports.commitlog.local.reader import open_reader
from mainstem.ports.commitlog.local.segments import file_name
from mainstem.ports.files import OsFiles
from mainstem.ports.objectstore.open import open_store, public_url
from mainstem.ports.objectstore.port import ObjectStore
from mainstem.tables.catalog import FOLDER
from mainstem.tables.garbage import PARTS

LINKS = ".backup"

Showing = Callable[[int], AbstractContextManager[Progress]]
"""Shows progress, given the total number of bytes."""


class Backups:
    def __init__(self, log: Log, directory: Path, clock: Clock) -> None:
        self._log = log
        self._directory = directory
        self._clock = clock
        self._running = False

    async def run(self, url: str) -> BackupReport:
        """Copy the log's current contents to a store. One backup at a time.

        Raises InvalidConfig, Throttled, ObjectMissing, StoreRefused, StoreUnreachable; InvalidInput in a cluster."""
        store = open_store(url)
        if self._running:
            raise Throttled("backups", 1, "a backup is running: wait until it ends")
        self._running = True
        links = self._directory / LINKS
        try:
            await asyncio.to_thread(shutil.rmtree, links, True)  # of an interrupted backup
            with self._log.store_copies.one():
                position, contents = await self._contents(links)
                await self._log.propose(NoteBackup(public_url(url)))  # reports of erasures name it
                return await write_backup(
                    contents,
                    store,
                    log=self._log.identity,
                    position=position,
                    now=datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC),
                )
        finally:
            self._running = False
            await asyncio.to_thread(shutil.rmtree, links, True)

    async def _contents(self, links: Path) -> tuple[int, list[BackupContent]]:
        log, ledger = LogId(self._log.identity), self._log.ledger
        position, linked = await self._log.link_files(links)
        # The ledger is at `position` until the next await: the backup needs the files that it names now.
        files = [LocalFile(PurePosixPath(path), length) for path, length in linked]
        contents = file_contents(links, files, log, ledger.tiers)
        needed = _NeededFiles(ledger, files)
        # Files are written before the log refers to them: linking them after the log's files misses none.
        objects = await asyncio.to_thread(_link_objects, self._directory, links)
        contents += file_contents(links, objects, log, ledger.tiers)
        if self._log.tiering is not None and self._log.objects is not None:
            contents += await _stored_elsewhere(self._log.objects, log, needed, [*files, *objects])
        return position, contents


class _NeededFiles:
    """Files beside those of the log on disk that the present state of a ledger needs."""

    def __init__(self, ledger: Ledger, files: Sequence[LocalFile]) -> None:
        self.referenced = _referenced_files(ledger)
        self.cold = _cold(ledger, files)


async def _stored_elsewhere(
    store: ObjectStore, log: LogId, needed: _NeededFiles, here: Sequence[LocalFile]
) -> list[BackupContent]:
    """The files that are only in the object store. Raises ObjectMissing if it lacks one that the log needs."""
    paths = {file.path for file in here}
    # Tables first: the sweep deletes old files of tables without regard to backups.
    found = await stored_contents(store, f"{FOLDER}/", may_go=True)
    for prefix in (REPACKED, PARTS, BLOBS):
        found += await stored_contents(store, prefix)
    if lost := needed.referenced - {content.path for content in found} - paths:
        raise ObjectMissing(
            f"the object store has lost {min(lost)} ({len(lost)} in total), so the backup would be incomplete"
        )
    found += cold_contents(store, log, needed.cold)
    return [content for content in found if content.path not in paths]


def _referenced_files(ledger: Ledger) -> set[PurePosixPath]:
    """Files of the object store that readers use."""
    keys = {file.key for one in ledger.repacked.rounds for file in one.files}
    generations = ledger.generations
    for stream in generations.streams():
        keys |= {file.key for part in generations.parts(stream) for file in part.files}
    return {PurePosixPath(OBJECTS, key) for key in keys}


def _cold(ledger: Ledger, here: Sequence[LocalFile]) -> list[Tier]:
    """Files of the log that are in the object store and not on disk."""
    names = {file.path.name for file in here if file.path.parts[0] == WAL}
    tiers = [tier for tier in ledger.tiers if ledger.tiers.stored(tier.object) == tier]
    return [tier for tier in tiers if file_name(tier.object) not in names]


def _link_objects(directory: Path, links: Path) -> list[LocalFile]:
    """Link the files of the local object store, which never change."""
    linked: list[LocalFile] = []
    for path in sorted((directory / OBJECTS).rglob("*")):
        inside = path.relative_to(directory)
        target = links / inside
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except FileNotFoundError:  # a temporary file, or garbage deleted just now
            continue
        linked.append(LocalFile(PurePosixPath(inside), target.stat().st_size))
    return linked


async def back_up_directory(directory: Path, to: str, *, objects: str, showing: Showing) -> BackupReport:
    """Copy a data directory that no server has open. `objects`: the store with older files of its log.

    Raises DirectoryUnusable, ObjectMissing, InvalidConfig, LogDamaged, StoreRefused, StoreUnreachable."""
    with block_owner(directory) as still:
        if not still:
            raise DirectoryUnusable(
                f"a server has {directory} open: back it up through the server, with --url"
            )
        log = read_format(OsFiles(), directory)
        if log is None:
            raise DirectoryUnusable(f"no log at {directory}: set --data-dir to its directory")
        files, ledger = await asyncio.to_thread(files_of, directory), await _state(directory)
        contents = file_contents(directory, files, log, ledger.tiers)
        needed = _NeededFiles(ledger, files)
        if objects:
            contents += await _stored_elsewhere(open_store(objects), log, needed, files)
        elif needed.cold or needed.referenced - {file.path for file in files}:
            raise DirectoryUnusable(
                "older files of the log are only in an object store: name it with --objects"
            )
        with showing(sum(content.bytes for content in contents)) as progress:
            return await write_backup(
                contents,
                open_store(to),
                log=log.whole,
                position=-1,
                now=datetime.now(UTC),
                progress=progress,
            )


async def _state(directory: Path) -> Ledger:
    reader = open_reader(directory, files=OsFiles())
    try:
        ledger = await asyncio.to_thread(load_ledger, reader)
        async for _ in replay(reader, ledger):
            pass
        return ledger
    finally:
        await reader.close()
