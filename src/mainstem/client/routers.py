"""Routers over HTTP: rules that copy the records of one topic to another."""

from __future__ import annotations

from typing import Literal

from mainstem import limits
from mainstem.api import routes
from mainstem.api.base import Match
from mainstem.api.routers import RouterBody, RouterConfigured, RouterDescription, RouterListing
from mainstem.client.transport import Calls


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
    ) -> RouterConfigured:
        """Copy new records of `source` to `dest`, or only those whose key matches `filter`.

        Example:
            client.put_router("orders>audit", "orders", "audit", filter="eu-*")
        """
        body = RouterBody(
            source, dest, preserve_node, preserve_tag, create_dest, filter, allow_cycle, guarantee
        )
        return await self._transport.call(routes.PUT_ROUTER, name, body=body)

    async def router(self, name: str) -> RouterDescription:
        """One router, and how many records it has copied. Raises NotFound.

        Example:
            print(client.router("orders>audit").forwarded_total)
        """
        return await self._transport.call(routes.GET_ROUTER, name)

    async def routers(
        self, prefix: str = "", *, source: str | None = None, dest: str | None = None
    ) -> list[RouterListing]:
        """All routers, or those of a source or a destination.

        Example:
            for router in client.routers(source="orders"): ...
        """
        found: list[RouterListing] = []
        cursor: str | None = None
        while True:
            query = {
                "prefix": prefix or None,
                "source": source,
                "dest": dest,
                "page_size": limits.TOPIC_PAGE_MAX,
                "cursor": cursor,
            }
            page = await self._transport.call(routes.LIST_ROUTERS, query=query)
            found += page.routers
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def delete_router(self, name: str) -> bool:
        """Delete a router. Its copies stay. False: the router did not exist.

        Example:
            client.delete_router("orders>audit")
        """
        return (await self._transport.call(routes.DELETE_ROUTER, name)).deleted
