"""Alerts: what an operator should look at now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mainstem.api.history import Alert, LagSample
from mainstem.broker.history import History
from mainstem.broker.namespaces import within
from mainstem.broker.transactions.service import TransactionPhase

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker

ALERTS_MAX = 50
GROWING_LAG_MIN = 1_000  # records: a smaller lag raises no alert
GROWING_LAG_FACTOR = 1.5
GROWING_LAG_MS = 300_000  # the time in which it grew by the factor …
GROWING_LAG_MS_MIN = 60_000  # … or less, if the samples do not reach back so far


def alerts(broker: Broker, history: History) -> Iterator[Alert]:
    """Alerts of the broker itself; a door adds what only it knows."""
    missing = broker.log.missing.count()
    if missing:
        yield Alert(
            "missing_records", True, f"{missing:,} records are missing, because log files are missing"
        )
    if broker.clock_ahead_ms:
        yield Alert("clock", True, f"the clock is {broker.clock_ahead_ms} ms ahead of the server's time")
    yield from _dead_letters(broker)
    for group in history.groups():
        if grows(samples := history.group(group)):
            text = f"the lag grew to {samples[-1].lag:,} records"
            yield Alert("growing_lag", False, text, group=group)
    now_ms = broker.log.now_ms()
    for info in broker.transactions.all():
        open_ms = now_ms - info.started_ms
        if info.phase is TransactionPhase.OPEN and open_ms * 2 > info.timeout_ms:
            text = f"open for {open_ms // 1000} s, and readers wait for it"
            yield Alert("hanging_transaction", False, text, transaction=info.id)


def _dead_letters(broker: Broker) -> Iterator[Alert]:
    queues: dict[str, str] = {}  # a queue of each topic of dead letters
    for topic in broker.log.ledger.topics:
        if topic.config.type == "queue" and topic.config.dead_letter:
            queues.setdefault(within(topic.namespace, topic.config.dead_letter), topic.name)
    for name, queue in queues.items():
        dead = broker.streams.get(name)
        if dead is None:
            continue
        number = int(broker.log.ledger.streams.records[list(dead.streams)].sum())
        if number:
            noun = "dead letter" if number == 1 else "dead letters"
            yield Alert("dead_letters", False, f"{number:,} {noun}", topic=queue)


def grows(samples: list[LagSample]) -> bool:
    """Whether a lag grew much in the last minutes."""
    if not samples or samples[-1].lag < GROWING_LAG_MIN:
        return False
    last = samples[-1]
    earlier = next(sample for sample in samples if sample.at_ms >= last.at_ms - GROWING_LAG_MS)
    return last.at_ms - earlier.at_ms >= GROWING_LAG_MS_MIN and last.lag >= GROWING_LAG_FACTOR * earlier.lag
