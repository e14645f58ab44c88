"""Two logs at one prefix of a store would delete each other's files, so the second is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import InvalidConfig
from mainstem.log.objects.tiering import HotRetention
from mainstem.ports.commitlog.shared.etcd.log import own_store
from mainstem.ports.commitlog.shared.open import SharedPlace
from mainstem.ports.objectstore.local import LocalObjectStore
from tests.support.etcd import EtcdCluster
from tests.support.memory_store import MemoryObjectStore


async def _serve(options: BrokerOptions) -> None:
    await (await Broker.open(options)).close()


def _store(folder: Path) -> str:
    return (folder / "bucket").as_uri()


async def test_a_bucket_log_and_an_etcd_log_cannot_share_a_prefix(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd") as etcd:
        store = _store(tmp_path)
        ordered = BrokerOptions(tmp_path / "one", place=SharedPlace(store, etcd.endpoints))
        await _serve(ordered)
        with pytest.raises(InvalidConfig, match="name that etcd with --etcd"):
            await _serve(BrokerOptions(tmp_path / "two", place=SharedPlace(store)))
        await _serve(ordered)
        alone = _store(tmp_path / "other")
        await _serve(BrokerOptions(tmp_path / "three", place=SharedPlace(alone)))
        with pytest.raises(InvalidConfig, match="leave --etcd out"):
            await _serve(BrokerOptions(tmp_path / "four", place=SharedPlace(alone, etcd.endpoints)))


async def test_a_new_etcd_does_not_use_the_payloads_of_an_earlier_one() -> None:
    store = MemoryObjectStore()
    await own_store(store, b"1" * 16)
    await own_store(store, b"1" * 16)
    with pytest.raises(InvalidConfig, match="another etcd"):
        await own_store(store, b"2" * 16)


async def test_a_single_server_and_a_shared_log_cannot_share_a_prefix(tmp_path: Path) -> None:
    shared = BrokerOptions(tmp_path / "one", place=SharedPlace(_store(tmp_path)))
    own = BrokerOptions(tmp_path / "two", hot=HotRetention(), objects=_store(tmp_path))
    await _serve(shared)
    with pytest.raises(InvalidConfig, match="its own prefix"):
        await _serve(own)
    await _serve(shared)


async def test_brokers_create_no_log_where_a_server_keeps_older_files(tmp_path: Path) -> None:
    await LocalObjectStore(tmp_path / "bucket").put("tiers/" + "00" * 16 + "/owner", b"0" * 16)
    with pytest.raises(InvalidConfig, match="give each log its own prefix"):
        await _serve(BrokerOptions(tmp_path / "one", place=SharedPlace(_store(tmp_path))))
