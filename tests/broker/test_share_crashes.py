"""Members of a share group at work while the broker is killed and the machine loses power, again and again."""

from __future__ import annotations

from mainstem.broker.broker import Broker
from mainstem.broker.share.shares import Acquired, AcquireLimits
from mainstem.errors import RecordNotHeld
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.shares import Verdict
from mainstem.records.decoding import decode_records

from .lives import Lives


class Shift(Lives):
    def __init__(self, seed: int) -> None:
        super().__init__(seed, turns_max=400)
        self.offered = 0
        self.added: set[bytes] = set()  # are in the topic, as the broker confirmed
        self.settled: set[bytes] = set()  # accepted or rejected, as the broker confirmed
        self.settled_maybe: set[bytes] = set()  # the same without a response
        self.deliveries: dict[bytes, int] = {}

    async def _begin(self, broker: Broker) -> None:
        await broker.create_topic("t", config=TopicConfig(durability="fsync"))
        await broker.shares.change_settings("g", [("share.auto.offset.reset", "earliest")], [])

    async def _add(self, broker: Broker) -> None:
        values = [b"%d" % (self.offered + number) for number in range(self._random.randint(1, 3))]
        self.offered += len(values)
        await broker.append_values("t", values)
        self.added |= set(values)

    async def _do_some(self, broker: Broker, member: str) -> None:
        lapses, stream = self._lapses, broker.streams.of("t", 0)
        wanted = AcquireLimits(self._random.randint(1, 4), 1 << 20, exact=True)
        values = _values(await broker.shares.acquire("g", member, stream, wanted))
        assert not set(values.values()) & self.settled, "handed out after it was settled for good"
        for value in values.values():
            self.deliveries[value] = self.deliveries.get(value, 0) + 1
        what = self._random.random()
        verdict = Verdict.ACCEPT if what < 0.5 else Verdict.REJECT if what < 0.6 else Verdict.RELEASE
        if what > 0.85:
            self._lapse()
            return
        if verdict is not Verdict.RELEASE:
            self.settled_maybe |= set(values.values())
        try:
            await broker.shares.settle("g", member, stream, [(at, at + 1, int(verdict)) for at in values])
        except RecordNotHeld:
            assert self._lapses > lapses, "a lock that did not lapse was lost"
            return
        if verdict is not Verdict.RELEASE:
            self.settled |= set(values.values())

    async def _check(self, broker: Broker) -> None:
        """Every added record is settled, available, or was delivered as often as allowed."""
        self._machine.clock.advance(100_000)
        stream = broker.streams.of("t", 0)
        left: set[bytes] = set()
        while values := _values(
            await broker.shares.acquire("g", "last", stream, AcquireLimits(100, 1 << 20))
        ):
            assert not left & set(values.values())
            left |= set(values.values())
        assert not left & self.settled
        missing = self.added - left - self.settled_maybe
        assert all(self.deliveries.get(value, 0) >= 5 for value in missing)


def _values(acquired: Acquired | None) -> dict[int, bytes]:
    """The acquired values, by offset."""
    if acquired is None:
        return {}
    found = {record[0]: record[3] or b"" for batch in acquired.batches for record in decode_records(batch, 0)}
    got = [offset for first, end, _ in acquired.runs for offset in range(first, end)]
    return {offset: found[offset] for offset in got}


async def test_no_record_is_lost_or_delivered_after_it_was_accepted(share_seed: int) -> None:
    await Shift(share_seed).run()
