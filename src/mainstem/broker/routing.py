"""What reading and deleting topics asks of the routers that copy between them."""

from __future__ import annotations

from typing import Protocol


class Routing(Protocol):
    async def drain(self, topic: str) -> None:
        """Copy everything that routers have for this topic by now, so that the next read sees it."""
        ...

    async def forget(self, topic: str) -> list[str]:
        """The topic is going, and every router from or to it goes with it: their names, sorted."""
        ...
