"""The S3 door as an application: authenticates each request, finds its operation, and answers in S3's XML."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from time import perf_counter
from typing import Any

from mainstem import events, limits
from mainstem.api.access import CLUSTER_NAME
from mainstem.broker.access.principal import ANONYMOUS, UNRESTRICTED, Principal
from mainstem.broker.access.s3_credentials import SessionScope
from mainstem.broker.broker import Broker
from mainstem.broker.streams import ClientActivity
from mainstem.doors.budget import Budget, Pool, holder_of
from mainstem.doors.http.transport.errors import Refusal
from mainstem.doors.http.transport.origins import OriginPolicy
from mainstem.doors.http.transport.responses import Asgi, Receive, Send
from mainstem.doors.s3 import bucket_operations, object_operations, upload_operations
from mainstem.doors.s3.bodies import STEP_BYTES, ClientGone, S3Body
from mainstem.doors.s3.errors import S3Error, access_denied, as_s3_error, error_body
from mainstem.doors.s3.messages import OWNER_ID
from mainstem.doors.s3.requests import S3Request, S3Response, parse_path, parse_query
from mainstem.doors.s3.sending import FileSender, ReaderStalled
from mainstem.doors.s3.sigv2 import (
    PresignedV2,
    check_presigned_v2,
    given_presigned_v2,
    is_presigned_v2,
    with_presigned_headers,
)
from mainstem.doors.s3.sigv4 import (
    ChunkSignatures,
    Signature,
    check_signature,
    check_time,
    given_signature,
)
from mainstem.errors import MainstemError, drop_frames
from mainstem.metrics import Metric, one

REQUESTS_MAX = 4_096  # under way
DRAINED_BYTES_MAX = (
    256 * limits.KIB
)  # of a body that is not needed, so that the connection can be used again …
DRAINED_S_MAX = 0.5  # … if it arrives within this time: the response waits for it

_log = events.named("s3")

Operation = Callable[[S3Request], Awaitable[S3Response]]

SERVICE_OPERATIONS: dict[str, Operation] = {"GET": bucket_operations.list_buckets}
BUCKET_OPERATIONS: dict[str, Operation] = {
    "GET": bucket_operations.get_bucket,
    "HEAD": bucket_operations.head_bucket,
    "PUT": bucket_operations.put_bucket,
    "DELETE": bucket_operations.delete_bucket,
}
OBJECT_OPERATIONS: dict[str, Operation] = {
    "GET": object_operations.get_object,
    "HEAD": object_operations.get_object,
    "PUT": object_operations.put_object,
    "DELETE": object_operations.delete_object,
}
UPLOAD_OPERATIONS: dict[str, Operation] = {
    "GET": upload_operations.list_parts,
    "PUT": upload_operations.put_part,
    "POST": upload_operations.complete_upload,
    "DELETE": upload_operations.abort_upload,
}


def operation_of(method: str, bucket: str, key: str, query: Mapping[str, str]) -> Operation:
    """Raises S3Error."""
    table = OBJECT_OPERATIONS if key else BUCKET_OPERATIONS if bucket else SERVICE_OPERATIONS
    if key and "uploadId" in query:
        table = UPLOAD_OPERATIONS
    found = table.get(method)
    if method == "POST" and key and "uploads" in query:
        found = upload_operations.begin_upload
    elif method == "POST" and bucket and not key and "delete" in query:
        found = bucket_operations.delete_objects
    elif method == "GET" and bucket and not key and "uploads" in query:
        found = upload_operations.list_uploads
    elif method == "DELETE" and bucket and not key and query and "x-id" not in query:
        found = None  # of a setting, not of the bucket
    if found is None:
        raise S3Error(405, "MethodNotAllowed", f"{method[:16]} is not allowed here")
    return found


class S3Traffic:
    """What went through the door since it opened."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # (operation, status)
        self.seconds: Counter[str] = Counter()
        self.received_bytes = 0
        self.sent_bytes = 0

    def published(self) -> Iterator[Metric]:
        yield Metric(
            "mainstem_s3_requests_total",
            "counter",
            "Requests of the S3 door, by operation and status.",
            tuple(
                ((("operation", operation), ("status", str(status))), float(count))
                for (operation, status), count in sorted(self.requests.items())
            ),
        )
        yield Metric(
            "mainstem_s3_request_seconds_total",
            "counter",
            "Time spent on requests of the S3 door, by operation.",
            tuple(((("operation", name),), float(total)) for name, total in sorted(self.seconds.items())),
        )
        yield one(
            "mainstem_s3_received_bytes_total",
            "counter",
            "Bytes of bodies that the S3 door received.",
            self.received_bytes,
        )
        yield one(
            "mainstem_s3_sent_bytes_total",
            "counter",
            "Bytes of bodies that the S3 door sent.",
            self.sent_bytes,
        )


