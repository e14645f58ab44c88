"""What `mainstem doctor` finds out about the object store and the etcd of a server."""

from __future__ import annotations

from collections.abc import Iterator

from mainstem import limits
from mainstem.cli.doctor_checks import Finding
from mainstem.config import Config
from mainstem.errors import MainstemError

_STORE, _CLOCK, _ETCD = "store", "store's clock", "etcd"
_ANSWER_S = 5.0


def store(config: Config) -> Iterator[Finding]:
    """Whether the server may write to its store, and its clock is in step with it; whether its etcd answers."""
    import asyncio

    url = config.objects or config.store
    if url:
        yield from asyncio.run(_store(url, ordering=not config.objects and not config.etcd))
    if config.etcd:
        yield asyncio.run(_etcd(tuple(filter(None, config.etcd.split(",")))))


async def _store(url: str, *, ordering: bool) -> list[Finding]:
    from mainstem.broker.store_clock import clock_off_ms
    from mainstem.ports.clock import SystemClock, SystemRandom
    from mainstem.ports.commitlog.bucket.identity import check_conditions
    from mainstem.ports.objectstore.open import open_store, shown
    from mainstem.ports.objectstore.retries import Retries, RetryBudget

    clock, random = SystemClock(), SystemRandom()
    try:
        there = open_store(url, retries=Retries(RetryBudget(attempts=2)))
        if ordering:  # else a store that ignores conditions will do
            await check_conditions(there, f"probe/{random.token(16).hex()}")
        off_ms = await clock_off_ms(there, clock, random)
    except (MainstemError, ImportError) as wrong:
        return [Finding("problem", _STORE, f"{shown(url)}: {wrong}", "")]
    found = [Finding("ok", _STORE, f"{shown(url)} takes objects and gives them back")]
    if abs(off_ms) > limits.CLOCK_SKEW_MS_MAX:
        what = f"this clock is {off_ms} ms off it"
        found.append(Finding("problem", _CLOCK, what, "have this machine follow a time server (NTP)"))
    else:
        found.append(Finding("ok", _CLOCK, "this clock agrees with it"))
    return found


async def _etcd(members: tuple[str, ...]) -> Finding:
    try:
        from mainstem.ports.commitlog.etcd.client import EtcdClient, EtcdOptions

        client = EtcdClient(EtcdOptions(members, retry_s=_ANSWER_S, call_s=_ANSWER_S))
        try:
            await client.range(b"mainstem/id")
        finally:
            await client.close()
    except (MainstemError, ImportError) as wrong:
        return Finding("problem", _ETCD, str(wrong), "see whether it runs, and --etcd")
    return Finding("ok", _ETCD, f"{', '.join(members)} answers")
