"""Access rules: who may do what. Administrators set them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from mainstem.errors import InvalidInput, LimitReached
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies

ACCESS_RULES_MAX = 100_000
ACCESS_RULE_CHARS_MAX = 1_024  # of a resource, a principal or a host

_RESOURCE_TYPES = (*range(2, 7), *range(101, 107))
_PATTERN_TYPES = (3, 4)
_OPERATIONS = range(2, 16)
_PERMISSIONS = (2, 3)


class AccessRule(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One rule, in Kafka's numbers; also the form in a checkpoint."""

    resource_type: int  # 2 topic, 3 group, 4 cluster, 5 transactional id; above 100: see `ResourceType`
    resource_name: str
    pattern_type: int  # 3 literal, 4 prefixed
    principal: str  # "User:name", or "User:*" for everybody
    host: str  # an address, or "*"
    operation: int  # 2 all, 3 read, 4 write …
    permission: int  # 2 deny, 3 allow


class PutAccessRules(Command, frozen=True, tag=132):
    """Add rules: all of them, or none. Existing rules stay."""

    rules: tuple[AccessRule, ...]


class DeleteAccessRules(Command, frozen=True, tag=133):
    """Delete rules. The proposer resolves filters: the command names each rule."""

    rules: tuple[AccessRule, ...]


@dataclass(frozen=True, slots=True)
class AccessRulesChanged:
    """The result of PutAccessRules and DeleteAccessRules."""

    rules: tuple[AccessRule, ...]  # added, or deleted


class AccessRules(Section[list[AccessRule]]):
    """A set of rules. The digest changes when a rule is added or deleted."""

    def __init__(self) -> None:
        self._rules: Keyed[AccessRule, AccessRule] = Keyed(fields_hash("access rule"))
        self.changes = 0  # in this process
        self.on_change: Callable[[], None] | None = None

    def __iter__(self) -> Iterator[AccessRule]:
        """Sorted."""
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    @applies(PutAccessRules)
    def put(self, command: PutAccessRules, now: Moment) -> AccessRulesChanged | InvalidInput | LimitReached:
        for rule in command.rules:
            wrong = fault(rule)
            if wrong is not None:
                return InvalidInput(wrong)
        added = {rule for rule in command.rules if rule not in self._rules}
        if len(self._rules) + len(added) > ACCESS_RULES_MAX:
            return LimitReached(f"there may be at most {ACCESS_RULES_MAX} access rules")
        for rule in added:
            self._rules.put(rule, rule)
        self._note_change()
        return AccessRulesChanged(tuple(sorted(added)))

    @applies(DeleteAccessRules)
    def delete(self, command: DeleteAccessRules, now: Moment) -> AccessRulesChanged:
        removed = {rule for rule in command.rules if self._rules.pop(rule) is not None}
        self._note_change()
        return AccessRulesChanged(tuple(sorted(removed)))

    def _note_change(self) -> None:
        self.changes += 1
        if self.on_change is not None:
            self.on_change()

    @property
    def digest(self) -> int:
        return self._rules.digest

    def encode(self) -> list[AccessRule]:
        return list(self._rules)

    def load(self, state: list[AccessRule]) -> None:
        for rule in state:
            self._rules.put(rule, rule)


def fault(rule: AccessRule) -> str | None:
    """What is wrong with a rule, if anything."""
    if rule.resource_type not in _RESOURCE_TYPES:
        return f"unknown resource type {rule.resource_type}"
    if rule.pattern_type not in _PATTERN_TYPES:
        return f"the pattern type of a rule is literal (3) or prefixed (4), not {rule.pattern_type}"
    if rule.operation not in _OPERATIONS:
        return f"unknown operation {rule.operation}"
    if rule.permission not in _PERMISSIONS:
        return f"the permission of a rule is deny (2) or allow (3), not {rule.permission}"
    if not rule.principal.startswith("User:") or rule.principal == "User:":
        return "a principal is User:name, or User:* for everybody"
    if not rule.host or not rule.resource_name:
        return "a rule needs a host and a resource name; * means all"
    words = (rule.resource_name, rule.principal, rule.host)
    if any(len(word) > ACCESS_RULE_CHARS_MAX for word in words):
        return f"the names in a rule have at most {ACCESS_RULE_CHARS_MAX} characters each"
    return None
