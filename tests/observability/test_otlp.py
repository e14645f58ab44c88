"""Traces all the way: a server that exports, clients that export, and a receiver that puts them together."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Consumer
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from mainstem import tracing
from mainstem.client.responses import ConsumerRecord
from mainstem.client.sync_worker import Job
from mainstem.testing.broker import ThrowAwayBroker, throw_away_broker

from .receiver import Span, TraceReceiver

_TRACE = "0af7651916cd43dd8448eb211c80319c"
_CALLER = "b7ad6b7169203331"
_GIVEN = {"traceparent": f"00-{_TRACE}-{_CALLER}-01"}


@pytest.fixture(scope="module")
def receiver() -> Iterator[TraceReceiver]:
    with TraceReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def broker(receiver: TraceReceiver) -> Iterator[ThrowAwayBroker]:
    """A server that sends its spans there, by the exporter that people install."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in receiver.environment("mainstem-server").items():
            patch.setenv(name, value)
        with throw_away_broker("--traces", "otlp_proto_http") as broker:
            yield broker


@pytest.fixture
def traced(receiver: TraceReceiver) -> Iterator[None]:
    """This program traces as well, as a service of its own."""
    provider = TracerProvider(resource=Resource.create({"service.name": "billing"}))
    exporter = OTLPSpanExporter(f"{receiver.url}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.enable(provider.get_tracer("billing"))
    yield
    tracing.disable()
    provider.shutdown()


def posted(broker: ThrowAwayBroker, topic: str, data: object) -> None:
    """By a program that knows of traces but not of Mainstem."""
    answer = httpx.post(
        f"{broker.url}/v0/topics/{topic}", json={"records": [{"data": data}]}, headers=_GIVEN, timeout=60
    )
    answer.raise_for_status()


def one_trace(receiver: TraceReceiver, topic: str) -> None:
    """Caller → the server's span → the span of the record's handler."""
    spans = receiver.wait_for(f"send {topic}", f"process {topic}")
    sent, processed = spans[f"send {topic}"], spans[f"process {topic}"]
    assert sent == Span("mainstem-server", f"send {topic}", _TRACE, sent.span_id, _CALLER)
    assert processed == Span("billing", f"process {topic}", _TRACE, processed.span_id, parent_id=sent.span_id)


def test_from_http_to_a_kafka_consumer(
    broker: ThrowAwayBroker, receiver: TraceReceiver, traced: None
) -> None:
    posted(broker, "to.kafka", {"id": 1})
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["to.kafka"])
    message = consumer.poll(30)
    with tracing.processing("to.kafka", message.headers()):
        pass
    consumer.close()
    one_trace(receiver, "to.kafka")


def test_from_http_to_a_watcher(broker: ThrowAwayBroker, receiver: TraceReceiver, traced: None) -> None:
    posted(broker, "to.watch", {"id": 1})
    record = next(
        event for event in broker.client.watch({"to.watch": 0}) if isinstance(event, ConsumerRecord)
    )
    with tracing.processing("to.watch", record.trace):
        pass
    one_trace(receiver, "to.watch")


def test_from_http_to_a_worker_on_a_queue(
    broker: ThrowAwayBroker, receiver: TraceReceiver, traced: None
) -> None:
    broker.client.create_topic("to.queue", type="queue")
    posted(broker, "to.queue", {"id": 1})
    worker = broker.client.worker("to.queue")

    def handle(job: Job) -> None:
        runner.stop()

    runner = worker(handle)
    runner.run()
    one_trace(receiver, "to.queue")


def test_a_claim_carries_the_context_and_one_without_any_has_no_field_for_it(broker: ThrowAwayBroker) -> None:
    broker.client.create_topic("claimed", type="queue")
    posted(broker, "claimed", 1)
    (job,) = broker.client.claim("claimed", node="n")
    assert job.trace is not None
    assert job.trace.split("-")[1] == _TRACE
    broker.client.produce_batch("claimed", [b"2"])
    answer = httpx.post(f"{broker.url}/v0/topics/claimed/claim", json={"node": "n"}, timeout=60).json()
    assert "$trace" not in answer["claimed"][0]


def test_watchers_see_the_context_only_if_they_ask(broker: ThrowAwayBroker) -> None:
    posted(broker, "asked", 1)

    def first_frame(**asked: object) -> dict[str, object]:
        session = httpx.post(
            f"{broker.url}/v0/watch", json={"topics": {"asked": {}}, **asked}, timeout=60
        ).json()
        with httpx.stream("GET", f"{broker.url}{session['stream_url']}", timeout=30) as stream:
            line = next(line for line in stream.iter_lines() if line.startswith('data: {"topic"'))
        found: dict[str, object] = json.loads(line.removeprefix("data: "))["records"][0]
        return found

    assert "$trace" not in first_frame()
    assert str(first_frame(include_trace=True)["$trace"]).split("-")[1] == _TRACE
