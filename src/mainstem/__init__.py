"""Mainstem: a Kafka-compatible log, queues and Iceberg tables in one Python process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.version import VERSION

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker, BrokerOptions
    from mainstem.broker.read import Record
    from mainstem.client.asynchronous import AsyncClient
    from mainstem.client.embedded import EmbeddedLog, open
    from mainstem.client.options import at_least_once, every_ms
    from mainstem.client.sync import Client
    from mainstem.errors import MainstemError
    from mainstem.ledger.config import TopicConfig

__version__ = VERSION
__all__ = [
    "AsyncClient",
    "Broker",
    "BrokerOptions",
    "Client",
    "EmbeddedLog",
    "MainstemError",
    "Record",
    "TopicConfig",
    "__version__",
    "at_least_once",
    "every_ms",
    "open",
]

_MODULES = {
    "AsyncClient": "mainstem.client.asynchronous",
    "Broker": "mainstem.broker.broker",
    "BrokerOptions": "mainstem.broker.broker",
    "Client": "mainstem.client.sync",
    "EmbeddedLog": "mainstem.client.embedded",
    "MainstemError": "mainstem.errors",
    "Record": "mainstem.broker.broker",
    "TopicConfig": "mainstem.ledger.config",
    "at_least_once": "mainstem.client.options",
    "every_ms": "mainstem.client.options",
    "open": "mainstem.client.embedded",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `import mainstem` and `mainstem --help` stay fast.
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'mainstem' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not missing.name.startswith("mainstem."):
            raise
        raise ImportError(f"mainstem-client has no mainstem.{name}: pip install mainstem") from None
