"""Rates over HTTP: limits on what users, client ids, groups, namespaces and topics produce and consume."""

from __future__ import annotations

from collections.abc import Mapping

from mainstem.api import routes
from mainstem.api.rates import RateBody, RateDescription, RateKey
from mainstem.client.transport import Calls


class RateCalls(Calls):
    async def rates(self) -> list[RateDescription]:
        """Every rate, and what it throttled on the broker that answers.

        Example:
            for row in client.rates(): print(row.group, row.limits, row.throttled_ms)
        """
        return (await self._transport.call(routes.LIST_RATES)).rates

    async def set_rate(
        self,
        limits: Mapping[RateKey, float | None],
        *,
        user: str | None = None,
        client: str | None = None,
        group: str | None = None,
        namespace: str | None = None,
        topic: str | None = None,
    ) -> RateDescription:
        """Set limits of a user, a client id, a group, a namespace or a topic; None removes one. "" is the default of
        those that have no rate of their own, except of topics.

        Example:
            client.set_rate({"consumer_byte_rate": 1e6}, group="billing")
        """
        body = RateBody(dict(limits), user, client, group, namespace, topic)
        return (await self._transport.call(routes.PUT_RATE, body=body)).rate

    async def remove_rate(
        self,
        *,
        user: str | None = None,
        client: str | None = None,
        group: str | None = None,
        namespace: str | None = None,
        topic: str | None = None,
    ) -> None:
        """Remove every limit of a user, a client id, a group, a namespace or a topic.

        Example:
            client.remove_rate(group="billing")
        """
        named = {"user": user, "client": client, "group": group, "namespace": namespace, "topic": topic}
        query = {name: value for name, value in named.items() if value is not None}
        await self._transport.call(routes.DELETE_RATE, query=query)
