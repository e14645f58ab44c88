"""Write a commit: upload the large parts, then claim the next position until an attempt is decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import TooLarge
from mainstem.ports.commitlog.port import Buffer, Overtaken, Placement
from mainstem.ports.commitlog.shared.core.backend import CommitBackend, DecodedCommit, H, S, Upload
from mainstem.ports.commitlog.shared.core.fairness import Fairness
from mainstem.ports.commitlog.shared.core.freshness import Freshness
from mainstem.ports.commitlog.shared.core.objects import ObjectTable

_U4_MAX = (1 << 32) - 1


class CommitWriter(Generic[H, S]):
    """One process's writer. Calls of `append` do not overlap."""

    def __init__(self, commits: CommitBackend[H], table: ObjectTable[H, S], freshness: Freshness) -> None:
        self._commits = commits
        self._table = table
        self._freshness = freshness
        self._fairness = Fairness(table.newest)
        self._kept: Upload | None = (
            None  # of an append that lost its race: the next one likely brings the same
        )

    async def append(
        self, entry: Buffer, slices: Sequence[Buffer], prepared: object | None = None
    ) -> Placement:
        """Raises Overtaken, and what `CommitBackend.claim` does."""
        self._commits.check_writable()
        self._freshness.check()
        if not isinstance(prepared, Upload) or self._is_old(prepared):
            prepared = None
        upload = prepared or await self._reuse_or_upload(entry, slices)
        self._freshness.check()  # a large upload takes time
        kept = upload if prepared is None else None  # the caller brings its own again
        while self._fairness.must_wait(upload.id):
            if others := await self._commits.newer(self._table.end):
                raise self._overtaken(others, kept)
        while True:
            if self._table.undelivered:  # learnt while the payload was uploaded, or in a failed attempt
                commits = self._table.undelivered.copy()
                self._table.undelivered.clear()
                self._kept = kept
                raise Overtaken(commits)
            attempt = await self._commits.claim(self._table.next_place(), entry, upload, self._fairness)
            if attempt.head is None and attempt.others:
                raise self._overtaken(attempt.others, kept)
            if attempt.head is not None:
                head = attempt.head
                for one in attempt.others:
                    self._table.learn_commit(one.head)
                self._table.learn_commit(head)
                return Placement(head.position, head.object, head.start)

    async def upload(self, entry: Buffer, slices: Sequence[Buffer], *, by_reference: bool = False) -> Upload:
        """Store what does not go into the commit's record. Calls may overlap. Raises TooLarge or Unavailable."""
        length = sum(map(len, slices))
        if len(entry) > limits.ENTRY_BYTES_MAX or length > _U4_MAX:
            raise TooLarge(f"a commit of {len(entry)} + {length} bytes exceeds the limit of the log")
        inside_max = (
            self._commits.cheap_payload_bytes_max if by_reference else self._commits.payload_bytes_max
        )
        upload = Upload(
            self._commits.new_token(),
            tuple(slices),
            length,
            _checksum(slices),
            payload_apart=length > inside_max,
            entry=bytes(entry) if len(entry) > self._commits.entry_bytes_max else None,
            since=self._freshness.mark(),
        )
        if content := upload.content():
            await self._commits.put_upload(upload.id, content)
        return upload

    async def _reuse_or_upload(self, entry: Buffer, slices: Sequence[Buffer]) -> Upload:
        """The upload of the append before, if that lost its race and this one brings the same bytes."""
        kept, self._kept = self._kept, None
        if kept is not None:
            if kept.matches(entry, slices, _checksum(slices)) and not self._is_old(kept):
                return kept
            if length := kept.stored_bytes:
                await self._commits.delete_upload(kept.id, length)
        return await self.upload(entry, slices)

    def _is_old(self, upload: Upload) -> bool:
        return self._freshness.passed(upload.since, self._commits.upload_s_max)

    def _overtaken(self, others: Sequence[DecodedCommit[H]], kept: Upload | None) -> Overtaken:
        for one in others:
            self._table.learn_commit(one.head)
        self._kept = kept
        return Overtaken([one.commit for one in others])


def _checksum(slices: Sequence[Buffer]) -> int:
    crc = 0
    for part in slices:
        crc = crc32c(part, crc)
    return crc
