"""Erasures of a broker: after one, no file holds what was erased, wherever it came from and whenever it was killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from mainstem.broker.broker import Broker
from mainstem.broker.erasures.matching import ErasureRequest, parse_where
from mainstem.broker.erasures.reports import ReportKey, verify_report
from mainstem.broker.routers.service import RouterSettings
from mainstem.broker.routers.tag_matching import Match
from mainstem.errors import InvalidInput, MainstemError, TopicIncompatible
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.erasures import Erasure
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.records.building import build_batch
from tests.support import machine as machines
from tests.support.byte_scan import files_with
from tests.support.files import Policy, SimulatedCrash
from tests.support.machine import Machine

from .test_transactions import Writer

SECRET = b"ann-7f3a91c5@example.com"
KEY = b"customer:ann-7f3a91c5"
BY_KEY = ErasureRequest.of_key(KEY)
BY_VALUE = ErasureRequest.of_where(parse_where(["user.email", "Eq", SECRET.decode()]))


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Machine]:
    made = new_machine(tmp_path, monkeypatch)
    yield made
    await made.kill()


def new_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(machines, "DIRECTORY", tmp_path)
    return Machine(segment_bytes=4096, repack=RepackOptions(on=False, file_bytes=2048, bytes_per_s=0))


def secret_value(number: int) -> bytes:
    return msgspec.json.encode({"user": {"email": SECRET.decode()}, "n": number})


def other_value(number: int) -> bytes:
    return msgspec.json.encode({"user": {"email": f"bob-{number}@example.com"}, "n": number})


async def write(
    broker: Broker, topic: str, batches: int, *, partitions: int = 1, codec: str = "none"
) -> None:
    """Batches in which every third record is secret: by its key and by its value."""
    for number in range(batches):
        values = [secret_value(i) if i % 3 == 0 else other_value(i) for i in range(6)]
        keys = [KEY if i % 3 == 0 else b"customer:bob-%d" % i for i in range(6)]
        batch = build_batch(values, keys=keys, timestamps_ms=1_700_000_000_000, codec=codec)  # type: ignore[arg-type]
        await broker.append(topic, batch, number % partitions)


async def shown(broker: Broker, topic: str) -> dict[tuple[int, int], bytes | None]:
    """Values by partition and offset."""
    await broker.routers.drain(topic)
    found: dict[tuple[int, int], bytes | None] = {}
    for partition in range(len(broker.topic(topic).streams)):
        at, end = broker.partition(topic, partition).start, broker.partition(topic, partition).end
        while at < end:
            records = await broker.read(topic, at, partition=partition, max_records=1000)
            if not records:
                break
            found |= {(partition, record.offset): record.value for record in records}
            at = records[-1].offset + 1
    return found


def without_secrets(records: dict[tuple[int, int], bytes | None]) -> dict[tuple[int, int], bytes | None]:
    return {place: value for place, value in records.items() if SECRET not in (value or b"")}


async def erase(machine: Machine, topic: str, request: ErasureRequest) -> Erasure:
    assert machine.broker is not None
    accepted = await machine.broker.erasures.accept(machine.broker.topic(topic), request)
    return await finish(machine, accepted.id)


async def finish(machine: Machine, id: str) -> Erasure:
    """Run rounds until the erasure ends. The grace periods of replaced files pass in between."""
    broker = machine.broker
    assert broker is not None
    give_up_at = time.monotonic() + 60
    while time.monotonic() < give_up_at:
        await broker.erasures.round()
        one = broker.erasures.get(id)
        if one.phase in ("done", "failed"):
            return one
        if machine.files.down:
            raise SimulatedCrash
        if "readers" in broker.erasures.waits_for(one):
            machine.clock.advance(61_000)
        await asyncio.sleep(0.001)  # files are sealed on threads
    raise AssertionError(f"{one.phase}: {broker.erasures.waits_for(one)}")


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_no_file_holds_an_erased_record_and_all_others_stay(machine: Machine, codec: str) -> None:
    broker = await machine.open()
    await broker.create_topic("t", partitions=3)
    await write(broker, "t", 12, partitions=3, codec=codec)
    before = await shown(broker, "t")
    assert files_with(machine.files.contents(), SECRET)

    done = await erase(machine, "t", BY_KEY)

    assert done.phase == "done", done.problem
    assert [topic.records for topic in done.topics] == [24]
    assert await shown(broker, "t") == without_secrets(before)
    assert files_with(machine.files.contents(), SECRET) == []
    assert files_with(machine.files.contents(), KEY) == []
    broker = await machine.restart()
    assert await shown(broker, "t") == without_secrets(before)
    assert broker.log.missing.count() == 0


async def test_repacked_files_are_rewritten_without_erased_records(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    await write(broker, "t", 20)
    repacker = broker.log.repacker
    assert repacker is not None
    while await repacker.erase([], broker.log.newest_object - 1, {}):
        pass  # an erasure of nothing repacks everything
    assert broker.log.ledger.repacked.rounds
    before = await shown(broker, "t")

    await erase(machine, "t", BY_VALUE)

    assert await shown(broker, "t") == without_secrets(before)
    assert files_with(machine.files.contents(), SECRET) == []


async def test_copies_of_routers_are_erased_with_their_source(machine: Machine) -> None:
    broker = await machine.open()
    for name in ("a", "alias", "filtered", "further"):
        await broker.create_topic(name)
    await broker.routers.put("a>alias", RouterSettings("a", "alias"))
    await broker.routers.put(
        "a>filtered", RouterSettings("a", "filtered", match=Match(b"customer:", prefix=True))
    )
    await broker.routers.put("alias>further", RouterSettings("alias", "further"))
    await write(broker, "a", 8)
    before = {name: await shown(broker, name) for name in ("a", "alias", "filtered", "further")}
    assert all(len(records) == 48 for records in before.values())

    done = await erase(machine, "a", BY_KEY)

    assert {topic.name: topic.records for topic in done.topics} == dict.fromkeys(before, 16)
    for name, records in before.items():
        assert await shown(broker, name) == without_secrets(records)
    assert files_with(machine.files.contents(), SECRET) == []
    broker = await machine.restart()
    for name, records in before.items():
        assert await shown(broker, name) == without_secrets(records)


async def test_an_erased_copy_takes_the_bytes_of_its_deleted_source_with_it(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("a")
    await broker.create_topic("b")
    await broker.routers.put("a>b", RouterSettings("a", "b"))
    await write(broker, "a", 4)
    before = await shown(broker, "b")
    await broker.trim("a", 24)  # the bytes stay for the copies

    done = await erase(machine, "b", BY_KEY)

    assert [topic.name for topic in done.topics] == ["b", "a"]
    assert await shown(broker, "b") == without_secrets(before)
    assert files_with(machine.files.contents(), SECRET) == []


async def test_dead_letters_are_erased_with_the_jobs_of_their_queue(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("dead")
    await broker.create_topic("jobs", config=TopicConfig(type="queue", max_deliveries=1, dead_letter="dead"))
    await write(broker, "jobs", 2)
    await broker.queues.claim("jobs", "worker", limit=3, lease_ms=100)
    machine.clock.advance(10_000)
    await broker.queues.claim("jobs", "worker", lease_ms=100)  # moves what was delivered once
    assert len(await shown(broker, "dead")) == 3

    done = await erase(machine, "jobs", BY_KEY)

    assert {topic.name: topic.records for topic in done.topics} == {"jobs": 3, "dead": 1}
    assert files_with(machine.files.contents(), SECRET) == []
    assert len(await shown(broker, "dead")) == 2


async def test_records_deleted_before_the_erasure_lose_their_bytes_too(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    await write(broker, "t", 4)
    await broker.deletes.delete(broker.topic("t"), match=Match(KEY))
    assert files_with(machine.files.contents(), SECRET)

    done = await erase(machine, "t", BY_KEY)

    assert [topic.records for topic in done.topics] == [0]
    assert files_with(machine.files.contents(), SECRET) == []


async def test_aborted_records_are_erased_and_an_open_transaction_is_awaited(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    aborted, pending = await Writer.start(broker, "aborted"), await Writer.start(broker, "open")
    await aborted.write("t", secret_value(0), other_value(0))
    await aborted.end(commit=False)
    await broker.append_values("t", [other_value(1)])
    await pending.write("t", secret_value(1), other_value(2))
    accepted = await broker.erasures.accept(broker.topic("t"), BY_VALUE)
    await broker.erasures.round()
    waiting = broker.erasures.get(accepted.id)
    assert waiting.phase == "accepted"
    assert broker.erasures.waits_for(waiting) == "a transaction is open in topic 't'"
    await pending.end(commit=True)

    done = await finish(machine, accepted.id)

    assert [topic.records for topic in done.topics] == [1]
    assert list((await shown(broker, "t")).values()) == [other_value(1), other_value(2)]
    assert files_with(machine.files.contents(), SECRET) == []
    at, end = broker.streams.bounds(broker.stream("t"))
    while at < end:  # as a Kafka client reads it, markers included
        at = (await broker.streams.read(broker.stream("t"), at, 1)).next_offset
    broker = await machine.restart()
    assert list((await shown(broker, "t")).values()) == [other_value(1), other_value(2)]


async def test_records_written_after_the_request_stay(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    await write(broker, "t", 2)
    accepted = await broker.erasures.accept(broker.topic("t"), BY_KEY)
    await broker.erasures.round()
    await write(broker, "t", 1)
    await finish(machine, accepted.id)
    values = list((await shown(broker, "t")).values())
    assert values.count(secret_value(0)) == 1
    assert values.count(secret_value(3)) == 1


async def test_the_report_is_signed_and_names_topics_and_backups(machine: Machine, tmp_path: Path) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    await write(broker, "t", 2)
    done = await erase(machine, "t", BY_KEY)
    public = await broker.erasures.public_key()
    assert public == ReportKey(tmp_path).public()
    report = verify_report(done.report, public)
    assert report["erasure"] == done.id
    assert report["topics"] == [{"topic": "t", "why": "named in the request", "records_deleted": 4}]
    assert report["backups_that_may_hold_it"] == []
    assert KEY not in done.report
    forged = json.loads(done.report) | {"topics": []}
    with pytest.raises(InvalidInput):
        verify_report(json.dumps(forged).encode(), public)
    with pytest.raises(InvalidInput):
        verify_report(done.report, "00" * 32)


async def test_an_erasure_that_cannot_find_its_copies_is_refused(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("a")
    await broker.routers.put("a>b", RouterSettings("a", "b", preserve_tag=False))
    with pytest.raises(TopicIncompatible, match="without their keys"):
        await broker.erasures.accept(broker.topic("a"), BY_KEY)
    await broker.erasures.accept(broker.topic("a"), BY_VALUE)


async def test_a_lost_request_fails_its_erasure(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    accepted = await broker.erasures.accept(broker.topic("t"), BY_KEY)
    await broker.objects.delete(f"erasures/{accepted.id}")
    failed = await finish(machine, accepted.id)
    assert failed.phase == "failed"
    assert "send the request again" in failed.problem


async def _story(machine: Machine) -> str:
    """Returns the id of an erasure that is done."""
    broker = await machine.open()
    await broker.create_topic("t", partitions=2)
    await broker.create_topic("copy")
    await broker.routers.put("t>copy", RouterSettings("t", "copy"))
    await write(broker, "t", 6, partitions=2, codec="gzip")
    return (await erase(machine, "t", BY_VALUE)).id


@pytest.mark.parametrize("policy", ["kept", "torn"])
async def test_an_erasure_resumes_wherever_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    whole = new_machine(tmp_path, monkeypatch)
    await _story(whole)
    calls = whole.files.calls
    await whole.kill()
    for last in range(40, calls, max(1, (calls - 40) // 30)):
        machine = new_machine(tmp_path, monkeypatch)
        machine.files.crash_after(last)
        with contextlib.suppress(SimulatedCrash, MainstemError):
            await _story(machine)
        await machine.crash(policy, last)
        broker = await machine.open()
        await broker.erasures.tidy()
        erasures = list(broker.log.ledger.erasures)
        if not erasures:
            assert not [path for path in machine.files.contents() if "erasures" in path.parts]
            await machine.kill()
            continue
        done = await finish(machine, erasures[0].id)
        assert done.phase == "done", (last, done.problem)
        for topic in ("t", "copy"):
            records = await shown(broker, topic)
            assert len(records) == 24, (last, topic)
            assert without_secrets(records) == records
        assert files_with(machine.files.contents(), SECRET) == [], last
        await machine.kill()
