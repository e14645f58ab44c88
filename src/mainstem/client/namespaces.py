"""Namespaces of topics, and their policies."""

from __future__ import annotations

from mainstem.api import routes
from mainstem.api.namespaces import (
    NamespaceConfigured,
    NamespaceDeletion,
    NamespaceDescriptionBody,
    NamespaceReport,
)
from mainstem.client.transport import Calls


class NamespaceCalls(Calls):
    async def namespaces(self) -> list[NamespaceReport]:
        """Every namespace, with its policies and how much it holds.

        Example:
            for namespace in client.namespaces(): print(namespace.namespace, namespace.topics_total)
        """
        return (await self._transport.call(routes.LIST_NAMESPACES_OF_TOPICS)).namespaces

    async def namespace(self, name: str) -> NamespaceReport:
        """One namespace. Raises NotFound.

        Example:
            client.namespace("acme/shop").topics_total
        """
        return await self._transport.call(routes.GET_NAMESPACE_POLICIES, name)

    async def put_namespace(
        self, name: str, policies: NamespaceDescriptionBody | None = None
    ) -> NamespaceConfigured:
        """Create a namespace, or change some of its policies.

        Example:
            client.put_namespace("acme/shop", NamespaceDescriptionBody(topics_max=100))
        """
        return await self._transport.call(
            routes.PUT_NAMESPACE, name, body=policies or NamespaceDescriptionBody()
        )

    async def delete_namespace(self, name: str, *, force: bool = False) -> NamespaceDeletion:
        """Delete a namespace. `force`: its topics and their records too.

        Example:
            client.delete_namespace("acme/shop", force=True)
        """
        query = {"force": "true"} if force else None
        return await self._transport.call(routes.DELETE_NAMESPACE, name, query=query)
