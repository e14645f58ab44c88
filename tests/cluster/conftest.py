"""The shared log of the brokers: one of each kind."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker
from tests.support.cluster import BrokerProcesses, broker_processes, brokers_here
from tests.support.etcd import EtcdCluster
from tests.support.s3 import S3Server


@pytest.fixture
def folder_brokers(tmp_path: Path) -> Iterator[BrokerProcesses]:
    """Over a bucket that is a folder."""
    with broker_processes(tmp_path, "--store", (tmp_path / "bucket").as_uri()) as brokers:
        yield brokers


@pytest.fixture
async def two_brokers(tmp_path: Path) -> AsyncIterator[list[Broker]]:
    """In this process, over a bucket that is a folder."""
    async with brokers_here(tmp_path, "one", "two") as brokers:
        yield brokers


@pytest.fixture(params=["folder", "s3", "etcd"])
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcesses]:
    """Over each kind of shared log."""
    if request.param == "folder":
        with broker_processes(tmp_path, "--store", (tmp_path / "bucket").as_uri()) as brokers:
            yield brokers
    elif request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        bucket = f"log-{uuid.uuid4()}"
        server.make_bucket(bucket)
        with broker_processes(tmp_path, "--store", server.url(bucket)) as brokers:
            yield brokers
    else:
        with EtcdCluster(tmp_path / "etcd") as etcd:
            store = (tmp_path / "bucket").as_uri()
            with broker_processes(tmp_path, "--store", store, "--etcd", etcd.endpoints[0]) as brokers:
                yield brokers
