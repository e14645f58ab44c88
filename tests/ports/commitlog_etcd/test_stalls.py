"""A member that stalls says nothing at all, which a follower must not take for quiet."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.etcd import EtcdCluster

from ..logs import append_samples
from .logs import Ground, Tail


@pytest.mark.slow
async def test_a_follower_leaves_a_member_that_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.ports.commitlog.shared.etcd.client.ETCD_WATCH_IDLE_S", 0.5)
    with EtcdCluster(tmp_path, members=3) as cluster:
        ground = Ground(cluster, retry_s=60.0, call_s=1.0)
        writer, reader = await ground.open("w"), await ground.open(None)
        async with Tail(reader, 0) as tail:
            await append_samples(writer, 3)
            await tail.reaches(3)
            first = cluster.members[0]  # which both talk to
            first.send(signal.SIGSTOP)
            await append_samples(writer, 3)
            await tail.reaches(6)
            first.send(signal.SIGCONT)
        await ground.close()
