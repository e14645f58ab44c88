"""Access rules: who may do what, as administrators said."""

from __future__ import annotations

from collections.abc import Iterator

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.results import AccessRulesChanged
from mainstem.ledger.security_commands import AccessRule, DeleteAccessRules, PutAccessRules

_RESOURCE_TYPES = range(2, 7)
_PATTERN_TYPES = (3, 4)
_OPERATIONS = range(2, 15)
_PERMISSIONS = (2, 3)


class AccessRules:
    """A set: the order in which rules were made does not matter."""

    def __init__(self) -> None:
        self._rules: set[AccessRule] = set()
        self.digest = 0  # also tells whether any rule came or went

    def __iter__(self) -> Iterator[AccessRule]:
        """In one order wherever the same rules are held."""
        return iter(sorted(self._rules))

    def __len__(self) -> int:
        return len(self._rules)

    def put(self, command: PutAccessRules) -> AccessRulesChanged | InvalidInput | LimitReached:
        for rule in command.rules:
            wrong = fault(rule)
            if wrong is not None:
                return InvalidInput(wrong)
        added = set(command.rules) - self._rules
        if len(self._rules) + len(added) > limits.ACCESS_RULES_MAX:
            return LimitReached(f"at most {limits.ACCESS_RULES_MAX} access rules are kept")
        for rule in added:
            self._add(rule)
        return AccessRulesChanged(tuple(sorted(added)))

    def delete(self, command: DeleteAccessRules) -> AccessRulesChanged:
        removed = self._rules.intersection(command.rules)
        for rule in removed:
            self._rules.discard(rule)
            self.digest = (self.digest - _hash(rule)) & MASK
        return AccessRulesChanged(tuple(sorted(removed)))

    def _add(self, rule: AccessRule) -> None:
        self._rules.add(rule)
        self.digest = (self.digest + _hash(rule)) & MASK

    def encode(self) -> list[AccessRule]:
        return list(self)

    @classmethod
    def decode(cls, states: list[AccessRule]) -> AccessRules:
        rules = cls()
        for state in states:
            rules._add(state)
        return rules


def _hash(rule: AccessRule) -> int:
    return hash_fields("access rule", rule)


def fault(rule: AccessRule) -> str | None:
    """What is wrong with a rule."""
    if rule.resource_type not in _RESOURCE_TYPES:
        return f"no kind of resource has the number {rule.resource_type}"
    if rule.pattern_type not in _PATTERN_TYPES:
        return f"a rule's pattern is literal (3) or prefixed (4), not {rule.pattern_type}"
    if rule.operation not in _OPERATIONS:
        return f"no operation has the number {rule.operation}"
    if rule.permission not in _PERMISSIONS:
        return f"a rule denies (2) or allows (3), not {rule.permission}"
    if not rule.principal.startswith("User:") or rule.principal == "User:":
        return "a principal is User:name, or User:* for everybody"
    if not rule.host or not rule.resource_name:
        return "a rule names a host and a resource; * stands for all"
    words = (rule.resource_name, rule.principal, rule.host)
    if any(len(word) > limits.ACCESS_RULE_CHARS_MAX for word in words):
        return f"a rule's names have at most {limits.ACCESS_RULE_CHARS_MAX} characters each"
    return None
