"""Topics as tables, over HTTP."""

from __future__ import annotations

from typing import Any

from mainstem.client.calls import Calls
from mainstem.client.transport import topic_path


class TableCalls(Calls):
    async def table(self, topic: str) -> dict[str, Any]:
        """How far a topic's table is: frontier, lag, files, snapshots.

        Example:
            print(client.table("orders")["lag"])
        """
        return await self._transport.ask("GET", topic_path(topic, "table"), dict[str, Any])

    async def put_table(
        self,
        topic: str,
        *,
        enabled: bool = True,
        schema: dict[str, Any] | None = None,
        delta: str | None = None,
    ) -> dict[str, Any]:
        """Turn a topic's table on or off. Turning it on fills it with what the topic holds. `delta` is a path or
        URL at which the records are delivered as a Delta table as well.

        Example:
            client.put_table("orders")
        """
        body: dict[str, Any] = {"enabled": enabled}
        if schema is not None:
            body["schema"] = schema
        if delta is not None:
            body["delta"] = delta
        return await self._transport.ask("PUT", topic_path(topic, "table"), dict[str, Any], body)
