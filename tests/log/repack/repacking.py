"""Support for tests of repacking: a machine that repacks early, and records to repack."""

from __future__ import annotations

from mainstem.broker.broker import Broker
from mainstem.ledger.repacked_objects import REPACKED
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.objects.repack.repacker import Repacker
from mainstem.ports.commitlog.local.layout import WAL
from mainstem.ports.commitlog.local.segments import number_of
from tests.support.machine import DIRECTORY, Machine
from tests.support.waiting import finished

SMALL = RepackOptions(
    on=False,  # each test starts it
    after_objects=2,
    least_bytes=0,
    bytes_per_s=0,
    round_bytes=10_000,
    merged_rounds=3,
    file_bytes=3_000,
    grace_s=0.0,
)


def repacker(broker: Broker) -> Repacker:
    found = broker.log.repacker
    assert found is not None
    return found


async def repack_all(broker: Broker) -> None:
    while await repacker(broker).step():
        pass


def wal_numbers(machine: Machine) -> list[int]:
    return sorted(filter(None, map(number_of, machine.files.listdir(DIRECTORY / WAL))))


def repacked_keys(machine: Machine) -> set[str]:
    folder = DIRECTORY / "objects" / REPACKED.rstrip("/")
    return (
        {REPACKED + name for name in machine.files.listdir(folder)} if machine.files.exists(folder) else set()
    )


async def write_two(broker: Broker, count: int, *, quiet: str = "quiet") -> dict[int, bytes]:
    """A busy topic, and one that gets a record now and then."""
    for name in ("busy", quiet):
        if broker.log.ledger.topics.get(name) is None:
            await broker.create_topic(name)
    written: dict[int, bytes] = {}
    for number in range(count):
        await broker.append_values("busy", [b"%d" % number + b"." * 200])
        if number % 7 == 0:
            value = b"quiet %d" % number
            written[(await broker.append_values(quiet, [value])).base_offset] = value
        await finished(broker)
    return written