class S3App:
    def __init__(
        self,
        broker: Broker,
        budget: Budget,
        sender: FileSender,
        origins: OriginPolicy,
        *,
        insecure: bool = False,
    ) -> None:
        self._broker = broker
        self._budget = budget
        self._sender = sender
        self._origins = origins
        self._insecure = insecure
        self._running = Pool(lambda: REQUESTS_MAX)
        self.traffic = S3Traffic()

    @property
    def budget(self) -> Budget:
        return self._budget

    @property
    def client_activity(self) -> ClientActivity:
        return self._broker.streams.client_activity

    @property
    def authenticates(self) -> bool:
        return self._broker.access.restricted and not self._insecure

    def connected(self, transport: asyncio.Transport) -> None:
        """A connection was made."""

    def repeats(self, scope: Asgi) -> bool:
        """Every request has a signature of its own."""
        return False

    async def __call__(self, scope: Asgi, receive: Receive, send: Send) -> None:
        await self.serve(scope, receive, send, None)

    async def serve(self, scope: Asgi, receive: Receive, send: Send, write: Any) -> None:
        started = perf_counter()
        exchange = S3Exchange(self, scope, receive)
        activity = self.client_activity
        activity.tasks += 1
        try:
            response = await exchange.run()
            sent = await self._respond(exchange, response, send)
        except (ClientGone, ConnectionError, ReaderStalled):
            return
        finally:
            activity.tasks -= 1
            exchange.release()
        traffic = self.traffic
        traffic.requests[exchange.operation, response.status] += 1
        traffic.seconds[exchange.operation] += perf_counter() - started  # type: ignore[assignment]
        traffic.received_bytes += exchange.body.received if exchange.body is not None else 0
        traffic.sent_bytes += sent

    async def _respond(self, exchange: S3Exchange, response: S3Response, send: Send) -> int:
        length = len(response.body) if response.length is None else response.length
        headers = [
            (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
            for name, value in response.headers
        ]
        headers.append((b"x-amz-request-id", exchange.id.encode()))
        if response.status not in (204, 304):
            headers.append((b"content-length", b"%d" % length))
        if exchange.body is not None and not exchange.body.complete:
            if exchange.headers.get("expect", "").lower() != "100-continue":
                await exchange.body.discard(DRAINED_BYTES_MAX, DRAINED_S_MAX)
            if not exchange.body.complete:
                headers.append((b"connection", b"close"))
        if response.spans is not None:
            return await self._send_spans(response, headers, send)
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})
        return len(response.body)

    async def _send_spans(self, response: S3Response, headers: list[tuple[bytes, bytes]], send: Send) -> int:
        blobs, spans = self._broker.buckets.blobs, response.spans or []
        cycle = self._sender.cycle_of(send)
        files = await blobs.open_files(spans) if cycle is not None else None
        if cycle is not None and files is not None:
            try:
                return await self._sender.send(cycle, response.status, headers, files)
            except (OSError, ReaderStalled):
                cycle.transport.abort()
                raise ClientGone from None
            finally:
                for file in files:
                    file.close()
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        sent = 0
        async for chunk in blobs.chunks(spans):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            sent += len(chunk)
        await send({"type": "http.response.body", "body": b""})
        return sent

    # Steps of an exchange

    def check_origin(self, method: str, headers: Mapping[bytes, bytes]) -> None:
        """Raises S3Error."""
        try:
            self._origins.check(method, headers, anonymous=not self.authenticates)
        except Refusal as refusal:
            raise S3Error(refusal.status, "AccessDenied", str(refusal)) from None

    def authenticate(
        self, scope: Asgi, query: list[tuple[str, str]], headers: Mapping[str, str], host: str
    ) -> tuple[Principal, SessionScope | None, ChunkSignatures | None]:
        """Who sends a request. Raises S3Error."""
        if not self.authenticates:
            return (UNRESTRICTED if self._broker.access.restricted else ANONYMOUS), None, None
        try:
            presigned = given_presigned_v2(query)
            if presigned is not None and "authorization" not in headers:
                return self._by_presigned_v2(presigned, scope, query, headers)
            return self._by_signature(given_signature(query, headers), scope, query, headers)
        except S3Error:
            self._broker.audit.record(
                ANONYMOUS, host, "s3", "AUTHENTICATE", "cluster", CLUSTER_NAME, "denied"
            )
            raise

    def _by_signature(
        self,
        signature: Signature | None,
        scope: Asgi,
        query: list[tuple[str, str]],
        headers: Mapping[str, str],
    ) -> tuple[Principal, SessionScope | None, ChunkSignatures | None]:
        if signature is None:
            raise access_denied("this server needs signed requests: see `mainstem key s3`")
        principal, secret, session = self._known(signature.access_key_id, signature.token)
        check_time(signature, self._broker.clock.now_ms())
        check_signature(signature, secret, scope["method"], scope["raw_path"], query, headers)
        return principal, session, ChunkSignatures(signature, secret)

    def _by_presigned_v2(
        self, signature: PresignedV2, scope: Asgi, query: list[tuple[str, str]], headers: Mapping[str, str]
    ) -> tuple[Principal, SessionScope | None, None]:
        principal, secret, session = self._known(signature.access_key_id, signature.token)
        now_ms = self._broker.clock.now_ms()
        check_presigned_v2(signature, secret, scope["method"], scope["raw_path"], query, headers, now_ms)
        return principal, session, None

    def _known(self, access_key_id: str, token: str) -> tuple[Principal, str, SessionScope | None]:
        """Whose credentials these are, and their secret. Raises S3Error."""
        found = self._broker.authentication.by_s3(access_key_id, token)
        if found is None:
            if token:
                raise S3Error(400, "ExpiredToken", "the session token is invalid or has expired")
            raise S3Error(403, "InvalidAccessKeyId", "the access key id is unknown")
        return found

    def enter(self, holder: str) -> None:
        """Raises S3Error."""
        if not self._running.fits(holder, 1):
            raise S3Error(503, "SlowDown", "too many requests are under way: retry", (("retry-after", "1"),))
        self._running.take(holder, 1)

    def leave(self, holder: str) -> None:
        self._running.give(holder, 1)

    @property
    def broker(self) -> Broker:
        return self._broker


