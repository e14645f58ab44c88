"""One of the two servers of Kafka's differential test: sends a request of a program, and shows the answer.

Values that a server chooses (producer ids, member ids, topic ids) are named by the slot in which the program keeps
them, so that the answers of both servers can be compared.
"""

from __future__ import annotations

import dataclasses
import io
import json
import socket
import struct
import time
import typing
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import OutOfBoundValue, SerialError

from mainstem.errors import InvalidBatch
from mainstem.records.building import build_batch
from mainstem.records.decoding import decode_records
from mainstem.records.header import walk

Answer = Any  # JSON
API_VERSIONS, METADATA, FIND_COORDINATOR = 18, 3, 10
_SHARE_COORDINATOR = 2
_COORDINATOR_S = 60.0
_LENGTH = struct.Struct(">i")
_PATIENCE_S = 5.0
_ANSWER_S = 45.0  # Kafka may take 30 seconds to describe the offsets of a share group
_AGAIN = (
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "CONCURRENT_TRANSACTIONS",
    "NOT_LEADER_OR_FOLLOWER",
)
_OWN_DEFAULTS = (
    *("retention.ms", "message.timestamp.after.max.ms", "min.insync.replicas"),
    *("consumer.heartbeat.interval.ms", "share.heartbeat.interval.ms"),
    "streams.heartbeat.interval.ms",
)
_OWN_NAMES = (
    "mainstem.",
    "message.downconversion.enable",
    "message.timestamp.difference.max.ms",
)  # of settings that Kafka does not have
_NOT_OF_ERRORS = (
    "group_state",
    "authorized_operations",
    "topic_authorized_operations",
    "log_start_offset",
    "producer_id",
    "producer_epoch",
    "topic_id",
)
_PASSING_STATUS = (3, 5)  # of streams groups: internal topics are being made, the first assignment waits
_BETWEEN_ASSIGNMENTS = ("PreparingRebalance", "CompletingRebalance")
_ACTIVE = ("Assigning", "Reconciling", "Stable")
_TOPICS_OWN = 1
_NOT_COMPARED = {
    *("throttle_time", "error_message", "message", "host", "port", "cluster_id", "controller_id"),
    *("acknowledge_error_message", "acquisition_lock_timeout", "batch_index_error_message"),
    *("partition_size", "generation_id", "last_timestamp"),
    "target_assignment",
    *("coordinator_epoch", "group_epoch", "assignment_epoch"),
    "assignment",  # when a member hears of it depends on when the assignor runs
    *("heartbeat_interval", "status_detail", "current_leader"),
    *("log_dir", "total_bytes", "usable_bytes", "size", "documentation", "is_cordoned"),
}


class UnreadableAnswer(Exception):
    """The message library cannot read an answer."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A value that an earlier answer gave, or a default."""

    name: str
    default: Any = None
    plus: int = 0


@dataclass(frozen=True, slots=True)
class TopicId:
    topic: str


@dataclass(frozen=True, slots=True)
class Batch:
    values: tuple[bytes | None, ...]
    keys: tuple[bytes | None, ...] | None = None
    producer: Slot | int = -1
    epoch: Slot | int = -1
    sequence: int = -1
    transactional: bool = False
    time_ms: int = 1_700_000_000_000
    codec: str = "none"
    damage: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    kind: str
    key: int
    version: int
    values: Mapping[str, Any]
    keep: Mapping[str, str] = field(default_factory=dict)  # slot → path in the answer
    only: str = ""  # of lists, only the entries that contain this


