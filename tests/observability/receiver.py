"""A receiver of traces: OTLP over HTTP, as a collector takes it."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.background_server import BackgroundServer

_WAIT_S = 90.0


@dataclass(frozen=True)
class Span:
    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str


class TraceReceiver(BackgroundServer):
    """Keeps every span that is sent to it. Use it as a context."""

    url = BackgroundServer.endpoint

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._changed = threading.Condition()
        super().__init__(self._handler())

    def environment(self, service: str) -> dict[str, str]:
        """What tells OpenTelemetry's own exporter to send here, and soon."""
        return {
            "OTEL_SERVICE_NAME": service,
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def wait_for(self, *names: str) -> dict[str, Span]:
        """Spans by name, once there is one of each."""
        with self._changed:
            complete = self._changed.wait_for(lambda: set(names) <= self._names(), _WAIT_S)
            assert complete, f"of {names} came {self._names()}"
            return {span.name: span for span in self._spans}

    def _names(self) -> set[str]:
        return {span.name for span in self._spans}

    def _take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            for resource in request.resource_spans:
                named = {one.key: one.value.string_value for one in resource.resource.attributes}
                self._spans += [
                    Span(
                        named["service.name"],
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                    )
                    for scope in resource.scope_spans
                    for span in scope.spans
                ]
            self._changed.notify_all()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                answer = ExportTraceServiceResponse().SerializeToString()
                known = self.path == "/v1/traces"
                if known:
                    receiver._take(body)
                self.send_response(200 if known else 404)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass  # not into the tests' output

        return Handler
