"""What the check of an allowed call costs: 1,000 rules, with and without a namespace that the client is bound to."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mainstem.api.access import ALLOW, LITERAL, PREFIXED, Operation, ResourceType
from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.principal import Principal
from mainstem.broker.access.rules import Access
from mainstem.broker.namespaces import NamespaceView
from mainstem.ledger.access_rules import AccessRule, AccessRules, PutAccessRules
from mainstem.ledger.api_keys import ApiKeys
from mainstem.ledger.section import Moment
from tools.bench.report import Figure, Report

CALLS = 200_000
RUNS = 5
TOPICS = 100
RULES = 1_000
CHECK_US_MAX = 2.0

_HOST = "127.0.0.1"
_NAMESPACE = "acme/shop"


class _Rules(NamedTuple):
    access_rules: AccessRules
    api_keys: ApiKeys


def run(scratch: Path, report: Report) -> None:
    ann = Principal("User:ann")
    access = _access(ann)
    plain = [f"topic-{number}" for number in range(TOPICS)]
    view = NamespaceView(_NAMESPACE)

    def check(name: str) -> bool:
        return access.allows(ann, _HOST, Operation.WRITE, ResourceType.TOPIC, name)

    def check_bound(name: str) -> bool:
        return access.allows(ann, _HOST, Operation.WRITE, ResourceType.TOPIC, view.topic(name))

    for what, checked in (("an allowed call", check), ("the same, bound to a namespace", check_bound)):
        if not all(map(checked, plain)):
            raise SystemExit("a call was denied that a rule allows")
        cost = min(_cost_us(checked, plain) for _ in range(RUNS))
        report.add(Figure(f"check of {what}", cost, "us", CHECK_US_MAX, lower_is_better=True))


def _access(ann: Principal) -> Access:
    rules = AccessRules()
    others = [
        AccessRule(ResourceType.TOPIC, f"other-{number}", LITERAL, "User:bob", "*", Operation.READ, ALLOW)
        for number in range(RULES)
    ]
    own = [
        AccessRule(ResourceType.TOPIC, prefix, PREFIXED, ann.name, "*", Operation.WRITE, ALLOW)
        for prefix in ("topic-", f"{_NAMESPACE}/topic-")
    ]
    rules.put(PutAccessRules((*others, *own)), Moment())
    return Access(_Rules(rules, ApiKeys()), AccessOptions(rules="on"))


def _cost_us(check: Callable[[str], bool], names: list[str]) -> float:
    began = time.process_time()
    for _ in range(CALLS // len(names)):
        for name in names:
            check(name)
    return (time.process_time() - began) / CALLS * 1e6
