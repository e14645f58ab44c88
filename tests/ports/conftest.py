"""Servers that the tests of the ports share: one is started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.azure import AzureDouble
from tests.support.azurite import Azurite
from tests.support.etcd import EtcdCluster
from tests.support.gcs import GcsDouble


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """An etcd of one member; every log in it has a prefix of its own."""
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture
def gcs_double(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsDouble]:
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "a-token")
    with GcsDouble() as double:
        yield double


@pytest.fixture
def azure_double() -> Iterator[AzureDouble]:
    with AzureDouble() as double:
        yield double


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Its vendor's emulator of Azure; every test uses a container of its own."""
    with Azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server
