"""Consumer groups over HTTP: list, describe, reset and delete them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

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
from mainstem.client.transport import Calls


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
    ) -> list[OffsetReset]:
        """Reset a group without members to "earliest", "latest", an offset, or a time. Raises GroupNotEmpty.

        Example:
            client.reset_group("billing", "orders", to="earliest", dry_run=True)
        """
        chosen = list(partitions)
        if timestamp_ms is not None:
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

    async def delete_group(self, name: str) -> None:
        """Delete a group without members. Raises GroupNotFound, GroupNotEmpty.

        Example:
            client.delete_group("billing")
        """
        await self._transport.call(routes.DELETE_GROUP, name)
