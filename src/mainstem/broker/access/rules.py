"""Access rules: whether a client may perform an operation. What no rule allows is denied, and a denial wins.

Rules name a resource literally, by a prefix, or all of a type with `*`. Some operations imply others: READ, WRITE,
DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Protocol

from mainstem import limits
from mainstem.ledger.access_rules import AccessRule, AccessRules


class ResourceType(IntEnum):
    """Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Operation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


CLUSTER_NAME = "kafka-cluster"
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
_EVERYTHING = "*"
_EVERYBODY = "User:*"

_IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
_ALLOWED_BY = {
    operation: frozenset({operation, Operation.ALL, *_IMPLIED_BY.get(operation, ())})
    for operation in Operation
}

_Asked = tuple[str, str, Operation, ResourceType, str]


class RuleSource(Protocol):
    """Where the rules come from: the broker's `Security`."""

    @property
    def access_rules(self) -> AccessRules: ...


class Access:
    """Decides by the current rules; caches decisions until a rule changes."""

    def __init__(self, source: RuleSource, super_users: frozenset[str]) -> None:
        self._source = source
        self._super_users = super_users
        self._state = -1
        self._decided: dict[_Asked, bool] = {}
        self._literal: dict[tuple[int, str], list[AccessRule]] = {}
        self._prefixed: dict[tuple[int, str], list[AccessRule]] = {}

    @property
    def state(self) -> int:
        """Changes whenever a rule is added or deleted."""
        return self._source.access_rules.digest

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        if principal in self._super_users:
            return True
        self._renew()
        asked = principal, host, operation, kind, name
        decision = self._decided.get(asked)
        if decision is None:
            if len(self._decided) >= limits.ACCESS_DECISIONS_KEPT:
                self._decided.clear()
            decision = _decide(_about(self._matching(kind, name), principal, host), operation)
            self._decided[asked] = decision
        return decision

    def allows_some(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether the operation is allowed on any resource of this type."""
        if principal in self._super_users:
            return True
        rules = list(_about(self._source.access_rules, principal, host))
        if any(
            rule.permission == DENY
            and rule.resource_type == kind
            and rule.pattern_type == LITERAL
            and rule.resource_name == _EVERYTHING
            and rule.operation in (operation, Operation.ALL)
            for rule in rules
        ):
            return False
        return any(
            rule.permission == ALLOW
            and rule.resource_type == kind
            and rule.operation in _ALLOWED_BY[operation]
            and (
                rule.pattern_type == PREFIXED
                or self.allows(principal, host, operation, kind, rule.resource_name)
            )
            for rule in rules
        )

    def _renew(self) -> None:
        rules = self._source.access_rules
        if rules.digest == self._state:
            return
        literal: dict[tuple[int, str], list[AccessRule]] = defaultdict(list)
        prefixed: dict[tuple[int, str], list[AccessRule]] = defaultdict(list)
        for rule in rules:
            table = literal if rule.pattern_type == LITERAL else prefixed
            table[rule.resource_type, rule.resource_name].append(rule)
        self._literal, self._prefixed = dict(literal), dict(prefixed)
        self._decided.clear()
        self._state = rules.digest

    def _matching(self, kind: ResourceType, name: str) -> Iterator[AccessRule]:
        yield from self._literal.get((kind, name), ())
        if name != _EVERYTHING:
            yield from self._literal.get((kind, _EVERYTHING), ())
        if self._prefixed:
            for length in range(1, len(name) + 1):
                yield from self._prefixed.get((kind, name[:length]), ())


def _about(rules: Iterable[AccessRule], principal: str, host: str) -> Iterator[AccessRule]:
    """The rules for this client."""
    for rule in rules:
        if rule.principal in (principal, _EVERYBODY) and rule.host in (host, _EVERYTHING):
            yield rule


def _decide(rules: Iterable[AccessRule], operation: Operation) -> bool:
    allowed = False
    for rule in rules:
        if rule.permission == DENY:
            if rule.operation in (operation, Operation.ALL):
                return False
        elif rule.operation in _ALLOWED_BY[operation]:
            allowed = True
    return allowed
