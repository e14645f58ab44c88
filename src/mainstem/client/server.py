"""The server itself over HTTP: health, cluster, pipelines and backups."""

from __future__ import annotations

import asyncio

from mainstem.api import routes
from mainstem.api.server import BackupBody, BackupReport, BrokerView, ClusterView, Health, PipelineStatus
from mainstem.client.transport import Calls, Transport
from mainstem.errors import MainstemError, Unreachable

_ANSWER_S = 5.0
_BACKUP_S = 24 * 3600.0


class ServerCalls(Calls):
    async def health(self) -> Health:
        """The server's version and uptime.

        Example:
            print(client.health().version)
        """
        return await self._transport.call(routes.GET_HEALTH)

    async def cluster(self) -> ClusterView:
        """The brokers that share the server's log.

        Example:
            for broker in client.cluster().brokers:
                print(broker.node, broker.addresses)
        """
        return await self._transport.call(routes.GET_CLUSTER)

    async def pipelines(self) -> list[PipelineStatus]:
        """The pipelines that reported to the server within a day.

        Example:
            for one in client.pipelines(): print(one.pipeline, one.state)
        """
        return (await self._transport.call(routes.LIST_PIPELINES)).pipelines

    async def backup(self, to: str) -> BackupReport:
        """Back up the server's current data to a folder on its machine or to a bucket. It keeps serving.

        Example:
            client.backup("s3://backups/mainstem")
        """
        return await self._transport.call(routes.POST_BACKUP, body=BackupBody(to), wait_s=_BACKUP_S)


async def ask_each(seen: ClusterView, api_key: str | None, scheme: str) -> list[ClusterView | MainstemError]:
    """Query each broker at its advertised address. `scheme` is that of the server's URL."""
    return await asyncio.gather(*(_ask(one, api_key, scheme) for one in seen.brokers))


async def _ask(member: BrokerView, api_key: str | None, scheme: str) -> ClusterView | MainstemError:
    address = member.addresses.get("http")
    if address is None:
        return Unreachable(f"broker {member.broker}", "its HTTP door is off")
    transport = Transport(f"{scheme}://{address}", api_key=api_key, timeout_s=_ANSWER_S, retries=False)
    try:
        return await transport.call(routes.GET_CLUSTER)
    except MainstemError as error:
        return error
    finally:
        await transport.close()
