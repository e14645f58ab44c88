"""Where the log of the brokers stands: one of each kind of place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ports.commitlog.places import SharedPlace
from mainstem.testing.cluster import BrokerProcesses, broker_processes
from mainstem.testing.etcd import EtcdCluster
from mainstem.testing.s3 import S3Server


@pytest.fixture
def folder_brokers(tmp_path: Path) -> Iterator[BrokerProcesses]:
    """Over a bucket that is a folder."""
    with broker_processes(tmp_path, "--store", (tmp_path / "bucket").as_uri()) as brokers:
        yield brokers


@pytest.fixture
async def two_brokers(tmp_path: Path) -> AsyncIterator[list[Broker]]:
    """In this process, over a bucket that is a folder."""
    place = SharedPlace((tmp_path / "bucket").as_uri())
    async with AsyncExitStack() as stack:
        opened = []
        for name in ("one", "two"):
            opened.append(await Broker.open(BrokerOptions(tmp_path / name, place=place)))
            stack.push_async_callback(opened[-1].close)
        yield opened


@pytest.fixture(params=["folder", "s3", "etcd"])
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcesses]:
    """Over each kind of shared log."""
    if request.param == "folder":
        with broker_processes(tmp_path, "--store", (tmp_path / "bucket").as_uri()) as brokers:
            yield brokers
    elif request.param == "s3":
        with S3Server(tmp_path / "s3") as server:
            server.make_bucket("log")
            with broker_processes(tmp_path, "--store", server.url("log")) as brokers:
                yield brokers
    else:
        with EtcdCluster(tmp_path / "etcd") as etcd:
            store = (tmp_path / "bucket").as_uri()
            with broker_processes(tmp_path, "--store", store, "--etcd", etcd.endpoints[0]) as brokers:
                yield brokers
