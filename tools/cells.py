"""Simulate a deployment of cells: `python -m tools.cells`. Nothing of it is built (docs/decisions/0040).

A cell is one log with its brokers; a namespace belongs to one cell. Every broker of a cell applies every commit of that
cell. Time is virtual. The constants say which costs were measured, and which are estimates:

- A commit takes one turn of the cell's log. Brokers that wait for their turn put everything that arrives meanwhile
  into their next commit.
- A broker spends CPU for each record it accepts, for each commit of its own, and for each commit of others.
- A router whose two topics are in different cells copies records as a client of both.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

OWN_COMMIT_S = 250e-6  # CPU of a broker for a commit of its own: as a lone produce on one broker, measured
OTHERS_COMMIT_S = 20e-6  # CPU for a commit of another broker with a slice or two, measured (15 to 19 µs)
RECORD_S = 0.4e-6  # CPU for a record of 100 bytes that clients produce in batches, measured
TURN_S = 0.5e-3  # of the log, between two commits of different brokers: an estimate
COMMIT_S = 4e-3  # from the claim of a commit to its answer: an estimate of etcd with three members
BATCH_RECORDS = 50  # in one produce request: an assumption
MOVED_BYTES_PER_S = 50e6  # a namespace that moves is copied at this rate: an assumption


def cell_of(namespace: str, cells: list[int]) -> int:
    """Rendezvous hashing: when a cell is added, only the namespaces that it takes move."""
    return max(
        cells, key=lambda cell: hashlib.blake2b(f"{cell} {namespace}".encode(), digest_size=8).digest()
    )


@dataclass(slots=True)
class Outcome:
    """What a cell reached."""

    brokers: int
    commits_per_s: float
    records_per_s: float
    busiest_cpu: float  # share of one core
    p50_ms: float
    p99_ms: float


@dataclass(slots=True)
class _Broker:
    waiting: list[float] = field(default_factory=list)  # when its requests arrived
    cpu_s: float = 0.0
    committing: bool = False


def simulate_cell(brokers: int, requests_per_s: float, seconds: float, dice: random.Random) -> Outcome:
    """Requests arrive at random brokers at random times. A saturated cell shows as a growing latency."""
    members = [_Broker() for _ in range(brokers)]
    latencies: list[float] = []
    commits, free_at = 0, 0.0  # when the log takes the next commit
    ends: list[tuple[float, int, list[float]]] = []  # commits on their way: when, whose, and their requests

    def claim(now: float, number: int) -> None:
        nonlocal commits, free_at
        member = members[number]
        begun, free_at = max(now, free_at), max(now, free_at) + TURN_S
        taken, member.waiting = member.waiting, []
        member.committing = True
        member.cpu_s += OWN_COMMIT_S + len(taken) * BATCH_RECORDS * RECORD_S
        commits += 1
        heapq.heappush(ends, (begun + COMMIT_S, number, taken))

    def finish(until: float) -> None:
        while ends and ends[0][0] <= until:
            now, number, taken = heapq.heappop(ends)
            latencies.extend(now - arrived for arrived in taken)
            members[number].committing = False
            if members[number].waiting:
                claim(now, number)

    for now in _arrivals(requests_per_s, seconds, dice):
        finish(now)
        number = dice.randrange(brokers)
        members[number].waiting.append(now)
        if not members[number].committing:
            claim(now, number)
    finish(float("inf"))
    latencies.sort()
    others = commits * (1 - 1 / brokers) * OTHERS_COMMIT_S
    return Outcome(
        brokers,
        commits / seconds,
        len(latencies) * BATCH_RECORDS / seconds,
        (max(member.cpu_s for member in members) + others) / seconds,
        latencies[len(latencies) // 2] * 1e3,
        latencies[int(len(latencies) * 0.99)] * 1e3,
    )


def _arrivals(per_s: float, seconds: float, dice: random.Random) -> Iterator[float]:
    now = dice.expovariate(per_s)
    while now < seconds:
        yield now
        now += dice.expovariate(per_s)


@dataclass(slots=True)
class Sharded:
    """A deployment of cells."""

    cells: list[Outcome]
    largest_share: float  # of the records, in one cell, to the average
    crossing: float  # share of the routers whose topics are in two cells
    moved: float  # share of the namespaces that move when one cell is added
    moving_s: float  # how long the largest of them takes

    @property
    def records_per_s(self) -> float:
        return sum(cell.records_per_s for cell in self.cells)


def simulate_cells(
    brokers: int, cells: int, namespaces: int, requests_per_s: float, seconds: float, seed: int
) -> Sharded:
    """Namespaces of unequal load (a Zipf distribution), placed by hash; routers within and between namespaces."""
    dice = random.Random(seed)
    names = [f"namespace-{number}" for number in range(namespaces)]
    weights = [1 / (rank + 10) for rank in range(namespaces)]  # the first takes 2 %
    total = sum(weights)
    numbers = list(range(cells))
    places = {name: cell_of(name, numbers) for name in names}
    load = [0.0] * cells
    for name, weight in zip(names, weights, strict=True):
        load[places[name]] += weight / total
    routers = [(name, name if dice.random() < 0.9 else dice.choice(names)) for name in names]
    crossing = sum(places[source] != places[target] for source, target in routers) / len(routers)
    after = {name: cell_of(name, [*numbers, cells]) for name in names}
    moved = [name for name in names if after[name] != places[name]]
    largest = max((weights[names.index(name)] / total for name in moved), default=0.0)
    day_bytes = requests_per_s * BATCH_RECORDS * 100 * 86_400 * largest
    each = [brokers // cells + (number < brokers % cells) for number in numbers]
    outcomes = [
        simulate_cell(size, requests_per_s * share, seconds, dice)
        for size, share in zip(each, load, strict=True)
    ]
    return Sharded(
        outcomes, max(load) * cells, crossing, len(moved) / namespaces, day_bytes / MOVED_BYTES_PER_S
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.cells", description="Simulate cells; nothing is built."
    )
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--cells", type=int, default=30)
    parser.add_argument("--namespaces", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    print("one cell, 200 requests a second and broker")
    print(
        f"{'brokers':>8} {'commits/s':>10} {'records/s':>12} {'busiest broker':>15} {'p50 ms':>8} {'p99 ms':>8}"
    )
    for brokers in (3, 10, 30, 100, 300, 1000):
        print(_line(simulate_cell(brokers, 200.0 * brokers, chosen.seconds, random.Random(chosen.seed))))
    requests = 200.0 * chosen.brokers
    found = simulate_cells(
        chosen.brokers, chosen.cells, chosen.namespaces, requests, chosen.seconds, chosen.seed
    )
    busiest = max(found.cells, key=lambda cell: cell.busiest_cpu)
    print(f"{chosen.brokers} brokers in {chosen.cells} cells: the cell with the most work")
    print(_line(busiest))
    print(
        f"all cells: {found.records_per_s:,.0f} records/s; the largest has {found.largest_share:.2f} times the "
        f"average; {found.crossing:.0%} of the routers cross cells; one more cell moves {found.moved:.1%} of the "
        f"namespaces, the largest with a day of records in {found.moving_s / 60:.0f} min"
    )


def _line(cell: Outcome) -> str:
    return (
        f"{cell.brokers:>8} {cell.commits_per_s:>10,.0f} {cell.records_per_s:>12,.0f} {cell.busiest_cpu:>15.0%} "
        f"{cell.p50_ms:>8.1f} {cell.p99_ms:>8.1f}"
    )


if __name__ == "__main__":
    main()
