"""Servers that the tests of the ports share: one is started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mainstem.testing.etcd import EtcdCluster
from mainstem.testing.s3 import S3Server


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """An etcd of one member; every log in it has a prefix of its own."""
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server; every test uses a bucket of its own."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server
