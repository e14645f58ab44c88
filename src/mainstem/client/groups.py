"""Consumer groups over HTTP: who they are, how far they are, and moving them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mainstem.client.calls import Calls
from mainstem.client.responses import GroupDescription, GroupListing, OffsetReset
from mainstem.client.transport import quoted


class _Groups(msgspec.Struct):
    groups: list[GroupListing]


class _Moves(msgspec.Struct):
    moved: list[OffsetReset]


class _GroupDeleted(msgspec.Struct):
    deleted: bool


class GroupCalls(Calls):
    async def groups(self) -> list[GroupListing]:
        """Every consumer group that has members or offsets.

        Example:
            for row in client.groups(): print(row.group, row.state)
        """
        return (await self._transport.ask("GET", "/v0/groups", _Groups)).groups

    async def group(self, name: str) -> GroupDescription:
        """A group's members, its offsets, and what it has left to read. Raises GroupNotFound.

        Example:
            print(client.group("billing").lag)
        """
        return await self._transport.ask("GET", f"/v0/groups/{quoted(name)}", GroupDescription)

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
        """Put a group without members at "earliest", "latest", an offset, or a time. Raises GroupNotEmpty.

        Example:
            client.reset_group("billing", "orders", to="earliest", dry_run=True)
        """
        body: dict[str, object] = {"topic": topic, "partitions": list(partitions), "dry_run": dry_run}
        if timestamp_ms is not None:
            body |= {"to": "time", "timestamp_ms": timestamp_ms}
        elif isinstance(to, int):
            body |= {"to": "offset", "offset": to}
        else:
            body["to"] = to
        return (await self._transport.ask("POST", f"/v0/groups/{quoted(name)}/reset", _Moves, body)).moved

    async def commit_offsets(self, name: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Store how far a group without members has read: partition → next offset.

        Example:
            client.commit_offsets("billing", "orders", {0: 42})
        """
        rows = [{"topic": topic, "partition": number, "offset": offset} for number, offset in offsets.items()]
        path = f"/v0/groups/{quoted(name)}/offsets"
        await self._transport.ask("POST", path, msgspec.Raw, {"offsets": rows})

    async def delete_group(self, name: str) -> None:
        """Forget a group without members. Raises GroupNotFound, GroupNotEmpty.

        Example:
            client.delete_group("billing")
        """
        await self._transport.ask("DELETE", f"/v0/groups/{quoted(name)}", _GroupDeleted)
