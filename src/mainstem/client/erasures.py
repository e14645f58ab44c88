"""Erasures over HTTP: records that are removed with every byte of them."""

from __future__ import annotations

import base64
from typing import Any

from mainstem.api import routes
from mainstem.api.base import Match
from mainstem.api.erasures import EraseBody, ErasureView
from mainstem.client.transport import Calls


class ErasureCalls(Calls):
    async def erase(
        self,
        topic: str,
        *,
        key: bytes | str | None = None,
        match: Match = None,
        where: tuple[str, Any] | None = None,
    ) -> ErasureView:
        """Erase records by key, by tag as in `delete_records`, or by a field of their JSON value. It runs on in the
        server: see `erasure`.

        Example:
            client.erase("orders", where=("customer.email", "ann@example.com"))
        """
        if isinstance(key, bytes):
            body = EraseBody(key_base64=base64.b64encode(key).decode())
        else:
            body = EraseBody(key, match=match, where=where and [where[0], "Eq", where[1]])
        return await self._transport.call(routes.POST_ERASE, topic, body=body)

    async def erasure(self, id: str) -> ErasureView:
        """How far an erasure is, and its signed report once its phase is "done". Raises NotFound.

        Example:
            print(client.erasure(id).phase)
        """
        return await self._transport.call(routes.GET_ERASURE, id)

    async def erasures(self) -> list[ErasureView]:
        """All erasures that the server knows, the newest first, without their reports.

        Example:
            for one in client.erasures(): print(one.id, one.phase)
        """
        return (await self._transport.call(routes.LIST_ERASURES)).erasures
