"""Commands that open the data directory themselves, without a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from mainstem.config import Config
from mainstem.errors import DirectoryUnusable

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker

T = TypeVar("T")


def with_broker(config: Config, work: Callable[[Broker], Awaitable[T]], *, create: bool = False) -> T:
    """Open the log, do the work, close it. Without `create` the directory must be there already."""
    if not create and not config.data_dir.is_dir():
        raise DirectoryUnusable(f"there is no log at {config.data_dir}: name its directory with --data-dir")
    # Here and not above, so that help and usage errors come at once.
    import asyncio

    import uvloop

    from mainstem import events

    events.configure("text", "warning")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_with_broker(config, work))


async def _with_broker(config: Config, work: Callable[[Broker], Awaitable[T]]) -> T:
    from mainstem.broker.broker import Broker
    from mainstem.broker.options import broker_options

    broker = await Broker.open(broker_options(config))
    try:
        return await work(broker)
    finally:
        await broker.close()
