"""Acknowledgement latency of single records at a constant rate, with librdkafka."""

from __future__ import annotations

import threading
import time
from typing import Any

from tools.bench.report import Figure, Report


def acknowledged_s(bootstrap: str, topic: str, rate: int, seconds: float) -> list[float]:
    """From the call to the acknowledgement, of each record."""
    from confluent_kafka import Producer

    taken: list[float] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.produce(topic, b"the first one connects")
    producer.flush(30)
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            producer.poll(0.01)

    poller = threading.Thread(target=poll)
    poller.start()
    began = time.perf_counter()
    for number in range(int(rate * seconds)):
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        sent = time.perf_counter()

        def acked(error: Any, _: Any, sent: float = sent) -> None:
            if error is None:
                taken.append(time.perf_counter() - sent)

        producer.produce(topic, b"x" * 100, callback=acked)
    left = producer.flush(30)
    stop.set()
    poller.join()
    if left or len(taken) < int(rate * seconds):
        raise SystemExit(f"of {int(rate * seconds)} records {len(taken)} were acknowledged")
    return taken


def percentiles(report: Report, what: str, taken_s: list[float], bar_ms: float | None) -> None:
    """Report the median and the 99th percentile, which the bar is for."""
    taken_s.sort()
    p50, p99 = (taken_s[int(len(taken_s) * part)] * 1000 for part in (0.5, 0.99))
    report.add(Figure(f"{what} p50", p50, "ms", lower_is_better=True))
    report.add(Figure(f"{what} p99", p99, "ms", bar_ms, lower_is_better=True))
