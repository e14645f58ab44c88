"""OpenTelemetry traces of records from producer to consumer, for programs that enable them.

The trace context is in the record's header `traceparent`, in the W3C format, so every door and every Kafka client that
knows the header propagates it. While tracing is off, nothing is imported and no span is created.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mainstem.errors import InvalidConfig
from mainstem.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

HEADER = "traceparent"
Headers = Iterable[tuple[str, bytes | None]]

_FORM = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_MISSING = "tracing needs OpenTelemetry: pip install 'mainstem[otel]'"
_tracer: Tracer | None = None


def enable(tracer: Tracer | None = None) -> None:
    """Create spans with this tracer, or with that of the program's own tracer provider.

    Example:
        mainstem.tracing.enable()
    """
    global _tracer
    try:
        from opentelemetry import trace
    except ImportError:
        raise InvalidConfig(_MISSING) from None
    _tracer = tracer or trace.get_tracer("mainstem", VERSION)


def disable() -> None:
    """Create no more spans."""
    global _tracer
    _tracer = None


def enabled() -> bool:
    """Whether spans are created."""
    return _tracer is not None


def export_by(name: str) -> None:
    """Create spans and send them to an installed exporter: `console`, or one of another package, such as
    `otlp_proto_http`. OpenTelemetry's own environment variables set the service and the address."""
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise InvalidConfig(_MISSING) from None
    from importlib.metadata import entry_points

    found = {entry.name: entry for entry in entry_points(group="opentelemetry_traces_exporter")}
    if name not in found:
        installed = ", ".join(sorted(found))
        raise InvalidConfig(f"exporter {name!r} is not installed; installed: {installed}")
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(found[name].load()()))
    enable(trace.get_tracer("mainstem", VERSION, tracer_provider=provider))


@contextmanager
def sending(
    topic: str, records: int, traceparent: bytes | None = None
) -> Generator[tuple[tuple[str, bytes], ...]]:
    """A span for appending records, below `traceparent` or the current span. Yields the records' headers.

    While tracing is off, a valid `traceparent` is passed on unchanged."""
    if _tracer is None:
        yield ((HEADER, traceparent),) if traceparent and _FORM.fullmatch(traceparent) else ()
        return
    from opentelemetry.trace import SpanKind

    with _tracer.start_as_current_span(
        f"send {topic}",
        context=_context(traceparent),
        kind=SpanKind.PRODUCER,
        attributes=_attributes("send", topic, records),
    ) as span:
        yield ((HEADER, _traceparent(span)),)


def created(topic: str, records: int = 1) -> tuple[tuple[str, bytes], ...]:
    """The headers of records that are sent later, or with others; their span ends here."""
    with sending(topic, records) as headers:
        return headers


@contextmanager
def processing(topic: str, context: Headers | str | None) -> Generator[None]:
    """A span for processing one record, in the trace of its headers or its `trace`.

    Example:
        with mainstem.tracing.processing("orders", message.headers()):
            bill(message.value())
    """
    if _tracer is None:
        yield
        return
    from opentelemetry.trace import SpanKind

    if isinstance(context, str):
        found: bytes | None = context.encode()
    else:
        found = next((value for name, value in context or () if name == HEADER), None)
    with _tracer.start_as_current_span(
        f"process {topic}",
        context=_context(found),
        kind=SpanKind.CONSUMER,
        attributes=_attributes("process", topic, 1),
    ):
        yield


def _attributes(operation: str, topic: str, records: int) -> dict[str, str | int]:
    """Attributes by OpenTelemetry's conventions for messaging."""
    return {
        "messaging.system": "mainstem",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
        "messaging.batch.message_count": records,
    }


def _context(traceparent: bytes | None) -> Context | None:
    """The context of a header; None, which means the current one, for a missing or invalid header."""
    if traceparent is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({HEADER: traceparent.decode("ascii", "replace")})


def _traceparent(span: Span) -> bytes:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}".encode()
