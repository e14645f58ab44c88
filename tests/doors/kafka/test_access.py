"""Access rules: every API in every version, and the rules by themselves."""

from __future__ import annotations

import typing
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.principal import Principal
from mainstem.broker.access.rules import (
    ALLOW,
    DENY,
    LITERAL,
    PREFIXED,
    Access,
    Operation,
    ResourceType,
)
from mainstem.broker.broker import Broker
from mainstem.doors.kafka.security.rules import RULES
from mainstem.doors.kafka.transport.registry import apis
from mainstem.ledger.access_rules import AccessRule, AccessRules, DeleteAccessRules, PutAccessRules
from mainstem.ledger.api_keys import ApiKeys
from mainstem.ledger.section import Moment
from tests.support.batches import batch

from .conftest import KafkaStage, opened
from .messages import make
from .requests import fetch, metadata, produce
from .transactional import Client

_BY_HAND = {0, 1, 3, 32, 78}
_FREE = {17, 18, 36, 60}
_FILTERED = {16, 66}  # the response is empty instead of having a code
_NO_ROOM = {(9, 1), (35, 1), (35, 2), (43, 0)}  # the response has no field for a code, and is empty
_NO_RIGHT = {29, 30, 31, 53}  # the codes for topics, groups, the cluster, transactional ids
_ME = "User:ANONYMOUS"


@pytest.fixture
async def guarded(broker: Broker) -> AsyncIterator[KafkaStage]:
    """Clients need not log in, and may only do what a rule allows."""
    async with opened(broker, access=AccessOptions(rules="on")) as stage:
        yield stage


def _rule(
    name: str,
    operation: Operation,
    permission: int = ALLOW,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: int = LITERAL,
) -> AccessRule:
    return AccessRule(kind, name, pattern, _ME, "*", operation, permission)


async def _allow(broker: Broker, *rules: AccessRule) -> None:
    await broker.log.propose(PutAccessRules(rules))


