"""Routers over HTTP: standing copies from one topic to another."""

from __future__ import annotations

from typing import Literal

import msgspec

from mainstem import limits
from mainstem.client.calls import Calls
from mainstem.client.responses import RouterDescription
from mainstem.client.transport import quoted

Match = str | list[str] | None


class _RouterPage(msgspec.Struct):
    routers: list[RouterDescription]
    next_cursor: str | None = None


class _RouterDeleted(msgspec.Struct):
    deleted: bool


class RouterCalls(Calls):
    async def put_router(
        self,
        name: str,
        source: str,
        dest: str,
        *,
        filter: Match = None,
        preserve_node: bool = True,
        preserve_tag: bool = True,
        create_dest: bool = True,
        allow_cycle: bool = False,
        guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once",
    ) -> RouterDescription:
        """Copy what is appended to `source` from now on to `dest`, or only what `filter` matches by key.

        Example:
            client.put_router("orders>audit", "orders", "audit", filter="eu-*")
        """
        body = {
            "source": source,
            "dest": dest,
            "filter": filter,
            "preserve_node": preserve_node,
            "preserve_tag": preserve_tag,
            "create_dest": create_dest,
            "allow_cycle": allow_cycle,
            "guarantee": guarantee,
        }
        return await self._transport.ask("PUT", f"/v0/routers/{quoted(name)}", RouterDescription, body)

    async def router(self, name: str) -> RouterDescription:
        """One router, and how many records it has forwarded. Raises NotFound.

        Example:
            print(client.router("orders>audit").forwarded_total)
        """
        return await self._transport.ask("GET", f"/v0/routers/{quoted(name)}", RouterDescription)

    async def routers(
        self, prefix: str = "", *, source: str | None = None, dest: str | None = None
    ) -> list[RouterDescription]:
        """Every router, or those of a source or a destination.

        Example:
            for router in client.routers(source="orders"): ...
        """
        found: list[RouterDescription] = []
        cursor: str | None = None
        while True:
            query = {
                "prefix": prefix or None,
                "source": source,
                "dest": dest,
                "page_size": limits.TOPIC_PAGE_MAX,
                "cursor": cursor,
            }
            page = await self._transport.ask("GET", "/v0/routers", _RouterPage, query=query)
            found += page.routers
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def delete_router(self, name: str) -> bool:
        """Forward nothing more. What was copied stays. False: there was no such router.

        Example:
            client.delete_router("orders>audit")
        """
        return (await self._transport.ask("DELETE", f"/v0/routers/{quoted(name)}", _RouterDeleted)).deleted
