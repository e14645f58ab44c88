"""Keeping a group in the ledger: what was decided is there before any member hears of it.

One command at a time is on its way for a group, and carries all that was decided since the one before: a rebalance of
many members takes few commits, and a heartbeat that changes nothing takes none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mainstem import limits
from mainstem.broker.groups.consumer import ConsumerGroup
from mainstem.errors import GroupOvertaken, MainstemError
from mainstem.ledger.consumer_groups import (
    ChangeConsumerGroup,
    ConsumerGroupKept,
    ForgetConsumerGroup,
    encoded_member,
)
from mainstem.log.log import Log

_log = logging.getLogger("mainstem.groups")


class GroupPersistence:
    """Of one group. Once `lost` is called its group is over: what the ledger says is to be gone on with.

    Where others write to the log, a group that they may have looked after is to be taken over first: from then on
    nothing that they decide counts, and all that they decided before is known."""

    def __init__(
        self, log: Log, group: ConsumerGroup, revision: int, lost: Callable[[GroupPersistence], None]
    ) -> None:
        self.group = group
        self.revision = revision  # of what the ledger holds; 0 = nothing
        self.taken_over = log.sharing is None or not revision
        self._log = log
        self._lost = lost
        self._over = False
        self._unkept_epoch: int | None = None  # of the group, when it took too much room to be kept
        self._writing: asyncio.Task[None] | None = None

    @property
    def writing(self) -> asyncio.Task[None] | None:
        """A command on its way: what the ledger holds may be newer than `revision`."""
        return self._writing

    async def settle(self) -> None:
        """Returns once all that was decided so far is in the ledger. Raises what kept it from getting there;
        GroupOvertaken: another broker decided something first."""
        for _ in range((self._writing is not None) + self._unwritten):
            self.begin()
            if self._over:
                raise GroupOvertaken(self.group.name)
            if self._writing is not None:
                await asyncio.shield(self._writing)

    def begin(self) -> None:
        """Have it written without waiting; after what is on its way already."""
        if self._writing is None and self._unwritten and not self._over:
            self._writing = asyncio.get_running_loop().create_task(self._write(), name="mainstem-group")
            self._writing.add_done_callback(self._written)

    @property
    def _unwritten(self) -> bool:
        if not self.revision and self._unkept_epoch == self.group.epoch:
            return False
        return self.group.has_unsaved_changes or not self.taken_over

    async def _write(self) -> None:
        whole = not self.revision
        change = self.group.take_change(whole=whole)
        command = ChangeConsumerGroup(self.group.name, self.revision, *change)
        size = sum(len(encoded_member(member)) for member in change.members)
        kept = ConsumerGroupKept(0)
        if size <= limits.CONSUMER_GROUP_BYTES_MAX and (change.members or not whole):
            kept = await self._log.propose(command)
        elif not whole:
            kept = await self._log.propose(ForgetConsumerGroup(self.group.name, self.revision))
        self.revision = kept.revision
        self.taken_over = True
        self._unkept_epoch = None
        if not kept.revision and not self.group.empty:
            # Its members will be strangers to the next broker. The next rebalance may make it smaller.
            self._unkept_epoch = change.epoch
            _log.warning("a group takes too much room to be kept", extra={"group": self.group.name})

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self.begin()  # what nobody waits for is written as well
            return
        self._over = True
        if not isinstance(error, MainstemError):
            _log.error("a group was not kept", exc_info=error, extra={"group": self.group.name})
        elif not isinstance(error, GroupOvertaken):
            _log.warning("a group was not kept", extra={"group": self.group.name, "error": str(error)})
        self._lost(self)
