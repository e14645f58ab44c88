"""What clients of the Pulsar protocol may do with subscriptions of others, and after they lose their rights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mainstem.doors.pulsar.errors import ServerError
from mainstem.doors.pulsar.wire import simple_frame
from mainstem.testing.server import ServerProcess

from .raw_client import RawClient

_TOPIC = "persistent://public/default/t"


@pytest.fixture
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    keys = {"MAINSTEM_API_KEYS": "boss"}
    flags = ("--text", "off", "--kafka", "off", "--s3", "off")
    with ServerProcess(tmp_path_factory.mktemp("rights") / "data", *flags, env=keys) as server:
        _ask(server, "PUT", "/v0/users/ann", {"password": "secret"})
        yield server


def _ask(server: ServerProcess, method: str, path: str, body: Any) -> None:
    headers = {"authorization": "Bearer boss"}
    url = f"http://{server.address('http')}{path}"
    httpx.request(method, url, json=body, headers=headers, timeout=60).raise_for_status()


def _rule(operation: str, resource: str, name: str) -> dict[str, str]:
    return {"principal": "User:ann", "operation": operation, "resource": resource, "name": name}


def _allow(server: ServerProcess, *rules: dict[str, str]) -> None:
    _ask(server, "POST", "/v0/acls", {"rules": list(rules)})


def _client(server: ServerProcess, method: str, data: bytes) -> RawClient:
    client = RawClient(server)
    frame = simple_frame(
        "connect", client_version="test", protocol_version=21, auth_method_name=method, auth_data=data
    )
    assert client.ask(frame).HasField("connected")
    return client


def _subscribe(name: str, *, durable: bool = True) -> bytes:
    return simple_frame(
        "subscribe",
        topic=_TOPIC,
        subscription=name,
        subType=0,
        consumer_id=1,
        request_id=1,
        durable=durable,
    )


def _code(answer: Any) -> Any:
    return ServerError(answer.error.error) if answer.HasField("error") else None


def test_a_producer_creates_no_subscription_that_it_may_not_use(guarded: ServerProcess) -> None:
    producer = simple_frame(
        "producer", topic=_TOPIC, producer_id=1, request_id=1, initial_subscription_name="theirs"
    )
    with _client(guarded, "token", b"boss") as boss:
        assert boss.ask(_subscribe("mine")).HasField("success")
    _allow(guarded, _rule("write", "topic", "t"))
    with _client(guarded, "basic", b"ann:secret") as ann:
        assert _code(ann.ask(producer)) is ServerError.AUTHORIZATION
    _allow(guarded, _rule("read", "topic", "t"), _rule("read", "group", "theirs"))
    with _client(guarded, "basic", b"ann:secret") as ann:
        assert ann.ask(producer).HasField("producer_success")


def test_a_reader_does_not_take_the_name_of_a_subscription_of_others(guarded: ServerProcess) -> None:
    with _client(guarded, "token", b"boss") as boss:
        assert boss.ask(_subscribe("theirs")).HasField("success")
    _allow(guarded, _rule("read", "topic", "t"))
    with _client(guarded, "basic", b"ann:secret") as ann:
        assert _code(ann.ask(_subscribe("theirs", durable=False))) is ServerError.AUTHORIZATION
        assert ann.ask(_subscribe("reader-1", durable=False)).HasField("success")


def test_nothing_is_left_of_a_reader_that_lost_its_rights(guarded: ServerProcess) -> None:
    with _client(guarded, "token", b"boss") as boss:
        assert boss.ask(_subscribe("theirs")).HasField("success")
    rule = _rule("read", "topic", "t")
    _allow(guarded, rule)
    with _client(guarded, "basic", b"ann:secret") as ann:
        assert ann.ask(_subscribe("reader-2", durable=False)).HasField("success")
        _ask(guarded, "POST", "/v0/acls/delete", {"rules": [rule]})
        assert ann.ask(simple_frame("seek", consumer_id=1, request_id=2, message_publish_time=1)).HasField(
            "close_consumer"
        )
        answer = httpx.get(
            f"http://{guarded.address('http')}/admin/v2/persistent/public/default/t/stats",
            headers={"authorization": "Bearer boss"},
        )
        assert "reader-2" not in answer.json()["subscriptions"]


@pytest.mark.parametrize("lost", ["topic", "group"])
def test_a_consumer_that_lost_its_rights_changes_nothing(guarded: ServerProcess, lost: str) -> None:
    with _client(guarded, "token", b"boss") as boss:
        assert boss.ask(_subscribe("theirs")).HasField("success")
    rules = {"topic": _rule("read", "topic", "t"), "group": _rule("read", "group", "theirs")}
    seek = simple_frame("seek", consumer_id=1, request_id=2, message_publish_time=1)
    unsubscribe = simple_frame("unsubscribe", consumer_id=1, request_id=3, force=True)
    for command in (seek, unsubscribe):
        _allow(guarded, *rules.values())
        with _client(guarded, "basic", b"ann:secret") as ann:
            assert ann.ask(_subscribe("theirs")).HasField("success")
            _ask(guarded, "POST", "/v0/acls/delete", {"rules": [rules[lost]]})
            assert ann.ask(command).HasField("close_consumer")
            assert _code(ann.receive()) is ServerError.AUTHORIZATION
    with _client(guarded, "token", b"boss") as boss:
        answer = httpx.get(
            f"http://{guarded.address('http')}/admin/v2/persistent/public/default/t/subscriptions",
            headers={"authorization": "Bearer boss"},
        )
        assert answer.json() == ["theirs"]
