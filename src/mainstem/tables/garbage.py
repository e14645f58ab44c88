"""Delete part files that nothing refers to.

The order is always the same: the ledger first retires a file, then the file is deleted, then the ledger forgets it. A
crash in between leaves work to repeat, never a part without its file.
"""

from __future__ import annotations

import re

from mainstem import events, limits
from mainstem.errors import described
from mainstem.ledger.generations import ForgetObjects, RetireParts
from mainstem.ledger.tasks import ReleaseTask
from mainstem.log.log import Log
from mainstem.ports.clock import Clock
from mainstem.ports.objectstore.port import ObjectStore

LAKE_GARBAGE_GRACE_MS = 600_000  # a replaced file stays this long for current readers
LAKE_LEASE_SLACK_MS = 60_000  # how long after its deadline an abandoned lease is ended

_events = events.named("lake")

PARTS = "parts/"
_TOKEN = re.compile(r"-([0-9a-f]{16})-[^/]*$")  # in the key of a part's file


class LakeGarbage:
    def __init__(self, log: Log, store: ObjectStore, clock: Clock) -> None:
        self._log = log
        self._store = store
        self._clock = clock
        self._retired_ms: dict[str, int] = {}  # when this process first saw a file as garbage

    async def collect(self) -> int:
        """Delete the files that may be deleted now. Returns how many."""
        await self._end_leases()
        await self._retire()
        if self._log.store_copies:
            return 0
        return await self._delete_garbage() + await self._delete_orphans()

    async def _end_leases(self) -> None:
        """Release expired leases: their files are not protected any more, and cannot be published any more."""
        now = self._clock.now_ms()
        for lease in list(self._log.ledger.tasks):
            if lease.deadline_ms + LAKE_LEASE_SLACK_MS <= now:
                await self._log.propose(ReleaseTask(lease.task, lease.token))

    async def _retire(self) -> None:
        streams = self._log.ledger.generations.retirable()
        if streams:
            await self._log.propose(RetireParts(tuple(streams)))

    async def _delete_garbage(self) -> int:
        ledger, now = self._log.ledger, self._clock.now_ms()
        garbage = ledger.generations.garbage()
        seen = {one.key: self._retired_ms.get(one.key, now) for one in garbage}
        self._retired_ms = seen
        due = [
            one.key
            for one in garbage
            if now - seen[one.key] >= LAKE_GARBAGE_GRACE_MS
            and not ledger.tables.protects(one.topic_id, one.position)
        ]
        if due:
            await self._log.sync()  # the ledger's state must survive a crash
        failing: set[str] = set()
        deleted = tried = 0
        while tried < len(due) and not self._log.store_copies:
            keys = []
            for key in due[tried : tried + limits.LAKE_DELETED_AT_ONCE]:
                if self._log.store_copies:  # a copy began meanwhile
                    break
                tried += 1
                if await self._deleted(key, failing):
                    keys.append(key)
            if keys:
                await self._log.propose(ForgetObjects(tuple(keys)))
            deleted += len(keys)
        return deleted

    async def _deleted(self, key: str, failing: set[str]) -> bool:
        """Delete a file. After a failure, skip the other files of its topic and continue with the other topics."""
        folder = key.removeprefix(PARTS).partition("/")[0]
        if folder in failing:
            return False
        try:
            await self._store.delete(key)
        except Exception as error:  # noqa: BLE001 - only this topic fails
            failing.add(folder)
            _events.warning("file not deleted", key=key, error=described(error))
            return False
        return True

    async def _delete_orphans(self) -> int:
        """Delete files of tasks that ended before they published them."""
        failing: set[str] = set()
        deleted = 0
        before_ms = self._clock.now_ms() - limits.LAKE_ORPHAN_GRACE_MS
        async for found in self._store.list(PARTS):
            if self._log.store_copies:
                break
            if found.modified_ms < before_ms and self._is_orphan(found.key):
                deleted += await self._deleted(found.key, failing)
        return deleted

    def _is_orphan(self, key: str) -> bool:
        if self._log.ledger.generations.knows(key):
            return False
        return all(lease.token != lease_token(key) for lease in self._log.ledger.tasks)


def lease_token(key: str) -> int:
    """The token of the lease under which a part's file was written; 0 if the key has none."""
    named = _TOKEN.search(key)
    return int(named[1], 16) if named else 0
