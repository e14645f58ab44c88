"""A log in local files that several processes of one machine write to: `mainstem serve --workers N`.

One worker is the *writer*: it holds the lock of the directory and has the files open (`LocalCommitLog`). The others
are followers: they send it their commits over a Unix socket, receive every durable commit, and read the same files.
When the writer ends, the kernel releases the lock, and the first worker that gets it recovers the files and is the
writer. No two processes can be writers at once, and what the old one left unfinished is settled before anyone is
answered: a commit is in the files now, or it never will be.

| path of the directory   | what it is                                       |
|-------------------------|--------------------------------------------------|
| workers/writer.sock     | the writer's Unix socket, see messages.py        |
| workers/end             | the end of the log, see shared_memory.py         |

The rest is a local log, and opens as one. Everything that `follow` shows is durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mainstem import events, limits
from mainstem.errors import (
    Closed,
    DirectoryLocked,
    LogDamaged,
    MainstemError,
    StorageError,
    Unavailable,
    invariant,
)
from mainstem.ports.commitlog.local import identity
from mainstem.ports.commitlog.local.checkpoints import LocalCheckpoints
from mainstem.ports.commitlog.local.frames import TAIL_BYTES, aligned
from mainstem.ports.commitlog.local.layout import CHECKPOINTS, SUSPECT, WAL
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.commitlog.local.reader import LogReader
from mainstem.ports.commitlog.local.segments import HEADER_BYTES, Segment, segment_path
from mainstem.ports.commitlog.port import Buffer, Checkpoint, Committed, LogObject, Piece, Placement
from mainstem.ports.commitlog.shared.host.link import Link, WriterGone, checksum
from mainstem.ports.commitlog.shared.host.server import WriterServer, listen
from mainstem.ports.commitlog.shared.host.shared_memory import PublishedEnd
from mainstem.ports.commitlog.shared.host.tail import Tail
from mainstem.ports.commitlog.shared.host.writer import HostWriter
from mainstem.ports.files import OsFiles, make_directories

FOLDER = "workers"
SOCKET = "writer.sock"
END = "end"
ATTACH_RETRY_S = 0.02  # between two attempts to reach the writer or to become it
ATTACH_WAIT_S = 15.0  # a commit or a barrier waits so long for a writer

_log = events.named("workers")


@dataclass(frozen=True, slots=True)
class HostOptions:
    segment_bytes: int = limits.SEGMENT_BYTES
    checkpoints_kept: int = limits.CHECKPOINTS_KEPT
    prepare_ahead: bool = True


class HostCommitLog:
    """One worker's view of the log. Owned by one event loop; reads may come from any thread."""

    def __init__(self, directory: Path, options: HostOptions) -> None:
        self._directory = directory
        self._options = options
        self._files = OsFiles()
        self._checkpoints = LocalCheckpoints(self._files, directory / CHECKPOINTS, options.checkpoints_kept)
        self._follower_id = secrets.token_bytes(16)
        self._identity = b""
        self._tail = Tail(0)
        self._writer: HostWriter | None = None
        self._server: WriterServer | None = None
        self._link: Link | None = None
        self._segments: dict[int, Segment] = {}  # of a follower
        self._reader: LogReader | None = None
        self._published: PublishedEnd | None = None
        self._attached = asyncio.Event()
        self._attaching: asyncio.Task[None] | None = None
        self._failure: MainstemError | None = None
        self._appending: asyncio.Task[Placement] | None = None
        self._synced = 0
        self._closed = False

    @classmethod
    async def open(cls, directory: Path, options: HostOptions | None = None) -> Self:
        """Become the writer, or follow it. Raises as `LocalCommitLog.open`."""
        log = cls(directory, options or HostOptions())
        await asyncio.to_thread(make_directories, log._files, directory / FOLDER)
        try:
            await log._attach()
        except BaseException:
            await log.close()
            raise
        log._synced = log._tail.end
        return log

    # Being the writer, or following it

    @property
    def writes(self) -> bool:
        """Whether this process is the writer."""
        return self._writer is not None

    async def _attach(self) -> None:
        """Reach the writer, or become it, however long that takes: a writer that recovers a large log is slow."""
        while not self._closed:
            try:
                if await self._follow_writer() or await self._become_writer():
                    self._attached.set()
                    return
            except (OSError, WriterGone):
                pass  # the writer is starting or ending
            await asyncio.sleep(ATTACH_RETRY_S)

    async def _follow_writer(self) -> bool:
        path = self._directory / FOLDER / SOCKET
        try:
            link = await Link.connect(path, self._follower_id)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        if link.lost:
            return False
        try:
            self._check_identity(link.identity)
            published = PublishedEnd(self._directory / FOLDER / END, writable=False)
        except BaseException:
            link.close()
            raise
        self._link, self._published = link, published
        known = {one.number: one for one in link.segments}
        for gone in self._segments.keys() - known.keys():
            self._forget_segment(gone)
        self._segments.update(known)
        if self._reader is None:
            log = identity.LogId(self._identity)
            self._reader = LogReader(self._files, self._directory, log, self._segments, self._checkpoints)
        self._tail.restart(link.end)
        link.deliver_to(self)
        return True

    async def _become_writer(self) -> bool:
        options = self._options
        try:
            local = await LocalCommitLog.open(
                self._directory,
                segment_bytes=options.segment_bytes,
                checkpoints_kept=options.checkpoints_kept,
                prepare_ahead=options.prepare_ahead,
            )
        except DirectoryLocked:
            return False
        try:
            self._check_identity(local.identity)
            if local.end < self._tail.end:
                raise LogDamaged(
                    f"{self._directory / WAL} ends at position {local.end}, but position {self._tail.end - 1} was "
                    "durable: restore the files from a backup"
                )
            await local.sync()
            published = PublishedEnd(self._directory / FOLDER / END, writable=True)
            published.set(local.end)
            listening = listen(self._directory / FOLDER / SOCKET)
        except BaseException:
            await local.close()
            raise
        self._tail.restart(local.end)
        self._published = published
        self._writer = HostWriter(local, self)
        self._server = WriterServer(self._writer, listening, self._tail)
        _log.info("writer started", end=local.end)
        return True

    def _check_identity(self, found: bytes) -> None:
        if self._identity and found != self._identity:
            raise StorageError(f"{self._directory} holds another log than before: restart the server")
        self._identity = found

    def on_lost(self, link: Link) -> None:
        """The writer's process ended, or it closed the log."""
        if self._link is not link:
            return
        self._link = None
        self._attached.clear()
        if not self._closed:
            _log.warning("writer lost", end=self._tail.end)
            self._attaching = asyncio.get_running_loop().create_task(self._reattach(), name="mainstem-attach")

    async def _reattach(self) -> None:
        try:
            await self._attach()
        except MainstemError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - without a writer this worker is of no use
            self._fail(StorageError(f"the log could not be taken over: {error!r}"))

    def _fail(self, error: MainstemError) -> None:
        self._failure = error
        self._attached.set()
        self._tail.wake()

    async def _attachment(self) -> None:
        """Wait for a writer. Raises Unavailable, Closed, or why there can be none."""
        self._check_open()
        if not self._attached.is_set():
            try:
                async with asyncio.timeout(ATTACH_WAIT_S):
                    await self._attached.wait()
            except TimeoutError:
                raise Unavailable(
                    f"no worker has been able to write to {self._directory} for {ATTACH_WAIT_S:g} s: look at the log "
                    "of the server"
                ) from None
        self._check_open()

    # Commits of all workers

    def publish(self, commits: list[Committed]) -> None:
        """As the writer: these are durable."""
        self._tail.add(commits)
        if self._published is not None:
            self._published.set(self._tail.end)
        if self._server is not None:
            self._server.publish(commits)

    def on_commits(self, commits: list[Committed]) -> None:
        """As a follower: these are durable."""
        for (position, number, start), entry, payload_bytes, _ in commits:
            segment = self._segments.get(number)
            if segment is None:
                segment = self._segments[number] = Segment(number, position, position, HEADER_BYTES)
            segment.data_end = max(segment.data_end, aligned(start + payload_bytes + len(entry)) + TAIL_BYTES)
            segment.end = max(segment.end, position + 1)
        self._tail.add(commits)

    def _forget_segment(self, number: int) -> None:
        self._segments.pop(number, None)
        if self._reader is not None:
            self._reader.forget(number)

    @property
    def _source(self) -> LogReader | LocalCommitLog:
        if self._writer is not None:
            return self._writer.log
        if self._reader is None:
            raise Closed("the log is closed")
        return self._reader

    # The port

    @property
    def identity(self) -> bytes:
        return self._identity

    @property
    def end(self) -> int:
        """One past the last durable commit of any worker, as far as this one knows."""
        return self._tail.end

    @property
    def synced(self) -> int:
        return self._synced

    @property
    def suspect(self) -> bool:
        return self._files.exists(self._directory / SUSPECT)

    async def clear_suspicion(self) -> None:
        """The first worker to start records it; the others may try to."""
        await asyncio.to_thread(self._clear_suspicion)

    def _clear_suspicion(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(self._directory / SUSPECT)
        self._files.fsync_dir(self._directory)

    @property
    def inline_bytes(self) -> int:
        return sys.maxsize

    async def prepare(self, entry: Buffer, slices: Sequence[Buffer], *, by_reference: bool = False) -> object:
        """The checksum of the payload: the less the writer has to do, the more workers it serves."""
        self._check_open()
        return checksum(slices)

    async def append(
        self, entry: Buffer, slices: Sequence[Buffer], prepared: object | None = None
    ) -> Placement:
        """Write one commit. Returns once it is durable. Raises NoSpace, TooLarge (it was not written), ReadOnly, or
        Unavailable (unknown: it may be in the log).

        A commit whose caller was cancelled is still written."""
        self._check_open()
        while self._appending is not None and not self._appending.done():
            await asyncio.wait([self._appending])
        self._check_open()
        crc = prepared if isinstance(prepared, int) else None
        task = self._appending = asyncio.ensure_future(self._append(bytes(entry), slices, crc))
        task.add_done_callback(_seen)
        return await asyncio.shield(task)

    async def _append(self, entry: bytes, slices: Sequence[Buffer], crc: int | None) -> Placement:
        sent_at: int | None = None  # where the log ended when it was first sent
        while True:
            await self._attachment()
            if sent_at is not None:
                # A writer that ended had it. This one has settled what the other left: it is there now or never.
                found = await self._find(entry, sent_at)
                if found is not None:
                    return found
                if not self._attached.is_set():
                    continue
            sent_at = self._tail.end if sent_at is None else sent_at
            try:
                if self._writer is not None:
                    return await self._writer.submit(entry, slices, crc).done
                if self._link is not None:
                    return await self._link.append(entry, slices, crc)
            except WriterGone:
                pass

    async def _find(self, entry: bytes, position: int) -> Placement | None:
        """The commit with this entry, from a position on. Every entry of a broker differs from all others."""
        async for commits in self.follow(position):
            for commit in commits:
                if commit.entry == entry:
                    return commit.placement
        return None

    async def append_synced(
        self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None
    ) -> tuple[Placement, float | None]:
        return await self.append(entry, slices, crc), None  # what is written is durable

    def writes_now(self, size: int, *, may_block: bool = False) -> bool:
        return False

    def append_now(self, entry: Buffer, slices: Sequence[Buffer], crc: int | None = None) -> Placement:
        raise NotImplementedError("a shared log writes on its event loop")

    def syncs_now(self) -> bool:
        return False

    def sync_now(self, position: int) -> float | None:
        return None  # what is written is durable

    def sync_soon(self, ended: Callable[[int, Exception | None], None]) -> bool:
        return False

    async def sync(self) -> int:
        """What is written is durable already."""
        self._check_open()
        self._synced = self._tail.end
        return self._synced

    async def follow(self, position: int, *, wait: bool = False) -> AsyncIterator[list[Committed]]:
        """The durable commits from `position` on, in chunks: up to the tail, or with `wait` past it."""
        while True:
            if self._failure is not None:
                raise self._failure
            if position < self._tail.first:
                async for chunk in self._stored(position, self._tail.first):
                    position += len(chunk)
                    yield chunk
            elif chunk := self._tail.since(position, limits.FOLLOW_CHUNK_COMMITS):
                position += len(chunk)
                yield chunk
            elif not wait or self._closed:
                return
            else:
                await asyncio.shield(self._tail.arrival())

    async def _stored(self, position: int, end: int) -> AsyncIterator[list[Committed]]:
        """The commits from `position` up to `end`, from the files."""
        async with contextlib.aclosing(self._source.follow(position)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                if position + len(chunk) >= end:
                    yield chunk[: end - position]
                    return
                position += len(chunk)
                yield chunk
        raise LogDamaged(
            f"{self._directory / WAL} lacks the commits from position {position} to {end - 1}: restore the files from "
            "a backup"
        )

    async def tail(self) -> int:
        """One past the last durable commit of any worker, from memory that the workers share. `follow` reaches it."""
        await self._attachment()
        invariant(self._published is not None, "there is an end once there is a writer")
        end = self._tail.end if self._published is None else self._published.get()
        while self._tail.end < end:  # the writer stores it before it sends the commits
            await asyncio.shield(self._tail.arrival())
            self._check_open()
        return self._tail.end

    def shows(self, position: int) -> bool:
        """Whether a worker that has applied the log up to this position shows its readers all that was answered."""
        published = self._published
        return (
            self._attached.is_set() and published is not None and published.get() <= position <= self._synced
        )

    async def rejoin(self) -> int:
        await self._attachment()
        return self._tail.end

    async def refresh(self) -> None:
        """Learn which files were sealed and dropped."""
        await self._attachment()
        link = self._link
        if link is None:
            return
        try:
            listed = {one.number: one for one in await link.objects()}
        except WriterGone:
            return  # the next writer lists them
        if self._link is not link:
            return
        for gone in self._segments.keys() - listed.keys():
            self._forget_segment(gone)
        self._segments.update(listed)

    def read(self, object: int, start: int, length: int) -> bytearray:
        """Payload bytes in a new, writable buffer. Blocks: call it on a thread. Raises FileNotFoundError if dropped."""
        return self._source.read(object, start, length)

    def read_index(self, object: int) -> bytes:
        """The index of a sealed object. Blocks: call it on a thread. Raises LogDamaged if no copy is intact."""
        return self._source.read_index(object)

    def url(self, object: int) -> str | None:
        return segment_path(self._directory / WAL, object).absolute().as_uri()

    async def pieces(self, object: int, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """None: every object is a file."""
        return []

    async def distrust(self, object: int, start: int, length: int) -> None:
        """Do nothing: reads come from the files."""

    def objects(self) -> list[LogObject]:
        """Every object that holds a commit, by number."""
        return self._source.objects()

    async def roll(self) -> None:
        """Finish the current object; the next append starts a new one. No-op on an empty object."""
        await self._attachment()
        with _unavailable():
            if self._writer is not None:
                await self._writer.log.roll()
            elif self._link is not None:
                await self._link.roll()

    async def seal(self, object: int, index: bytes) -> None:
        """Attach the index to a finished object. Repeating it with the same index is a no-op."""
        await self._attachment()
        with _unavailable():
            if self._writer is not None:
                await self._writer.log.seal(object, index)
            elif self._link is not None:
                await self._link.seal(object, index)
        await self.refresh()

    async def drop(self, object: int) -> None:
        """Delete a sealed object. Idempotent."""
        await self._attachment()
        with _unavailable():
            if self._writer is not None:
                await self._writer.log.drop(object)
            elif self._link is not None:
                await self._link.drop(object)
                self._forget_segment(object)

    async def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint durably and delete all but the newest few."""
        self._check_open()
        invariant(checkpoint.position <= self._synced, "a checkpoint is never ahead of what is durable")
        await asyncio.to_thread(self._checkpoints.save, checkpoint)

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest intact checkpoint."""
        return self._checkpoints.load()

    async def checkpoints(self) -> list[int]:
        """Positions of the checkpoints that are kept, whichever worker saved them, rising."""
        return await asyncio.to_thread(self._checkpoints.positions)

    async def collect_orphans(self) -> int:
        return 0  # nothing is stored ahead of its commit

    async def close(self) -> None:
        """Finish the running append, and what other workers have sent if this is the writer. Idempotent."""
        if self._closed:
            return
        if self._appending is not None and self._attached.is_set():
            await asyncio.wait([self._appending])
        self._closed = True
        self._tail.wake()
        self._attached.set()
        if self._attaching is not None:
            self._attaching.cancel()
            await asyncio.gather(self._attaching, return_exceptions=True)
        if self._link is not None:
            self._link.close()
        if self._writer is not None:
            await self._writer.close()
            if self._server is not None:
                await self._server.close()
            await self._writer.log.close()
        if self._reader is not None:
            self._reader.close_files()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the log is closed")
        if self._failure is not None:
            raise self._failure


@contextlib.contextmanager
def _unavailable() -> Iterator[None]:
    """A call that the writer did not answer may be repeated."""
    try:
        yield
    except WriterGone as gone:
        raise Unavailable(f"{gone}: try again") from gone


def _seen(done: asyncio.Future[Placement]) -> None:
    if not done.cancelled():
        done.exception()
