"""Consumer groups over HTTP: join, list, describe, reset and delete them; transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from mainstem.api import routes
from mainstem.api.groups import (
    GroupDescription,
    GroupListing,
    GroupPosition,
    GroupPositionsBody,
    OffsetReset,
    ResetBody,
    ResetTo,
)
from mainstem.client.consumer import AsyncConsumer, ConsumerOptions, OnRebalance
from mainstem.client.responses import Deserializer
from mainstem.client.transactions import AsyncTransaction
from mainstem.client.transport import Calls
from mainstem.errors import InvalidInput


class GroupCalls(Calls):
    async def groups(self) -> list[GroupListing]:
        """Every consumer group that has members or offsets.

        Example:
            for row in client.groups(): print(row.group, row.state)
        """
        return (await self._transport.call(routes.LIST_GROUPS)).groups

    async def group(self, name: str) -> GroupDescription:
        """A group's members, offsets and lag. Raises GroupNotFound.

        Example:
            print(client.group("billing").lag)
        """
        return await self._transport.call(routes.GET_GROUP, name)

    async def reset_group(
        self,
        name: str,
        topic: str,
        *,
        to: str | int = "earliest",
        timestamp_ms: int | None = None,
        partitions: Sequence[int] = (),
        dry_run: bool = False,
        skip: int | None = None,
    ) -> list[OffsetReset]:
        """Reset a group without members, or a subscription, to "earliest", "latest", an offset, or a time. `skip`
        moves it past that many records of each partition instead. "redeliver" moves no subscription: its consumers get
        again what they hold. Raises GroupNotEmpty.

        Example:
            client.reset_group("billing", "orders", to="earliest", dry_run=True)
        """
        chosen = list(partitions)
        if skip is not None:
            body = ResetBody(topic, "skip", None, None, chosen, dry_run, skip)
        elif timestamp_ms is not None:
            body = ResetBody(topic, "time", None, timestamp_ms, chosen, dry_run)
        elif isinstance(to, int):
            body = ResetBody(topic, "offset", to, None, chosen, dry_run)
        else:
            body = ResetBody(topic, cast("ResetTo", to), None, None, chosen, dry_run)
        return (await self._transport.call(routes.RESET_GROUP, name, body=body)).moved

    async def commit_offsets(self, name: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit the offsets of a group without members: partition → next offset.

        Example:
            client.commit_offsets("billing", "orders", {0: 42})
        """
        rows = [GroupPosition(topic, offset, number) for number, offset in offsets.items()]
        await self._transport.call(routes.COMMIT_OFFSETS, name, body=GroupPositionsBody(rows))

    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        auto_commit: bool = True,
        commit_interval_s: float = 5.0,
        start: Literal["earliest", "latest"] = "earliest",
        max_records: int = 500,
        on_assigned: OnRebalance | None = None,
        on_revoked: OnRebalance | None = None,
        instance_id: str | None = None,
        client_id: str = "mainstem-python",
        rebalance_timeout_s: float = 300.0,
        deserializer: Deserializer | None = None,
    ) -> AsyncConsumer:
        """A member of a consumer group: the server divides the partitions of the topics among its members.

        It begins at the offsets that the group committed; where it has none, at the `start`. With `auto_commit`, it
        commits what it delivered before every `commit_interval_s`, before a rebalance and at the end; else call
        `commit`. `on_assigned` and `on_revoked` get lists of (topic, partition): coroutines, or functions, which run in
        a thread. A static member (`instance_id`) keeps its partitions over a restart. A member that does not poll for
        `rebalance_timeout_s` while it must give up partitions loses its membership. A `deserializer` makes
        `record.value` of the stored bytes, when it is read.

        Example:
            with client.consumer("orders", group="billing") as consumer:
                for record in consumer:
                    handle(record.value)
        """
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        if not names:
            raise InvalidInput("name at least one topic to read")
        options = ConsumerOptions(
            auto_commit,
            commit_interval_s,
            start,
            max_records,
            on_assigned,
            on_revoked,
            instance_id,
            client_id,
            rebalance_timeout_s,
            deserializer,
        )
        return AsyncConsumer(self._transport, names, group, options)

    def transaction(self, id: str) -> AsyncTransaction:
        """Writes to several topics and offsets of groups that take effect together, or not at all if the block raises.

        `id` names the program's instance: a later transaction with the same id fences one that still runs.

        Example:
            with client.transaction("billing-1") as transaction:
                transaction.produce("invoices", {"id": 1}, key="customer-7")
                transaction.commit_offsets(consumer)
        """
        return AsyncTransaction(self._transport, id)

    async def delete_group(self, name: str) -> None:
        """Delete a group without members. Raises GroupNotFound, GroupNotEmpty.

        Example:
            client.delete_group("billing")
        """
        await self._transport.call(routes.DELETE_GROUP, name)
