"""Opening a broker's log: in a directory of its own, in a bucket, or in etcd with its payloads in a bucket."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem import events
from mainstem.errors import InvalidConfig
from mainstem.log.log import Log, LogOptions
from mainstem.log.objects.backup_contents import OBJECTS
from mainstem.log.objects.checkpoints import ChildCheckpointer, SharedChildCheckpointer
from mainstem.log.objects.tiering import (
    HotRetention,
    absent_repacked,
    absent_tiers,
    check_alone,
    check_owned,
    missing_notes,
)
from mainstem.ports.clock import Clock, Random
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.commitlog.local.tiered import TieredCommitLog
from mainstem.ports.commitlog.shared.host.log import HostCommitLog, HostOptions
from mainstem.ports.commitlog.shared.open import SharedPlace, open_shared
from mainstem.ports.files import Lock, OsFiles, make_directories
from mainstem.ports.host import boot_id
from mainstem.ports.objectstore.cache import CachedObjectStore
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore
from mainstem.ports.objectstore.refusals import RefusalsAsOutages

if TYPE_CHECKING:
    from mainstem.broker.broker import BrokerOptions

LINGER_MS_BUCKET = 100  # how long records wait for others before they are put into a bucket together


_MOVED = ".objects-moved"
_log = events.named("tiers")


async def move_objects(directory: Path, store: ObjectStore) -> None:
    """Move the objects of a directory to the configured object store. The caller has locked the directory.

    The folder stays until the store holds all of it durably, so an interrupted move starts over. Raises StoreRefused,
    StoreUnreachable."""
    local, moved = directory / OBJECTS, directory / _MOVED
    await asyncio.to_thread(shutil.rmtree, moved, True)  # left by an interrupted move
    folder = LocalObjectStore(local)
    found = [one async for one in folder.list()]
    if not found:
        return
    total = sum(one.size_bytes for one in found)
    _log.info("moving objects to the store", files=len(found), bytes=total)
    for one in found:
        await store.put(one.key, await folder.get(one.key))
    await asyncio.to_thread(local.rename, moved)
    await asyncio.to_thread(OsFiles().fsync_dir, directory)
    await asyncio.to_thread(shutil.rmtree, moved, True)
    _log.info("moved objects to the store", files=len(found), bytes=total)


_MEMORY = "broker.json"  # the number that a shared log gave to the broker of this directory
_LOCK = "BROKER-LOCK"
_CACHE = "cache"
_TOKEN_BYTES = 8
_log = events.named("opening")


async def open_log(options: BrokerOptions, clock: Clock, random: Random) -> tuple[Log, Lock | None]:
    """Open the log, or join a shared one. Also returns the lock of the directory of a broker that shares its log."""
    if options.workers:
        return await _join_workers(options, clock, random), None
    if options.place is None and options.hot is not None:
        return await _open_tiered(options, options.hot, clock, random), None
    if options.place is None:
        return await _open_own(options, clock), None
    return await _join(options, options.place, clock, random)


async def _open_own(options: BrokerOptions, clock: Clock) -> Log:
    port = await LocalCommitLog.open(options.data_dir, segment_bytes=options.segment_bytes)
    store = open_store(options.objects_url)
    log = await _opened(port, options, clock, store)
    elsewhere = len(absent_tiers(port, log.ledger)) or await absent_repacked(store, log.ledger)
    if elsewhere:
        await log.close()
        raise InvalidConfig(
            f"{elsewhere} older files of the log in {options.data_dir} are only in an object store: "
            "name it with --objects"
        )
    return log


async def _open_tiered(options: BrokerOptions, hot: HotRetention, clock: Clock, random: Random) -> Log:
    """A local log whose older objects are in the object store."""
    store = open_store(options.objects_url)
    while True:
        port = await TieredCommitLog.open_tiered(
            options.data_dir,
            CachedObjectStore(store, options.data_dir / _CACHE),
            segment_bytes=options.segment_bytes,
        )
        try:
            await check_alone(port, store)
            await move_objects(options.data_dir, store)
        except BaseException:
            await port.close()
            raise
        lasting = RefusalsAsOutages(store)
        log = await _opened(port, options, clock, lasting)
        try:
            await check_owned(port, store, log.ledger)
            if not await missing_notes(port, log.ledger):
                await log.find_missing()
                log.tier(lasting, clock, random, hot)
                return log
        except BaseException:
            await log.close()
            raise
        await log.close()  # it was recovered without the objects whose notes exist now


async def _opened(port: LocalCommitLog, options: BrokerOptions, clock: Clock, store: ObjectStore) -> Log:
    """The log on a local commit log, which is closed on failure."""
    try:
        return await Log.open(
            port,
            clock,
            replace(_log_options(options), boot_id=boot_id()),
            ChildCheckpointer(options.data_dir),
            store,
        )
    except BaseException:
        await port.close()
        raise


async def _join(
    options: BrokerOptions, place: SharedPlace, clock: Clock, random: Random
) -> tuple[Log, Lock | None]:
    _check_durability(options)
    files = OsFiles()
    make_directories(files, options.data_dir)
    lock = files.lock(options.data_dir / _LOCK)
    try:
        memory = _BrokerNumberFile.load(options.data_dir, random)
        number = options.broker_id
        if number is None and memory.log == place.name:
            number = memory.broker
        known_as = memory.token if options.broker_id is None else str(number)
        port = await open_shared(place, broker=known_as, cache=options.data_dir / _CACHE)
        try:
            log = await Log.open(
                port,
                clock,
                replace(
                    _log_options(options),
                    broker=number,
                    # Unique to this process, so that it notices when another process takes its number.
                    boot_id=f"{boot_id()}/{random.token(_TOKEN_BYTES).hex()}",
                    shared=True,
                    linger_ms=place.linger_ms,
                ),
                objects=RefusalsAsOutages(open_store(place.store)),
                save_at=SharedChildCheckpointer(place).save_at,
            )
        except BaseException:
            await port.close()
            raise
    except BaseException:
        lock.release()
        raise
    replace(memory, broker=log.broker, log=place.name).save(options.data_dir)
    return log, lock


async def _join_workers(options: BrokerOptions, clock: Clock, random: Random) -> Log:
    """A log in a directory that several processes of this machine share."""
    if options.place is not None or options.hot is not None:
        raise InvalidConfig(
            "workers share a log in the data directory: leave out --store, --etcd and --objects"
        )
    _check_durability(options)
    port = await HostCommitLog.open(options.data_dir, HostOptions(segment_bytes=options.segment_bytes))
    store = open_store(options.objects_url)
    try:
        log = await Log.open(
            port,
            clock,
            replace(
                _log_options(options),
                boot_id=f"{boot_id()}/{random.token(_TOKEN_BYTES).hex()}",
                shared=True,
                on_host=True,
            ),
            objects=store,
            save_at=ChildCheckpointer(options.data_dir).save_at,
        )
    except BaseException:
        await port.close()
        raise
    try:
        await _check_for_workers(log, port, options, store)
    except BaseException:
        await log.close()
        raise
    return log


async def _check_for_workers(
    log: Log, port: HostCommitLog, options: BrokerOptions, store: ObjectStore
) -> None:
    """Raises InvalidConfig if the directory holds what only a single process can serve."""
    if len(absent_tiers(port, log.ledger)) or await absent_repacked(store, log.ledger):
        raise InvalidConfig(
            f"older files of the log in {options.data_dir} are in an object store: "
            "serve it with one worker and --objects"
        )
    for topic in log.ledger.topics:
        if topic.config.durability == "ephemeral":
            raise InvalidConfig(
                f"the records of topic {topic.name!r} are in the memory of one process, because it is ephemeral: "
                "serve it with one worker, or delete it"
            )


def _check_durability(options: BrokerOptions) -> None:
    if options.default_config.durability == "ephemeral":
        raise InvalidConfig("a shared log does not support ephemeral topics: change the default durability")


def _log_options(options: BrokerOptions) -> LogOptions:
    return LogOptions(
        broker=1 if options.broker_id is None else options.broker_id,
        node=options.node,
        checkpoint_every_bytes=options.checkpoint_every_bytes,
        tail_cache_bytes=options.tail_cache_bytes,
        sync_every_ms=options.sync_every_ms,
        repack=options.repack,
        trusts_log=options.trusts_log,
        accept_missing=options.accept_missing,
        recovery=options.recovery,
    )


@dataclass(frozen=True, slots=True)
class _BrokerNumberFile:
    """What a broker without a configured number stores between starts."""

    token: str  # identifies the broker in etcd
    broker: int | None = None
    log: str = ""  # the log that assigned the number

    @classmethod
    def load(cls, directory: Path, random: Random) -> _BrokerNumberFile:
        try:
            return cls(**json.loads((directory / _MEMORY).read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return cls(random.token(_TOKEN_BYTES).hex())

    def save(self, directory: Path) -> None:
        """Failure is not fatal: without the file, the broker gets another number at its next start."""
        text = json.dumps({"token": self.token, "broker": self.broker, "log": self.log})
        temporary = directory / f"{_MEMORY}.new"
        try:
            temporary.write_text(text + "\n", encoding="utf-8")
            temporary.replace(directory / _MEMORY)
        except OSError as error:
            _log.warning("broker number not saved", directory=str(directory), error=str(error))


def linger_ms(asked: int | None, *, etcd: bool) -> int:
    """The default linger time, unless one is configured."""
    if asked is not None:
        return asked
    return 0 if etcd else LINGER_MS_BUCKET
