"""A real server, and Apache Pulsar's own client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pulsar
import pytest

from mainstem.testing.server import ServerProcess


def connect(server: ServerProcess, **options: object) -> pulsar.Client:
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    return pulsar.Client(f"pulsar://{server.address('pulsar')}", logger=logger, **options)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(Path(tmp_path_factory.mktemp("pulsar")) / "data", "--text", "off") as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[pulsar.Client]:
    opened = connect(server)
    yield opened
    with suppress(pulsar.AlreadyClosed):  # one of its producers, because another one fenced it
        opened.close()