class KafkaSide:
    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self._port = port
        self._socket: socket.socket | None = None
        self._correlation = 0
        self.slots: dict[str, Any] = {}
        self.topics: dict[str, uuid.UUID] = {}

    def begin(self) -> None:
        self.slots.clear()
        self.topics.clear()
        self.end()

    def end(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def versions(self) -> dict[int, tuple[int, int]]:
        answer = self._request(
            make(
                load_request_schema(API_VERSIONS, 3),
                {"client_software_name": "test", "client_software_version": "1"},
            )
        )
        return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}

    def do(self, step: Step) -> Answer:
        request = make(load_request_schema(step.key, step.version), self._resolved(step.values))
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                answer = self._request(request)
            except (ConnectionError, TimeoutError) as error:
                self.end()
                return {"connection": type(error).__name__}
            if answer is None:
                return "no answer"
            shown = json.dumps(self._shown(answer), default=str)
            if not any(f'"{again}"' in shown.upper() for again in _AGAIN) or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        self._keep(step, answer)
        return self._filtered(self._shown(answer), step.only)

    def find_coordinators(self) -> None:
        """Kafka creates the topics of its coordinators when a client first asks for one."""
        for kind in (0, 1, 2):
            key = f"g:{uuid.uuid4()}:0" if kind == _SHARE_COORDINATOR else "g"
            request = make(
                load_request_schema(FIND_COORDINATOR, 6), {"key_type": kind, "coordinator_keys": [key]}
            )
            deadline = time.monotonic() + _COORDINATOR_S
            while (found := self._request(request).coordinators[0]).error_code.name in (
                "coordinator_not_available",
                "unknown_topic_or_partition",
            ):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.name} finds no coordinator: {found}")
                time.sleep(0.2)

    def learn(self, topics: list[str]) -> None:
        """Ask for the ids of topics."""
        answer = self._request(
            make(
                load_request_schema(METADATA, 12),
                {
                    "topics": [{"name": topic, "topic_id": None} for topic in topics],
                    "allow_auto_topic_creation": False,
                },
            )
        )
        for topic in answer.topics:
            if topic.topic_id is not None:
                self.topics[topic.name] = topic.topic_id

    def _keep(self, step: Step, answer: Any) -> None:
        for slot, path in step.keep.items():
            found = answer
            for part in path.split("."):
                found = found[int(part)] if part.isdigit() else getattr(found, part)
            if found not in ("", -1, None):
                self.slots[slot] = found

    # Requests

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Slot):
            found = self.slots.get(value.name, value.default)
            return max(found + value.plus, 0) if value.plus else found
        if isinstance(value, TopicId):
            return self.topics.get(value.topic, uuid.uuid5(uuid.NAMESPACE_URL, value.topic))
        if isinstance(value, Batch):
            return self._batch(value)
        if isinstance(value, Mapping):
            return {name: self._resolved(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._resolved(one) for one in value]
        return value

    def _batch(self, wanted: Batch) -> bytes:
        made = build_batch(
            wanted.values,
            keys=wanted.keys,
            timestamps_ms=wanted.time_ms,
            codec=wanted.codec,  # type: ignore[arg-type]
            producer=self._resolved(wanted.producer),
            producer_epoch=self._resolved(wanted.epoch),
            base_sequence=wanted.sequence,
            transactional=wanted.transactional,
        )
        data = bytes(made)
        if wanted.damage == "checksum":
            return data[:-1] + bytes([data[-1] ^ 1])
        if wanted.damage == "magic":
            return data[:16] + b"\x09" + data[17:]
        if wanted.damage == "cut":
            return data[:-3]
        return data

    def _request(self, request: Any) -> Any:
        connection = self._socket
        if connection is None:
            connection = self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=_ANSWER_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation += 1
        header = request.__header_schema__(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=self._correlation,
            client_id="differential",
        )
        body = _encoded(header) + _encoded(request)
        connection.sendall(_LENGTH.pack(len(body)) + body)
        if request.__api_key__ == 0 and request.acks == 0:
            return None
        (length,) = _LENGTH.unpack(_exactly(connection, 4))
        frame = _exactly(connection, length)
        schema = load_response_schema(request.__api_key__, request.__version__)
        _, at = entity_reader(schema.__header_schema__)(frame, 0)
        try:
            return _decoded(schema, frame[at:])
        except SerialError as error:
            raise UnreadableAnswer(
                f"{schema.__name__} {schema.__version__}: {error}: {frame.hex()}"
            ) from error

    # Answers

    def _shown(self, value: Any, name: str = "") -> Answer:
        if dataclasses.is_dataclass(value):
            return _comparable(
                {
                    one.name: self._shown(getattr(value, one.name), one.name)
                    for one in dataclasses.fields(value)
                    if one.name not in _NOT_COMPARED
                }
            )
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, uuid.UUID):
            return next((f"@{topic}" for topic, id in self.topics.items() if id == value), None)
        if isinstance(value, timedelta):
            return round(value.total_seconds() * 1000)
        if isinstance(value, datetime):
            return self._shown(round(value.timestamp() * 1000))
        if isinstance(value, bytes | bytearray | memoryview):
            return self._records(bytes(value)) if name == "records" else bytes(value).hex()
        if isinstance(value, tuple | list):
            shown = [
                self._shown(one) for one in value if not str(getattr(one, "name", "")).startswith(_OWN_NAMES)
            ]
            return sorted((one for one in shown if not _empty_answer(one)), key=_order)
        if isinstance(value, bool) or value is None or isinstance(value, float):
            return value
        if isinstance(value, int):
            number = int(value)
            if abs(number / 1000 - time.time()) < 86_400:
                return "now"
            if "producer_id" in name or (name == "session_id" and number):
                return self._named(number)
            return number
        return self._named(str(value))

    def _named(self, value: int | str) -> Answer:
        return next(
            (f"={slot}" for slot, kept in self.slots.items() if kept == value and _nameable(slot)), value
        )

    def _records(self, data: bytes) -> Answer:
        shown = []
        try:
            for header in walk(memoryview(data)):
                shown.append(
                    f"batch {header.base_offset} control={header.control} "
                    f"producer={self._named(header.producer)} "
                    f"sequence={header.base_sequence}"
                )
            for record in decode_records(data):
                time_shown = self._shown(record.timestamp_ms)
                shown.append(f"{record.offset} {record.key!r} {record.value!r} {time_shown}")
        except InvalidBatch:
            shown.append("cut")
        return shown

    def _filtered(self, shown: Answer, only: str) -> Answer:
        if not only or not isinstance(shown, dict):
            return shown
        return {
            name: [one for one in value if only in json.dumps(one)] if isinstance(value, list) else value
            for name, value in shown.items()
        }