class S3Exchange:
    """One request on its way to its operation."""

    def __init__(self, app: S3App, scope: Asgi, receive: Receive) -> None:
        self._app = app
        self._scope = scope
        self._receive = receive
        self._holder = ""
        self._reserved = 0
        self.id = secrets.token_hex(8).upper()
        self.operation = "none"
        self.headers: dict[str, str] = {}
        self.body: S3Body | None = None

    async def run(self) -> S3Response:
        try:
            return await self._run()
        except S3Error as error:
            drop_frames(error)
            return self._failed(error)
        except MainstemError as error:
            drop_frames(error)
            return self._failed(as_s3_error(error))
        except (ClientGone, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - one request must not take the server down
            _log.exception("request failed", path=self._scope["path"], method=self._scope["method"])
            drop_frames(error)
            return self._failed(S3Error(500, "InternalError", f"an internal error: {type(error).__name__}"))

    async def _run(self) -> S3Response:
        app, scope = self._app, self._scope
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            self.headers[name] = f"{self.headers[name]},{value}" if name in self.headers else value
        self.body = S3Body(self._receive, self.headers, None, False)
        app.check_origin(scope["method"], dict(reversed(scope["headers"])))
        query = parse_query(scope["query_string"])
        bucket, key = parse_path(scope["raw_path"])
        operation = operation_of(scope["method"], bucket, key, dict(query))
        self.operation = operation.__name__
        if self.headers.get("x-amz-expected-bucket-owner", OWNER_ID) != OWNER_ID:
            raise access_denied("the bucket has another owner")
        host = str((scope.get("client") or ("",))[0])
        if is_presigned_v2(query):
            self.headers = with_presigned_headers(self.headers, query)
        principal, session, signatures = app.authenticate(scope, query, self.headers, host)
        holder = holder_of(principal, host)
        app.enter(holder)
        self._holder = holder
        about_body = self.headers
        if scope["method"] == "POST":  # which may declare the checksum of an object
            about_body = {
                name: value for name, value in about_body.items() if not name.startswith("x-amz-checksum-")
            }
        self.body = S3Body(self._receive, about_body, signatures, signatures is not None)
        turn = partial(app.budget.turns.wait, holder)
        request = S3Request(app.broker, scope, self.headers, query, principal, session, self.body, turn)
        if scope["method"] in ("PUT", "POST"):
            await app.budget.received.reserve(holder, 2 * STEP_BYTES)
            self._reserved = 2 * STEP_BYTES
        if app.broker.cluster.shared:
            await app.broker.barrier()  # S3 promises to show what was stored before
        return await operation(request)

    def release(self) -> None:
        if self._reserved:
            self._app.budget.received.give(self._holder, self._reserved)
            self._reserved = 0
        if self._holder:
            self._app.leave(self._holder)
            self._holder = ""

    def _failed(self, error: S3Error) -> S3Response:
        headers = [("content-type", "application/xml"), *error.headers]
        body = error_body(error, self._scope["path"], self.id)
        if self._scope["method"] == "HEAD" or error.status == 304:
            return S3Response(error.status, headers=list(error.headers), length=0)
        return S3Response(error.status, body, headers)
