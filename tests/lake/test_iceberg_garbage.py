"""Files leave the store once neither the topic nor a snapshot needs them, and not before."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.topics import Topic
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.tables.publishing.publisher import Publisher
from mainstem.tables.publishing.snapshots import TABLE_SNAPSHOT_AGE_MS
from mainstem.tables.topic_tables import TopicTables
from tests.support.clock import ManualClock

from .inside import Inside, append, rewritten


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    clock = ManualClock()
    broker = await Broker.open(BrokerOptions(tmp_path / "data", segment_bytes=1 << 20), clock=clock)
    await broker.create_topic("t")
    await broker.topic_tables.put("t", enabled=True, schema=None, delta=None)
    yield Inside(broker, clock)
    await broker.close()


async def test_a_file_is_kept_while_the_table_has_not_followed_and_while_a_snapshot_names_it(
    inside: Inside,
) -> None:
    await append(inside.broker, 0, 1, 2)
    await inside.work("materialise")
    await inside.publish()
    (first,) = inside.files()
    await rewritten(inside, 1)
    assert await inside.collect() == 0  # the table shows it still
    await inside.publish()
    assert await inside.collect() == 0  # its first snapshot does
    assert first in inside.files()
    assert await inside.snapshots() == {0: [0, 1, 2], 1: [0, 2]}
    inside.clock.advance(TABLE_SNAPSHOT_AGE_MS + 1)
    assert (await inside.publish()).commits == 1
    assert await inside.collect() == 1
    assert first not in inside.files()
    assert await inside.snapshots() == {0: [0, 2]}


async def test_a_table_that_is_switched_off_keeps_nothing(inside: Inside) -> None:
    await append(inside.broker, 0, 1, 2)
    await inside.work("materialise")
    await inside.publish()
    await rewritten(inside, 1)
    await inside.broker.topic_tables.put("t", enabled=False, schema=None, delta=None)
    assert await inside.collect() == 1
    await inside.broker.topic_tables.put("t", enabled=True, schema=None, delta=None)
    await inside.publish()
    assert await inside.snapshots() == {0: [0, 2]}


async def test_what_was_never_shown_is_not_kept(inside: Inside) -> None:
    await append(inside.broker, 0, 1, 2)
    await inside.work("materialise")
    await rewritten(inside, 1)
    await inside.publish()
    assert await inside.collect() == 1
    assert await inside.snapshots() == {0: [0, 2]}


async def test_nothing_of_the_lake_is_deleted_while_the_store_is_copied(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        await append(inside.broker, 0, 1, 2)
        await inside.work("materialise")
    await rewritten(inside, 1)
    await rewritten(inside, 4)
    copies, before = inside.broker.log.store_copies, inside.files()
    with copies.one():
        assert await inside.collect() == 0
        assert inside.files() == before
    delete = LocalObjectStore.delete
    with ExitStack() as copy:

        async def delete_and_begin_a_copy(store: LocalObjectStore, key: str) -> None:
            await delete(store, key)
            copy.enter_context(copies.one())

        monkeypatch.setattr(LocalObjectStore, "delete", delete_and_begin_a_copy)
        assert await inside.collect() == 1, "a copy that begins is waited for too"
        assert len(before - inside.files()) == 1
    monkeypatch.undo()
    assert await inside.collect() == 1


async def test_the_switch_by_a_topics_setting_is_followed_in_time(inside: Inside) -> None:
    broker = inside.broker
    await broker.change_topic("t", lambda config: msgspec.structs.replace(config, table=False))
    assert (await inside.publish()).commits == 0
    assert broker.log.ledger.tables.get("default", "t") is None


async def test_metadata_of_a_deleted_topic_is_swept_and_nobody_elses(inside: Inside) -> None:
    broker = inside.broker
    await append(broker, 0)
    await inside.work("materialise")
    await inside.publish()
    await broker.create_topic("other")
    await broker.topic_tables.put("other", enabled=True, schema=None, delta=None)
    schema = {"type": "struct", "fields": [{"id": 1, "name": "x", "type": "long", "required": False}]}
    await broker.catalog.create("default", {"name": "own", "schema": schema})
    await broker.catalog.drop(("default", "own"))  # without purge: its files are its owner's to keep
    folder = broker.options.data_dir / "objects" / "tables" / "default"
    await broker.delete_topic("t")
    inside.clock.advance(int(time.time() * 1000) - inside.clock.now_ms() + 2 * limits.TABLE_ORPHAN_MS)
    await inside.publish()
    left = {path.parent.parent.name.rpartition("-")[0] for path in folder.rglob("*.*") if path.is_file()}
    assert left == {"other", "own"}


async def test_one_topic_whose_table_cannot_be_made_or_looked_at_holds_up_no_other(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = inside.broker
    for name in ("hurt", "sound"):
        await broker.create_topic(name, config=TopicConfig(table=True))
    create, work = TopicTables._create, TopicTables._work

    async def no_table(tables: TopicTables, topic: Topic, *about: Any) -> None:
        if topic.name == "hurt":
            raise OverflowError("no room")
        await create(tables, topic, *about)

    def no_work(tables: TopicTables, topic: Topic, table: Any) -> Any:
        if topic.name == "hurt":
            raise KeyError("nothing here")
        return work(tables, topic, table)

    async def problem() -> str:
        return (await broker.topic_tables.status(broker.topic("hurt"))).problem

    for method, broken, error in (
        ("_create", no_table, "OverflowError: no room"),
        ("_work", no_work, "KeyError: 'nothing here'"),
    ):
        with monkeypatch.context() as poison:
            poison.setattr(TopicTables, method, broken)
            await broker.topic_tables.maintain()
            works = broker.topic_tables.works()
            assert works.problems == {"hurt": error}
            assert {table.topic for table in works.tables} == {"t", "sound"}
            assert await problem() == error
        await broker.topic_tables.maintain()
        works = broker.topic_tables.works()
        assert works.problems == {}
        assert {table.topic for table in works.tables} == {"t", "hurt", "sound"}
        assert await problem() == ""


async def test_files_of_one_topic_that_cannot_be_deleted_hold_up_no_other(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = inside.broker
    await append(broker, 0, 1)
    await broker.create_topic("other", config=TopicConfig(table=True))
    await broker.append_values("other", [b"1"])
    assert await inside.work("materialise") == 2
    hurt = broker.topic("t").topic_id.hex()
    assert {Path(path).relative_to(parts_folder(broker)).parts[0] for path in inside.files()} == {
        hurt,
        broker.topic("other").topic_id.hex(),
    }
    for name in ("t", "other"):
        await broker.delete_topic(name)
    delete = LocalObjectStore.delete

    async def refused(store: LocalObjectStore, key: str) -> None:
        if hurt in key:
            raise PermissionError(13, "Permission denied")
        await delete(store, key)

    with monkeypatch.context() as poison:
        poison.setattr(LocalObjectStore, "delete", refused)
        assert await inside.collect() == 1
    (left,) = inside.files()
    assert hurt in left
    assert await inside.collect() == 1
    assert inside.files() == set()


def parts_folder(broker: Broker) -> Path:
    return broker.options.data_dir / "objects" / "parts"


class Killed(BaseException):
    """The publisher ends here, as a process does: nothing in it handles that."""


async def publish_badly(inside: Inside, rng: random.Random) -> None:
    """One publisher, killed at some step or overtaken by another at some step, or neither."""
    at, fate = rng.randrange(1, 8), rng.choice(["killed", "overtaken", "spared"])
    steps = 0

    def step(name: str) -> None:
        nonlocal steps
        steps += 1
        if steps == at and fate == "killed":
            raise Killed
        if steps == at and fate == "overtaken":
            Publisher(inside, now_ms=inside.clock.now_ms).run()

    with contextlib.suppress(Killed):
        await asyncio.to_thread(Publisher(inside, now_ms=inside.clock.now_ms, step=step).run)


async def check(inside: Inside, live: list[int], written: int) -> None:
    """Every snapshot can be read; the current one has each record once and lacks none that it should have."""
    table = inside.broker.log.ledger.tables.get("default", "t")
    assert table is not None
    shown = table.stream(inside.broker.topic("t").streams[0]).to
    snapshots = await inside.snapshots()
    current = snapshots[max(snapshots)] if snapshots else []
    assert len(set(current)) == len(current)
    assert {value for value in live if value < shown} <= set(current) <= set(range(min(written, shown)))


@pytest.mark.parametrize("seed", range(4))
async def test_no_order_of_events_loses_or_doubles_a_record_or_loses_a_file(
    inside: Inside, seed: int
) -> None:
    """In the end the table shows what is live, and nothing is kept that neither topic nor snapshot needs."""
    rng = random.Random(seed)
    written = 0
    live: list[int] = []
    for _ in range(40):
        match rng.choice(["append", "append", "delete", "publish", "publish", "collect", "trim", "age"]):
            case "append":
                values = range(written, written + rng.randrange(1, 4))
                await append(inside.broker, *values)
                written, live = values.stop, [*live, *values]
                await inside.work("materialise")
            case "delete" if len(live) > 4:
                await rewritten(inside, live.pop(rng.randrange(1, len(live) - 1)))
            case "publish":
                await publish_badly(inside, rng)
            case "collect":
                await inside.collect()
            case "trim" if len(live) > 6:
                live = live[rng.randrange(1, 4) :]
                await inside.broker.trim("t", live[0])
            case "age":
                inside.clock.advance(TABLE_SNAPSHOT_AGE_MS // 2)
        await check(inside, live, written)
    await inside.collect()
    await inside.publish()
    inside.clock.advance(TABLE_SNAPSHOT_AGE_MS + 1)
    await inside.publish()
    await inside.collect()
    assert [value for value in (await inside.snapshots())[0] if value >= live[0]] == live
    stream = inside.broker.topic("t").streams[0]
    parts = inside.broker.log.ledger.generations.parts(stream)
    assert len(inside.files()) == sum(len(part.files) for part in parts)