def _comparable(shown: dict[str, Answer]) -> dict[str, Answer]:
    """Without what the two servers may answer as they like."""
    if shown.get("name") in _OWN_DEFAULTS and shown.get("config_source") != _TOPICS_OWN:
        return {"name": shown["name"]}
    if (
        shown.get("member_epoch") or 0
    ) > 0 and "members" not in shown:  # how often a group changes is its own affair
        shown["member_epoch"] = "some"
    if (shown.get("producer_epoch") or 0) > 0:
        shown["producer_epoch"] = "some"  # how many epochs an abort takes is its own affair
    if shown.get("aborted_transactions", "") is None:
        shown["aborted_transactions"] = []
    if shown.get("error_code", "none") != "none":
        for name in _NOT_OF_ERRORS:
            shown.pop(name, None)
        if shown["error_code"] != "member_id_required":
            shown.pop("member_id", None)
    if shown.get("acknowledge_error_code"):
        shown["acknowledge_error_code"] = "some"
    if shown.get("group_state") in _ACTIVE:
        shown["group_state"] = "active"
    if shown.get("group_state") in _BETWEEN_ASSIGNMENTS:
        for member in shown.get("members", ()):
            member.pop("member_assignment", None)
    if isinstance(shown.get("status"), list):
        shown["status"] = [one for one in shown["status"] if one["status_code"] not in _PASSING_STATUS]
    if isinstance(shown.get("groups"), list):
        shown["groups"] = [one for one in shown["groups"] if not _hidden(one)]
    if isinstance(shown.get("topics"), list):
        shown["topics"] = [one for one in shown["topics"] if not _is_internal(one)]
    return shown


def _hidden(group: Answer) -> bool:
    """Kafka shows share groups and streams groups only to clients that know of types."""
    return group.get("protocol_type") in ("share", "streams") and "group_type" not in group


def _is_internal(topic: Answer) -> bool:
    return isinstance(topic, dict) and str(topic.get("topic", "")).startswith("__")


def _empty_answer(shown: Answer) -> bool:
    """Of a partition without records in a share fetch, or of a topic of such partitions: it may be left out."""
    if not isinstance(shown, dict):
        return False
    if "acquired_records" in shown:
        return (
            not shown["acquired_records"]
            # The latter is Kafka's for a topic that it has not initialised yet.
            and shown["error_code"] in ("none", "unknown_server_error")
            and not shown["acknowledge_error_code"]
        )
    return shown.keys() == {"topic_id", "partitions"} and not shown["partitions"]


def _order(shown: Answer) -> tuple[str, str]:
    if not isinstance(shown, dict):
        return "", json.dumps(shown)
    names = ("name", "config_name", "topic", "topic_id", "topic_name", "partition_index", "producer_id")
    name = next((shown[name] for name in names if shown.get(name) not in (None, "")), "")
    return str(name), json.dumps(shown, sort_keys=True)


def _nameable(slot: str) -> bool:
    return slot.startswith(("producer ", "member ", "session"))


def _encoded(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def _decoded(schema: type[Any], body: bytes) -> Any:
    try:
        return entity_reader(schema)(body, 0)[0]
    except OutOfBoundValue:  # the library refuses the time -1, which stands for none
        return entity_reader(schema)(body.replace(b"\xff" * 8, bytes(8)), 0)[0]


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise ConnectionResetError("the server closed the connection")
        found += more
    return bytes(found)


# Messages from plain values

_EMPTY: tuple[tuple[type[Any], Any], ...] = (
    (bool, False),
    (int, 0),
    (float, 0.0),
    (str, ""),
    (bytes, b""),
    (uuid.UUID, None),
    (timedelta, timedelta(0)),
    (datetime, datetime.fromtimestamp(0, UTC)),
)


def make(schema: type[Any], values: Mapping[str, Any]) -> Any:
    """A message: values without a field in this version are left out, and fields without a value are empty."""
    hints = typing.get_type_hints(schema)
    made = {}
    for one in dataclasses.fields(schema):
        if one.name in values:
            made[one.name] = _made(hints[one.name], values[one.name])
        elif one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING:
            made[one.name] = _empty(hints[one.name])
    return schema(**made)


def _made(hint: Any, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_made(hint, item) for item in value)
    if isinstance(value, dict):
        inner = _message_in(hint)
        if inner is None:
            raise TypeError(f"{hint} is no message")
        return make(inner, value)
    return value


def _message_in(hint: Any) -> type[Any] | None:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    return next((found for part in typing.get_args(hint) if (found := _message_in(part))), None)


def _empty(hint: Any) -> Any:
    parts = (hint, *typing.get_args(hint))
    if type(None) in parts:
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    for part in parts:
        plain = part
        while hasattr(plain, "__supertype__"):
            plain = plain.__supertype__
        for kind, value in _EMPTY:
            if isinstance(plain, type) and issubclass(plain, kind):
                return value
    raise TypeError(f"nothing is known for {hint}")
