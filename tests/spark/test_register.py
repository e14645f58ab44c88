"""Registering the data source with a session, without starting Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pyspark.errors import PySparkAttributeError

from mainstem.spark import register
from mainstem.spark.datasource import MainstemDataSource


class Remote:
    """Stands for a session of Spark Connect, which has no context."""

    def __init__(self) -> None:
        self.registered: list[Any] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)

    def __getattr__(self, name: str) -> Any:
        raise PySparkAttributeError(
            errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": name}
        )


def test_a_session_on_a_remote_server_gets_it_too() -> None:
    remote = Remote()
    register(remote)  # type: ignore[arg-type]
    assert remote.registered == [MainstemDataSource]