def _sample(hint: Any, name: str) -> Any:
    """A value for a field: one item in every list, the topic `t` for every name."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return (_sample(arguments[0], name),)
    if arguments and type(None) in arguments:
        return None if "cursor" in name or "topic_id" in name else _sample(arguments[0], name)
    if is_dataclass(hint) and isinstance(hint, type):
        hints = typing.get_type_hints(hint)
        return hint(**{field.name: _sample(hints[field.name], field.name) for field in fields(hint)})
    values = {
        str: "t",
        bool: False,
        bytes: b"x",
        UUID: None,
        int: 2 if "resource_type" in name else 0,
        float: 1.0,
    }
    values |= {timedelta: timedelta(seconds=1), datetime: datetime.fromtimestamp(0, UTC)}
    return next(
        value
        for kind, value in values.items()
        if issubclass(hint, kind) and (kind is not int or hint is not bool)
    )


def _codes(message: Any) -> Iterator[int]:
    for field in fields(message):
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield int(value)
        for item in value if isinstance(value, tuple) else (value,):
            if is_dataclass(item):
                yield from _codes(item)


def test_every_api_has_its_rules_in_the_table() -> None:
    assert set(apis()) - set(RULES) == _BY_HAND


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (key, version)
        for key, api in sorted(apis().items())
        if key not in {0, 1}
        for version in range(api.first, api.last + 1)
    ],
)
async def test_a_client_without_rules_is_refused_in_every_version(
    guarded: KafkaStage, key: int, version: int
) -> None:
    await guarded.broker.create_topic("t")
    before = guarded.broker.log.ledger.digest()
    wire = await guarded.connect()
    answer = await wire.ask(_sample(load_request_schema(key, version), ""))
    found = set(_codes(answer))
    if key in _FILTERED:
        assert not getattr(answer, RULES[key][0].answers)  # type: ignore[union-attr]
    elif (key, version) in _NO_ROOM:
        assert not found
    elif key not in _FREE:
        assert found & _NO_RIGHT, answer
    assert guarded.broker.log.ledger.digest() == before


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_deleting_a_rule_stops_a_producer_on_its_open_connection(
    guarded: KafkaStage, version: int
) -> None:
    broker = guarded.broker
    await broker.create_topic("t")
    await broker.create_topic("u")
    await _allow(broker, _rule("t", Operation.WRITE))
    wire = await guarded.connect()
    slice, _ = batch(b"1")
    for _ in range(3):  # the later ones use the fast path
        assert set(_codes(await wire.ask(produce(version, "t", slice)))) == {0}
    assert set(_codes(await wire.ask(produce(version, "u", slice)))) == {ErrorCode.topic_authorization_failed}
    await broker.log.propose(DeleteAccessRules((_rule("t", Operation.WRITE),)))
    assert set(_codes(await wire.ask(produce(version, "t", slice)))) == {ErrorCode.topic_authorization_failed}
    assert broker.streams.get("t") is not None
    assert broker.streams.bounds(broker.stream("t")) == (0, 3)


async def test_deleting_a_rule_stops_a_consumer_that_repeats_its_fetch(guarded: KafkaStage) -> None:
    broker = guarded.broker
    await broker.create_topic("t")
    await _allow(broker, _rule("t", Operation.READ))
    wire = await guarded.connect()
    for _ in range(3):
        assert set(_codes(await wire.ask(fetch(12, "t", (0, 0), wait_ms=1)))) == {0}
    await broker.log.propose(DeleteAccessRules((_rule("t", Operation.READ),)))
    answer = await wire.ask(fetch(12, "t", (0, 0), wait_ms=1))
    assert ErrorCode.topic_authorization_failed in set(_codes(answer))


async def test_metadata_shows_and_creates_only_permitted_topics(guarded: KafkaStage) -> None:
    broker = guarded.broker
    for name in ("seen", "hidden"):
        await broker.create_topic(name)
    await _allow(broker, _rule("seen", Operation.READ), _rule("new-", Operation.DESCRIBE, pattern=PREFIXED))
    wire = await guarded.connect()
    assert [topic.name for topic in (await wire.ask(metadata(12, all=True))).topics] == ["seen"]
    codes = {
        topic.name: topic.error_code
        for topic in (await wire.ask(metadata(12, "seen", "hidden", "new-1"))).topics
    }
    denied = ErrorCode.topic_authorization_failed
    assert codes == {"seen": ErrorCode.none, "hidden": denied, "new-1": denied}
    assert broker.streams.get("new-1") is None
    await _allow(broker, _rule("new-", Operation.CREATE, pattern=PREFIXED))
    [made] = (await wire.ask(metadata(12, "new-1"))).topics
    assert made.error_code == ErrorCode.none


async def test_a_pattern_finds_the_topics_that_the_member_may_describe(guarded: KafkaStage) -> None:
    broker = guarded.broker
    mine, theirs = [(await broker.create_topic(name)).topic_id for name in ("mine", "theirs")]
    later = _rule("theirs", Operation.READ)
    await _allow(broker, _rule("mine", Operation.READ), _rule("g", Operation.READ, kind=ResourceType.GROUP))
    wire = await guarded.connect()
    epoch, owned = 0, ()

    async def beat() -> set[bytes]:
        nonlocal epoch, owned
        values = {"group_id": "g", "member_id": "m", "member_epoch": epoch, "topic_partitions": owned}
        values |= {"rebalance_timeout": timedelta(seconds=10), "subscribed_topic_regex": ".*"}
        answer = await wire.ask(make(load_request_schema(68, 1), values))
        assert answer.error_code == ErrorCode.none
        epoch = answer.member_epoch
        if answer.assignment is not None:
            owned = tuple(
                {"topic_id": topic.topic_id, "partitions": topic.partitions}
                for topic in answer.assignment.topic_partitions
            )
        return {topic["topic_id"].bytes for topic in owned}

    assert await beat() == {mine}
    await _allow(broker, later)
    assert await beat() == {mine, theirs}
    await broker.log.propose(DeleteAccessRules((later,)))
    assert await beat() == {mine}


@pytest.mark.parametrize(("key", "version", "beat"), [(69, 1, 68), (77, 1, 76)])
async def test_a_group_is_described_to_clients_that_may_describe_its_topics(
    guarded: KafkaStage, key: int, version: int, beat: int
) -> None:
    broker = guarded.broker
    await broker.create_topic("t")
    rule = _rule("t", Operation.READ)
    await _allow(broker, rule, _rule("g", Operation.READ, kind=ResourceType.GROUP))
    wire = await guarded.connect()
    values = {"group_id": "g", "member_id": "m", "member_epoch": 0, "topic_partitions": ()}
    values |= {"rebalance_timeout": timedelta(seconds=10), "subscribed_topic_names": ("t",)}
    await wire.ask(make(load_request_schema(beat, 1), values))

    async def described() -> tuple[ErrorCode, int]:
        asked = {"group_ids": ("g",), "include_authorized_operations": False}
        [group] = (await wire.ask(make(load_request_schema(key, version), asked))).groups
        return group.error_code, len(group.members)

    assert await described() == (ErrorCode.none, 1)
    await broker.log.propose(DeleteAccessRules((rule,)))
    assert await described() == (ErrorCode.topic_authorization_failed, 0)


async def test_authorized_operations_are_those_of_the_client(guarded: KafkaStage) -> None:
    broker = guarded.broker
    await broker.create_topic("t")
    await _allow(broker, _rule("t", Operation.READ), _rule("t", Operation.ALTER_CONFIGS))
    wire = await guarded.connect()
    schema = load_request_schema(3, 10)
    request = schema(
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = await wire.ask(request)
    expected = (Operation.READ, Operation.DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)
    assert answer.topics[0].topic_authorized_operations == sum(1 << operation for operation in expected)
    assert answer.cluster_authorized_operations == 0


def _decided(rules: list[AccessRule], principal: str, host: str, operation: Operation, name: str) -> bool:
    """Evaluate the rules one by one, as documented."""
    implied = {
        Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
    }
    mine = [
        rule
        for rule in rules
        if rule.principal in (principal, "User:*") and rule.host in (host, "*") and _names(rule, name)
    ]
    exact = {operation, Operation.ALL}
    if any(rule.permission == DENY and rule.operation in exact for rule in mine):
        return False
    return any(
        rule.permission == ALLOW and rule.operation in exact | implied.get(operation, set()) for rule in mine
    )


def _names(rule: AccessRule, name: str) -> bool:
    if rule.pattern_type == LITERAL:
        return rule.resource_name in (name, "*")
    return name.startswith(rule.resource_name)


_NAMES = st.sampled_from(["a", "ab", "abc", "b"])
_PRINCIPALS = st.sampled_from(["User:x", "User:y"])
_HOSTS = st.sampled_from(["h", "i"])
_RULES = st.builds(
    AccessRule,
    st.just(int(ResourceType.TOPIC)),
    st.one_of(_NAMES, st.just("*")),
    st.sampled_from([LITERAL, PREFIXED]),
    st.one_of(_PRINCIPALS, st.just("User:*")),
    st.one_of(_HOSTS, st.just("*")),
    st.sampled_from([int(operation) for operation in Operation]),
    st.sampled_from([DENY, ALLOW]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_RULES, max_size=6), _PRINCIPALS, _HOSTS, st.sampled_from(list(Operation)[1:]), _NAMES)
def test_decisions_match_the_rules_evaluated_one_by_one(
    rules: list[AccessRule], principal: str, host: str, operation: Operation, name: str
) -> None:
    held = AccessRules()
    held.put(PutAccessRules(tuple(rules)), Moment())
    access = Access(
        SimpleNamespace(access_rules=held, api_keys=ApiKeys()),
        AccessOptions(rules="on", super_users=frozenset({"User:root"})),
    )
    expected = _decided(rules, principal, host, operation, name)
    assert access.allows(Principal(principal), host, operation, ResourceType.TOPIC, name) is expected
    assert access.allows(Principal("User:root"), host, operation, ResourceType.TOPIC, name)
    named = any(_names(rule, name) for rule in rules)
    access.configure(AccessOptions(rules="on", open_without_rules=True))
    open_now = access.allows(Principal(principal), host, operation, ResourceType.TOPIC, name)
    assert open_now is (expected if named else True)
    limited = Principal(principal, grants=(AccessRule(2, "other", LITERAL, principal, "*", 3, ALLOW),))
    if not named:
        assert not access.allows(limited, host, operation, ResourceType.TOPIC, name), "grants stay limits"
    access.configure(AccessOptions(rules="on"))
    held.delete(DeleteAccessRules(tuple(rules)), Moment())
    assert not access.allows(Principal(principal), host, operation, ResourceType.TOPIC, name)


async def test_two_phase_commit_needs_a_permission_of_its_own(broker: Broker) -> None:
    async with opened(broker, access=AccessOptions(rules="on"), two_phase_commit=True) as stage:
        client = Client(await stage.connect())
        kind = ResourceType.TRANSACTIONAL_ID
        await _allow(broker, _rule("tx", Operation.WRITE, kind=kind))
        assert await client.init(6) is ErrorCode.none
        refused = ErrorCode.transactional_id_authorization_failed
        assert await client.init(6, enable2_pc=True) is refused
        await _allow(broker, _rule("tx", Operation.TWO_PHASE_COMMIT, kind=kind))
        assert await client.init(6, enable2_pc=True) is ErrorCode.none
        assert await client.init(6, keep_prepared_txn=True) is ErrorCode.invalid_request
