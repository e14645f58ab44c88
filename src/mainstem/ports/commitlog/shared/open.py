"""Open a log that several brokers share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mainstem.errors import InvalidConfig, InvalidInput, NotFound
from mainstem.ports.commitlog.local.cold import TIERS
from mainstem.ports.commitlog.port import SharedCommitLog
from mainstem.ports.objectstore.open import open_store, redacted_url
from mainstem.ports.objectstore.port import ObjectStore
from mainstem.ports.objectstore.refusals import RefusalsAsOutages

MIGRATION_KEY = "migrating"  # key in the store while a log is being moved there: its id in hex


@dataclass(frozen=True, slots=True)
class SharedPlace:
    store: str  # URL of the object store
    etcd: tuple[str, ...] = ()  # host:port of its members; none: the log is in the store
    linger_ms: int = 0

    @property
    def name(self) -> str:
        """The place without secrets, for messages."""
        return (
            f"etcd://{','.join(self.etcd)} {redacted_url(self.store)}"
            if self.etcd
            else redacted_url(self.store)
        )


async def open_shared(
    place: SharedPlace, *, broker: str | None, cache: Path | None = None
) -> SharedCommitLog:
    """Join the log as `broker`; None: for reading. `cache`: a folder for blocks read from a bucket.

    Raises InvalidConfig if a library is missing, if a migration to the place is incomplete, or if the place holds
    another log."""
    try:
        store = open_store(place.store)
        # A store that refuses at the start is a mistake in the configuration: report it at once.
        await _check_arrived(place, store)
        await _check_no_tiers(place, store)
        store = RefusalsAsOutages(store)
        if not place.etcd:
            from mainstem.ports.commitlog.shared.bucket.log import BucketCommitLog

            return await BucketCommitLog.open(store, cache=cache)
        from mainstem.ports.commitlog.shared.etcd.log import EtcdCommitLog, EtcdOptions, own_store

        log = await EtcdCommitLog.open(EtcdOptions(place.etcd), store, broker=broker)
        try:
            await own_store(store, log.identity)
        except BaseException:
            await log.close()
            raise
        return log
    except ImportError as missing:
        raise InvalidConfig(
            f"a log in {place.name} needs {missing.name!r}: pip install 'mainstem[cluster]'"
        ) from missing


async def _check_arrived(place: SharedPlace, store: ObjectStore) -> None:
    """Without this check, opening a place that holds half of a log would create an empty log there."""
    try:
        await store.get(MIGRATION_KEY)
    except NotFound:
        return
    from mainstem.ports.commitlog.shared.importing import open_importer

    importer = await open_importer(place, store)
    try:
        await importer.check_free()
    except InvalidInput:
        return  # the migration is complete; only its marker is left
    finally:
        await importer.close()
    raise InvalidConfig(
        f"the migration of a log to {place.name} is incomplete: let `mainstem migrate` finish, or run it again"
    )


async def _check_no_tiers(place: SharedPlace, store: ObjectStore) -> None:
    async for found in store.list(f"{TIERS}/"):
        raise InvalidConfig(
            f"{place.name} holds older files of a server's local log ({found.key}): give each log its own prefix"
        )
