"""Routers over HTTP: standing copies from one topic to another."""

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
        """Copy what is appended to `source` from now on to `dest`, or only what `filter` matches by key.

        Example:
            client.put_router("orders>audit", "orders", "audit", filter="eu-*")
        """
        body = RouterBody(
            source, dest, preserve_node, preserve_tag, create_dest, filter, allow_cycle, guarantee
        )
        return await self._transport.call(routes.PUT_ROUTER, name, body=body)

    async def router(self, name: str) -> RouterDescription:
        """One router, and how many records it has forwarded. Raises NotFound.

        Example:
            print(client.router("orders>audit").forwarded_total)
        """
        return await self._transport.call(routes.GET_ROUTER, name)

    async def routers(
        self, prefix: str = "", *, source: str | None = None, dest: str | None = None
    ) -> list[RouterListing]:
        """Every router, or those of a source or a destination.

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
        """Forward nothing more. What was copied stays. False: there was no such router.

        Example:
            client.delete_router("orders>audit")
        """
        return (await self._transport.call(routes.DELETE_ROUTER, name)).deleted
