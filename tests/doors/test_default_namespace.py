"""`default/orders` is the topic `orders`: rules and rates that hold for one name hold for the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainstem.api.access import ALLOW, DENY, LITERAL, PREFIXED, Operation, ResourceType
from mainstem.broker.broker import Broker
from mainstem.ledger.access_rules import AccessRule
from mainstem.ledger.namespaces import AddNamespace, NamespacePolicies
from mainstem.ledger.rates import AlterRate, RateEntity

from .test_all_doors import House, house, keys

BODY = {"records": [{"data": 1}]}


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path, keys("owner,some:rw,letter:rw:d")) as opened:
        for name in ("orders", "__audit"):
            await opened.broker.create_topic(name, exist_ok=True)
        yield opened


async def _write(doors: House, key: str, name: str) -> int:
    headers = {"authorization": f"Bearer {key}"}
    path = f"/v0/topics/{name.replace('/', '%2F')}"
    return (await doors.api.client.post(path, json=BODY, headers=headers)).status_code


def _principal(broker: Broker, key: str) -> str:
    principal = broker.authentication.by_key(key.encode())
    assert principal is not None
    return principal.name


async def _rule(broker: Broker, principal: str, name: str, pattern: int, permission: int) -> None:
    kind, operation = ResourceType.TOPIC.value, Operation.WRITE.value
    await broker.security.put_rules([AccessRule(kind, name, pattern, principal, "*", operation, permission)])


async def test_the_audit_log_is_written_by_the_server_under_either_name(doors: House) -> None:
    for name in ("__audit", "default/__audit"):
        assert await _write(doors, "some", name) == 403


@pytest.mark.parametrize(
    ("rule", "pattern"),
    [("orders", LITERAL), ("ord", PREFIXED), ("default/orders", LITERAL), ("default/", PREFIXED)],
)
async def test_a_denied_topic_is_denied_under_either_name(doors: House, rule: str, pattern: int) -> None:
    assert await _write(doors, "some", "default/orders") == 200
    await _rule(doors.broker, _principal(doors.broker, "some"), rule, pattern, DENY)
    for name in ("orders", "default/orders"):
        assert await _write(doors, "some", name) == 403, name


async def test_a_key_for_a_prefix_reaches_no_other_topics_by_their_longer_names(doors: House) -> None:
    for name in ("orders", "default/orders"):
        assert await _write(doors, "letter", name) == 403, name
    await _rule(doors.broker, _principal(doors.broker, "letter"), "default/orders", LITERAL, ALLOW)
    for name in ("orders", "default/orders"):
        assert await _write(doors, "letter", name) == 200, name


async def test_a_namespace_admits_its_principals_under_every_name_of_its_topics(doors: House) -> None:
    policies = NamespacePolicies(principals=(_principal(doors.broker, "owner"),))
    await doors.broker.log.propose(AddNamespace("acme", policies))
    await doors.broker.create_topic("acme/t")
    for name in ("acme/t", "default/acme/t"):
        assert await _write(doors, "some", name) == 403, name


async def test_the_rate_of_a_topic_holds_under_either_name(doors: House) -> None:
    rates = doors.broker.rates
    await rates.alter(AlterRate(RateEntity(topic="orders"), (("producer_byte_rate", 1.0),)))
    principal = doors.broker.authentication.by_key(b"some")
    assert principal is not None
    assert rates.producing(principal, "orders") is rates.producing(principal, "default/orders") is not None


async def test_names_that_no_topic_can_have_are_not_kept(doors: House) -> None:
    rates = doors.broker.rates
    await rates.alter(AlterRate(RateEntity(topic="orders"), (("producer_byte_rate", 1.0),)))
    assert rates.scope(f"{'x' * 10_000}/t") == ""
    assert rates.scope("acme/t") == "acme/"
