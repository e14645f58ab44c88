"""The client over HTTP, for programs with an event loop: `mainstem.AsyncClient`."""

from __future__ import annotations

from types import TracebackType

from mainstem.client.columns import ColumnCalls
from mainstem.client.erasures import ErasureCalls
from mainstem.client.groups import GroupCalls
from mainstem.client.namespaces import NamespaceCalls
from mainstem.client.queues import QueueCalls
from mainstem.client.rates import RateCalls
from mainstem.client.records import RecordCalls
from mainstem.client.routers import RouterCalls
from mainstem.client.security import SecurityCalls
from mainstem.client.server import ServerCalls
from mainstem.client.sql import SqlCalls
from mainstem.client.topics import TopicCalls
from mainstem.client.transport import TIMEOUT_S, Transport, Verify


class AsyncClient(
    TopicCalls,
    RecordCalls,
    ColumnCalls,
    QueueCalls,
    RouterCalls,
    GroupCalls,
    RateCalls,
    ServerCalls,
    SecurityCalls,
    NamespaceCalls,
    SqlCalls,
    ErasureCalls,
):
    """A server's topics, records, queues, routers and groups. See `mainstem.Client` for examples of the methods;
    here they are awaited.

    `url`: of the server; default MAINSTEM_URL, then http://127.0.0.1:4000. `api_key`: default MAINSTEM_API_KEY.
    `timeout`: the maximum seconds of a call, retries included. The client retries lost connections and busy
    servers (429, 503) unless `retries` is False; every call is safe to retry, writes because of their idempotency
    keys. `verify`: the certificate file of the authority that signed the server's certificate, an `ssl.SSLContext`
    (for a client certificate), or False to trust any server.

    Example:
        async with mainstem.AsyncClient() as client:
            await client.produce("orders", {"id": 1})
            async for record in client.read("orders"):
                print(record.value)
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT_S,
        retries: bool = True,
        verify: Verify = True,
        namespace: str | None = None,
    ) -> None:
        self._transport = Transport(
            url, api_key=api_key, timeout_s=timeout, retries=retries, verify=verify, namespace=namespace
        )

    @property
    def url(self) -> str:
        return self._transport.url

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
