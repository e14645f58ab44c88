"""Serve text requests by broker calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from mainstem import limits
from mainstem.broker.access.principal import ANONYMOUS, Principal
from mainstem.broker.access.rules import Operation
from mainstem.broker.append import Waiter
from mainstem.broker.broker import Broker
from mainstem.broker.groups.cursors import SHARED_CURSOR
from mainstem.broker.namespaces import NamespaceView
from mainstem.doors.text import status
from mainstem.doors.text.caller import TextCaller
from mainstem.doors.text.requests import (
    AuthRequest,
    GetRequest,
    MetricsRequest,
    PutRequest,
    RegisterRequest,
    Request,
    RequestRefused,
    StateRequest,
)
from mainstem.errors import MainstemError, TooLarge, TopicFull, TopicNotFound, drop_frames, invariant

OK = b"OK"
TAKEN = b"OK "  # before a record's value
EMPTY = b"EMPTY"
FORBIDDEN = b"ERR forbidden"
_ERROR = b"ERR "
_AUTHENTICATION_REQUIRED = b"ERR authentication required"

_BATCH_OVERHEAD_BYTES = 61  # the header of a record batch
_RECORD_OVERHEAD_BYTES = 24  # at most what a batch adds to a value without key and headers


class TextService:
    """Serves runs of requests. One for all connections of a door."""

    def __init__(
        self,
        broker: Broker,
        node: status.SegmentLeader,
        *,
        insecure: bool = False,
        view: NamespaceView | None = None,
    ) -> None:
        self._broker = broker
        self.client_activity = broker.streams.client_activity
        self._view = view
        self._rates = broker.rates.stored
        self._insecure = insecure
        self._node = node
        self._one_of_several = broker.options.workers  # behind one port

    def caller(self, host: str) -> TextCaller:
        """For a new connection."""
        return TextCaller(self._broker, host, insecure=self._insecure, view=self._view)

    def put(self, put: PutRequest, caller: TextCaller, waiter: Waiter) -> bool:
        """Append a payload that is the only request of its client. The waiter gets the outcome. False: use `answer`."""
        if self._one_of_several or caller.view is not None or self._rates.active:
            return False
        topic = self._broker.streams.get(put.topic)
        if topic is None or not caller.may(Operation.WRITE, put.topic):
            return False
        try:
            self._broker.appends.value(topic, put.payload, waiter)
        except MainstemError:
            return False  # to be sent the reason
        return True

    async def answer(self, run: Sequence[Request], caller: TextCaller) -> list[bytes]:
        """One response per request, in order. `next_run` makes the runs."""
        view = caller.view
        if view is None:
            await self._know_topics(run)
            return await self._answer(run, caller)
        run = [_qualified(view, request) for request in run]
        await self._know_topics(run)
        answers = await self._answer(run, caller)
        return [
            view.text(answer.decode()).encode() if answer.startswith(_ERROR) else answer for answer in answers
        ]

    async def _know_topics(self, run: Sequence[Request]) -> None:
        """Before this broker says that a topic is unknown, or what the log holds: another one may know more."""
        if self._one_of_several:
            await self._broker.catch_up()
        elif self._broker.cluster.shared:
            known = self._broker.streams.get
            if isinstance(run[0], StateRequest | MetricsRequest) or any(
                known(request.topic) is None
                for request in run
                if isinstance(request, PutRequest | GetRequest)
            ):
                await self._broker.refresh()

    async def _answer(self, run: Sequence[Request], caller: TextCaller) -> list[bytes]:
        first = run[0]
        if isinstance(first, AuthRequest):
            answers = [OK if await caller.authenticate(first) else FORBIDDEN]
        elif caller.principal is None and not (isinstance(first, RequestRefused) and first.closes):
            answers = [_AUTHENTICATION_REQUIRED] * len(run)
        elif isinstance(first, PutRequest):
            answers = await self._put_all(cast("Sequence[PutRequest]", run), caller)
        elif isinstance(first, GetRequest):
            answers = [FORBIDDEN] * len(run)
            if caller.may(Operation.READ, first.topic):
                answers = await self._get(first.topic, len(run))
        else:
            answers = [await self._serve_one(first, caller)]
        invariant(len(answers) == len(run), "every request has one answer")
        if FORBIDDEN in answers:
            self._audit(run, answers, caller)
        elif isinstance(first, RegisterRequest) and answers[0] == OK:
            caller.audit("CREATE", first.topic, "done")
        if self._rates.active:
            await self._throttle(run, answers, caller.principal or ANONYMOUS)
        return answers

    def _audit(self, run: Sequence[Request], answers: Sequence[bytes], caller: TextCaller) -> None:
        for request, answer in zip(run, answers, strict=True):
            if answer == FORBIDDEN:
                operation = type(request).__name__.removesuffix("Request").upper()
                caller.audit(operation, getattr(request, "topic", ""), "denied")

    async def _throttle(self, run: Sequence[Request], answers: Sequence[bytes], principal: Principal) -> None:
        """Count a run against the client's rates, and delay its responses accordingly."""
        rates, held_ms = self._broker.rates, 0
        first = run[0]
        if isinstance(first, PutRequest):
            for put in cast("Sequence[PutRequest]", run):
                held_ms = max(held_ms, rates.produce(principal, put.topic, len(put.payload), 1))
        elif isinstance(first, GetRequest):
            taken = [len(answer) - len(TAKEN) for answer in answers if answer.startswith(TAKEN)]
            held_ms = rates.consume(principal, first.topic, SHARED_CURSOR, sum(taken), len(taken))
        if held_ms:
            await asyncio.sleep(held_ms / 1000)

    async def _serve_one(self, request: Request, caller: TextCaller) -> bytes:
        try:
            match request:
                case RequestRefused(answer):
                    return answer
                case RegisterRequest(topic):
                    known = self._broker.streams.get(topic) is not None
                    if not (caller.may(Operation.DESCRIBE, topic) if known else caller.may_create(topic)):
                        return FORBIDDEN
                    partitions = self._broker.namespaces.default_partitions(topic)
                    await self._broker.create_topic(topic, partitions=partitions, exist_ok=True)
                    return OK
                case StateRequest(topic):
                    if not caller.may(Operation.DESCRIBE, topic):
                        return FORBIDDEN
                    return status.topic_state(self._broker, self._node, topic)
                case MetricsRequest():
                    return status.metrics(self._broker, self._node)
                case PutRequest() | GetRequest() | AuthRequest():
                    invariant(False, "PUT, GET and AUTH are served as runs")
        except MainstemError as error:
            return refusal(error)
        return OK

    async def _put_all(self, puts: Sequence[PutRequest], caller: TextCaller) -> list[bytes]:
        """One append per topic, concurrently: within a topic, the order is that of the connection."""
        topic = puts[0].topic
        if all(put.topic == topic for put in puts):  # without a task, which a busy event loop starts late
            return await self._put(topic, [put.payload for put in puts], caller)
        by_topic: dict[str, list[int]] = {}
        for index, put in enumerate(puts):
            by_topic.setdefault(put.topic, []).append(index)
        served = await asyncio.gather(
            *(
                self._put(topic, [puts[index].payload for index in indexes], caller)
                for topic, indexes in by_topic.items()
            )
        )
        answers = [b""] * len(puts)
        for indexes, topic_answers in zip(by_topic.values(), served, strict=True):
            for index, answer in zip(indexes, topic_answers, strict=True):
                answers[index] = answer
        return answers

    async def _put(self, topic: str, payloads: list[bytes], caller: TextCaller) -> list[bytes]:
        """Small batches, appended concurrently: they share a commit, and a GET need not unpack a large batch."""
        if not caller.may(Operation.WRITE, topic):
            return [FORBIDDEN] * len(payloads)
        try:
            config = self._broker.topic(topic).config
        except MainstemError as error:
            return [refusal(error)] * len(payloads)
        batches = list(_batches(payloads, config.max_message_bytes))
        if len(batches) == 1:
            return await self._append(topic, batches[0])
        if config.discard == "reject":
            # Whether a batch fits depends on those before it, so each is settled before the next one starts.
            served = [await self._append(topic, batch) for batch in batches]
        else:
            served = await asyncio.gather(*(self._append(topic, batch) for batch in batches))
        return [answer for answers in served for answer in answers]

    async def _append(self, topic: str, payloads: list[bytes]) -> list[bytes]:
        try:
            await self._broker.append_values(topic, payloads)
        except (TooLarge, TopicFull) as error:
            # Some of a refused batch may fit alone. Halving in order gives the same result as one by one.
            if len(payloads) == 1:
                return [refusal(error)]
            half = len(payloads) // 2
            return await self._append(topic, payloads[:half]) + await self._append(topic, payloads[half:])
        except MainstemError as error:
            return [refusal(error)] * len(payloads)
        return [OK] * len(payloads)

    async def _get(self, topic: str, count: int) -> list[bytes]:
        """Read the partitions in order, the lowest with records first."""
        answers: list[bytes] = []
        try:
            for partition in range(self._broker.topic(topic).partitions):
                # Fewer records than requested can mean a loss; none means the end.
                while records := await self._take(topic, partition, count - len(answers)):
                    answers += records
                    if len(answers) == count:
                        return answers
        except MainstemError as error:
            # The client gets the records read before the error; the rest of the run gets the error.
            return answers + [refusal(error)] * (count - len(answers))
        return answers + [EMPTY] * (count - len(answers))

    async def _take(self, topic: str, partition: int, limit: int) -> list[bytes]:
        records = await self._broker.take(topic, SHARED_CURSOR, partition=partition, limit=limit)
        return [TAKEN + (record.value or b"") for record in records]


def _qualified(view: NamespaceView, request: Request) -> Request:
    """A request of a bound client, with the full name of its topic."""
    if isinstance(request, PutRequest | GetRequest | RegisterRequest | StateRequest):
        return replace(request, topic=view.topic(request.topic))
    return request


def _batches(payloads: list[bytes], max_bytes: int) -> Iterator[list[bytes]]:
    """Batches within the topic's limit. A payload over the limit forms its own batch, which is refused."""
    batch: list[bytes] = []
    size = _BATCH_OVERHEAD_BYTES
    for payload in payloads:
        size += len(payload) + _RECORD_OVERHEAD_BYTES
        if batch and (size > max_bytes or len(batch) == limits.TEXT_BATCH_RECORDS_MAX):
            yield batch
            batch = []
            size = _BATCH_OVERHEAD_BYTES + len(payload) + _RECORD_OVERHEAD_BYTES
        batch.append(payload)
    yield batch


def refusal(error: MainstemError) -> bytes:
    """The response to a request that the broker refused."""
    drop_frames(error)
    if isinstance(error, TopicNotFound):
        return f"ERR unknown topic {error.topic}".encode()
    return f"ERR {error}".encode()
