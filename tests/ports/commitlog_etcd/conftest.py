"""A fresh log for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainstem.ports.commitlog.shared.etcd.client import EtcdClient
from tests.support.etcd import EtcdCluster

from .logs import Ground


@pytest.fixture
async def ground(etcd: EtcdCluster) -> AsyncIterator[Ground]:
    one = Ground(etcd)
    yield one
    await one.close()


@pytest.fixture
async def client(ground: Ground) -> AsyncIterator[EtcdClient]:
    """Reaches behind the log's back."""
    one = EtcdClient(ground.options)
    yield one
    await one.close()
