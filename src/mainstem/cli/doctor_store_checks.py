"""The checks of `mainstem doctor` for the object store and etcd."""

from __future__ import annotations

from collections.abc import Iterator

from mainstem import limits
from mainstem.cli.doctor_checks import Finding
from mainstem.config import Config
from mainstem.errors import MainstemError

_STORE, _CLOCK, _ETCD = "store", "store's clock", "etcd"
_ANSWER_S = 5.0


def store(config: Config) -> Iterator[Finding]:
    """Check that the store accepts writes, that the clock matches the store's, and that etcd responds."""
    import asyncio

    url = config.objects or config.store
    if url:
        yield from asyncio.run(_store(url, ordering=not config.objects and not config.etcd))
    if config.etcd:
        yield asyncio.run(_etcd(tuple(filter(None, config.etcd.split(",")))))


async def _store(url: str, *, ordering: bool) -> list[Finding]:
    from mainstem.broker.cluster.store_clock import clock_off_ms
    from mainstem.ports.clock import SystemClock, SystemRandom
    from mainstem.ports.commitlog.shared.bucket.identity import check_conditions
    from mainstem.ports.objectstore.bucket import Retries, RetryBudget
    from mainstem.ports.objectstore.open import open_store, redacted_url

    clock, random = SystemClock(), SystemRandom()
    try:
        there = open_store(url, retries=Retries(RetryBudget(attempts=2)))
        if ordering:  # otherwise the store does not need conditional puts
            await check_conditions(there, f"probe/{random.token(16).hex()}")
        off_ms = await clock_off_ms(there, clock, random)
    except (MainstemError, ImportError) as wrong:
        return [Finding("problem", _STORE, f"{redacted_url(url)}: {wrong}", "")]
    found = [Finding("ok", _STORE, f"{redacted_url(url)} stores and returns objects")]
    if abs(off_ms) > limits.CLOCK_SKEW_MS_MAX:
        what = f"this clock differs from it by {off_ms} ms"
        found.append(Finding("problem", _CLOCK, what, "synchronise this machine with NTP"))
    else:
        found.append(Finding("ok", _CLOCK, "this clock matches it"))
    return found


async def _etcd(members: tuple[str, ...]) -> Finding:
    try:
        from mainstem.ports.commitlog.shared.etcd.client import EtcdClient, EtcdOptions

        client = EtcdClient(EtcdOptions(members, retry_s=_ANSWER_S, call_s=_ANSWER_S))
        try:
            await client.range(b"mainstem/id")
        finally:
            await client.close()
    except (MainstemError, ImportError) as wrong:
        return Finding("problem", _ETCD, str(wrong), "check that it is running, and --etcd")
    return Finding("ok", _ETCD, f"{', '.join(members)} responds")
