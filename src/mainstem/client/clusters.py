"""What brokers say about the brokers they share a log with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from mainstem.client.calls import Calls
from mainstem.client.transport import Transport
from mainstem.errors import MainstemError, Unreachable

_ANSWER_S = 5.0


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker, as another sees it."""

    broker: int
    epoch: int
    node: str
    zone: str
    addresses: dict[str, str]  # by door
    silent_s: float


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The brokers of one log, as one of them sees them."""

    cluster: str  # what tells this log from every other one
    shared: bool
    broker: int  # who says so
    epoch: int
    position: int  # up to where it knows the log
    refusal: str | None  # why it writes nothing, if so
    upkeep: int  # the broker that seals and checkpoints
    clock_off_ms: int | None
    brokers: list[BrokerView]


class ClusterCalls(Calls):
    async def cluster(self) -> ClusterView:
        """The brokers that share the server's log.

        Example:
            for broker in client.cluster().brokers:
                print(broker.node, broker.addresses)
        """
        return await self._transport.ask("GET", "/v0/cluster", ClusterView)


async def ask_each(seen: ClusterView, api_key: str | None, scheme: str) -> list[ClusterView | MainstemError]:
    """What each broker says itself, by the address it told the others. `scheme`: that of the server's URL."""
    return await asyncio.gather(*(_ask(one, api_key, scheme) for one in seen.brokers))


async def _ask(member: BrokerView, api_key: str | None, scheme: str) -> ClusterView | MainstemError:
    address = member.addresses.get("http")
    if address is None:
        return Unreachable(f"broker {member.broker}", "its HTTP door is off")
    transport = Transport(f"{scheme}://{address}", api_key=api_key, timeout_s=_ANSWER_S, retries=False)
    try:
        return await transport.ask("GET", "/v0/cluster", ClusterView)
    except MainstemError as error:
        return error
    finally:
        await transport.close()
