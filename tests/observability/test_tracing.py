"""Traces go with the records, through every door that carries headers."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mainstem import tracing
from mainstem.client.responses import ConsumerRecord
from mainstem.errors import InvalidConfig
from mainstem.testing.broker import ThrowAwayBroker, throw_away_broker

_GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def broker() -> Iterator[ThrowAwayBroker]:
    with throw_away_broker() as broker:
        yield broker


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    provider = TracerProvider()
    tracing.enable(provider.get_tracer("test"))
    yield provider
    tracing.disable()
    provider.shutdown()


@pytest.fixture
def spans(provider: TracerProvider) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


def only_record(broker: ThrowAwayBroker, topic: str) -> ConsumerRecord:
    (record,) = broker.client.read(topic)
    assert isinstance(record, ConsumerRecord)
    return record


def by_name(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans.get_finished_spans()}


def child_of(child: ReadableSpan, parent: ReadableSpan) -> bool:
    assert parent.context is not None
    return child.parent is not None and (child.parent.trace_id, child.parent.span_id) == (
        parent.context.trace_id,
        parent.context.span_id,
    )


def test_a_record_is_processed_in_the_trace_it_was_sent_in(
    broker: ThrowAwayBroker, provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    with provider.get_tracer("program").start_as_current_span("checkout"):
        broker.client.produce("traced", {"id": 1}, key="k", headers=[("mine", b"1")])
    record = only_record(broker, "traced")
    with tracing.processing("traced", record.trace):
        pass
    found = by_name(spans)
    assert child_of(found["send traced"], found["checkout"])
    assert child_of(found["process traced"], found["send traced"])
    assert (record.value, record.key) == ({"id": 1}, "k")
    attributes = found["send traced"].attributes
    assert attributes is not None
    assert attributes["messaging.destination.name"] == "traced"


def test_kafka_clients_get_the_context_as_a_header(
    broker: ThrowAwayBroker, spans: InMemorySpanExporter
) -> None:
    broker.client.produce_batch("traced.kafka", [b"v"], headers=[[("mine", b"1")]])
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["traced.kafka"])
    message = consumer.poll(30)
    headers = message.headers()
    consumer.close()
    assert [name for name, _ in headers] == ["mine", "traceparent"]
    with tracing.processing("traced.kafka", headers):
        pass
    found = by_name(spans)
    assert child_of(found["process traced.kafka"], found["send traced.kafka"])


def test_each_record_of_a_batching_producer_has_a_context_of_its_own(
    broker: ThrowAwayBroker, spans: InMemorySpanExporter
) -> None:
    with broker.client.producer("traced.many") as producer:
        for number in range(300):
            producer.send({"n": number})
    records = [one for one in broker.client.read("traced.many") if isinstance(one, ConsumerRecord)]
    assert [one.value["n"] for one in records] == list(range(300))
    assert len({one.trace for one in records}) == 300
    assert len(spans.get_finished_spans()) == 300


def test_a_context_sent_over_http_stays_with_the_record_though_the_server_does_not_trace(
    broker: ThrowAwayBroker, spans: InMemorySpanExporter
) -> None:
    post(broker, "traced.http", _GIVEN)
    record = only_record(broker, "traced.http")
    assert record.trace == _GIVEN


@pytest.mark.parametrize("nonsense", ["", "x" * 8000, "00-zz-zz-00", _GIVEN + "0"])
def test_a_context_that_makes_no_sense_is_not_stored(
    broker: ThrowAwayBroker, spans: InMemorySpanExporter, nonsense: str
) -> None:
    topic = f"traced.nonsense.{len(nonsense)}"
    post(broker, topic, nonsense)
    record = only_record(broker, topic)
    assert (record.value, record.trace) == (1, None)
    with tracing.processing(topic, nonsense):  # a trace of its own
        pass
    assert by_name(spans)[f"process {topic}"].parent is None


def test_without_tracing_records_carry_nothing_and_nothing_is_imported(broker: ThrowAwayBroker) -> None:
    broker.client.produce("plain", {"id": 1})
    with tracing.processing("plain", None):
        pass
    page = json.loads(diff(broker, "plain", include_trace=True))
    assert "$trace" not in page["records"][0]
    import subprocess

    code = "import mainstem, mainstem.client.sync, sys; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_an_exporter_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidConfig, match="no exporter 'nowhere' is installed: there is console"):
        tracing.export_by("nowhere")
    assert not tracing.enabled()


def test_a_server_that_traces_stands_between_client_and_record() -> None:
    with throw_away_broker("--traces", "console") as tracing_broker:
        post(tracing_broker, "t", _GIVEN)
        (record,) = json.loads(diff(tracing_broker, "t", include_trace=True))["records"]
    version, trace_id, span_id, _ = record["$trace"].split("-")
    _, given_trace, given_span, _ = _GIVEN.split("-")
    assert (version, trace_id) == ("00", given_trace)
    assert span_id != given_span


def post(broker: ThrowAwayBroker, topic: str, traceparent: str) -> None:
    request = urllib.request.Request(
        f"{broker.url}/v0/topics/{topic}",
        b'{"records":[{"data":1}]}',
        {"content-type": "application/json", "traceparent": traceparent},
    )
    urllib.request.urlopen(request, timeout=30).close()


def diff(broker: ThrowAwayBroker, topic: str, **body: object) -> bytes:
    request = urllib.request.Request(
        f"{broker.url}/v0/topics/{topic}/diff",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: bytes = answer.read()
        return found
