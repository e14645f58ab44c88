"""One metrics endpoint for the whole server."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

from confluent_kafka import Producer

from mainstem.testing.server import ServerProcess


def test_the_kafka_door_is_counted_on_the_metrics_endpoint(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        producer = Producer({"bootstrap.servers": str(server.address("kafka"))})
        for _ in range(3):
            producer.produce("t", b"v")
            assert producer.flush(60) == 0
        url = f"http://{server.address('http')}/v0/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            text = answer.read().decode()
    counted = re.findall(r'mainstem_kafka_request_seconds_count\{api="produce"\} ([0-9.]+)', text)
    assert [float(count) for count in counted] == [3.0]
    buckets = re.findall(
        r'mainstem_kafka_request_seconds_bucket\{api="produce",le="([^"]+)"\} ([0-9.]+)', text
    )
    totals = [float(total) for _, total in buckets]
    assert buckets[-1] == ("+Inf", "3.0")
    assert totals == sorted(totals)
    assert text.count("# TYPE mainstem_kafka_request_seconds histogram") == 1
    assert re.search(r"^mainstem_kafka_connections_accepted_total [1-9]", text, re.M)
