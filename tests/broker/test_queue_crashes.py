"""Workers at work while the broker is killed and the machine loses power, again and again."""

from __future__ import annotations

from collections import Counter

from mainstem.broker.broker import Broker
from mainstem.errors import RecordsLost
from mainstem.ledger.config import TopicConfig

from .lives import Lives

_DELIVERIES_MAX = 3


class Shift(Lives):
    def __init__(self, seed: int) -> None:
        super().__init__(seed, turns_max=600)
        self._durable = self._random.random() < 0.5
        self.offered: set[bytes] = set()  # may be in the queue
        self.added: set[bytes] = set()  # are in the queue, as the broker confirmed
        self.done: set[bytes] = set()  # acknowledged, as the broker confirmed
        self.done_maybe: set[bytes] = set()  # acks without a response

    async def _begin(self, broker: Broker) -> None:
        settings = TopicConfig(
            type="queue",
            durability="fsync",
            max_deliveries=_DELIVERIES_MAX,
            dead_letter="dead",
            leases_durable=self._durable,
        )
        await broker.create_topic("q", config=settings)
        await broker.create_topic("dead", config=TopicConfig(durability="fsync"))

    async def _do_some(self, broker: Broker, node: str) -> None:
        lapses = self._lapses
        jobs = (await broker.queues.claim("q", node, limit=self._random.randint(1, 4))).jobs
        values = {job.offset: job.value or b"" for job in jobs}
        # A claim may be answered after its leases expired: it waited for a sync.
        again = set(values.values()) & self.done
        assert not again or self._lapses > lapses, "a job that is done was handed out again"
        tokens = [job.token for job in jobs]
        what = self._random.random()
        if what < 0.6:
            self.done_maybe |= set(values.values())
            acked = await broker.queues.ack("q", node, list(values), tokens)
            assert not acked.skipped or self._lapses > lapses, "a lease that did not lapse was lost"
            self.done |= {values[offset] for offset in acked.offsets}
        elif what < 0.8:
            await broker.queues.nack("q", node, list(values), tokens)
        else:
            self._lapse()

    async def _add(self, broker: Broker) -> None:
        values = [b"job-%d" % (len(self.offered) + n) for n in range(self._random.randint(1, 3))]
        self.offered |= set(values)
        await broker.append_values("q", values)
        self.added |= set(values)

    async def _check(self, broker: Broker) -> None:
        """Every added job is exactly one of: done, still there, or a dead letter."""
        self._machine.clock.advance(100_000)
        left: Counter[bytes] = Counter()
        while jobs := (await broker.queues.claim("q", "last", limit=100)).jobs:
            left.update(job.value or b"" for job in jobs)
        dead = Counter(await _all_values(broker, "dead"))
        assert max(left.values(), default=1) == 1
        assert max(dead.values(), default=1) == 1
        assert not left.keys() & dead.keys()
        assert not (left.keys() | dead.keys()) & self.done
        assert left.keys() | dead.keys() | self.done_maybe >= self.added
        assert left.keys() | dead.keys() <= self.offered
        counts = await broker.queues.state("q")
        assert (counts.ready, counts.in_flight, counts.dead_lettered) == (0, len(left), len(dead))
        assert broker.partition("q").records == len(left)


async def _all_values(broker: Broker, name: str) -> list[bytes]:
    """Intact records: a torn commit may have lost records that nobody was told about."""
    values: list[bytes] = []
    at, end = broker.partition(name).start, broker.partition(name).end
    while at < end:
        try:
            records = await broker.read(name, at, max_records=500)
        except RecordsLost as loss:
            at = loss.end
            continue
        values += [record.value or b"" for record in records]
        at = records[-1].offset + 1 if records else end
    return values


async def test_no_job_is_lost_or_delivered_after_it_was_acknowledged(walk_seed: int) -> None:
    await Shift(walk_seed).run()
