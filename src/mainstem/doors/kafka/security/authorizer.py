"""Access rules on the wire: filters that pick some, and what is said where there are none."""

from __future__ import annotations

from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from mainstem.broker.access.rules import LITERAL, PREFIXED, ResourceType
from mainstem.broker.access.service import AccessRule
from mainstem.broker.namespaces import NamespaceView, qualify
from mainstem.doors.kafka.apis.bulk import ItemRefused, ItemResult

NO_AUTHORIZER = ItemResult(
    ErrorCode.security_disabled, "there is no authorizer: every client may do everything"
)

_ANY = 1  # of resource types, patterns, operations and permissions alike
_MATCH = 2  # of patterns: those that a resource of this name would meet
_KNOWN = {
    "resource_type": range(1, 7),
    "pattern": range(1, 5),
    "operation": range(1, 15),
    "permission": range(1, 4),
}


_NAMED = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


def full_rule(view: NamespaceView | None, rule: AccessRule) -> AccessRule:
    """A rule of a bound client as the broker stores it: `*` is all of its namespace. Raises Refused."""
    if view is None:
        return rule
    if rule.resource_type not in _NAMED or "/" in rule.resource_name:
        raise ItemRefused(
            ErrorCode.invalid_request,
            f"a client of namespace {view.namespace!r} makes rules for its topics, groups and transactions",
        )
    prefix = qualify(view.namespace, "")
    if prefix and rule.resource_name == "*" and rule.pattern_type == LITERAL:
        return replace(rule, resource_name=prefix, pattern_type=int(PREFIXED))
    return replace(rule, resource_name=prefix + rule.resource_name)


def plain_rule(view: NamespaceView | None, rule: AccessRule) -> AccessRule | None:
    """A stored rule as the client knows it; None if it is not about its namespace."""
    if view is None:
        return rule
    prefix = qualify(view.namespace, "")
    name = rule.resource_name.removeprefix(prefix)
    if rule.resource_type not in _NAMED or not rule.resource_name.startswith(prefix) or "/" in name:
        return None
    if not name:
        return replace(rule, resource_name="*", pattern_type=int(LITERAL))
    return replace(rule, resource_name=name)


class RuleFilter(NamedTuple):
    """Which rules a client means; None stands for any."""

    resource_type: int
    resource_name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @classmethod
    def read(cls, asked: Any) -> RuleFilter:
        """From a request of DescribeAcls, or a part of one of DeleteAcls. Raises Refused."""
        found = cls(
            asked.resource_type_filter,
            asked.resource_name_filter,
            asked.pattern_type_filter,
            asked.principal_filter,
            asked.host_filter,
            asked.operation,
            asked.permission_type,
        )
        for name, known in _KNOWN.items():
            if getattr(found, name) not in known:
                raise ItemRefused(ErrorCode.invalid_request, f"no {name.replace('_', ' ')} has that number")
        return found

    def picks(self, rule: AccessRule) -> bool:
        return (
            self.resource_type in (_ANY, rule.resource_type)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (_ANY, rule.operation)
            and self.permission in (_ANY, rule.permission)
            and self._picks_resource(rule)
        )

    def _picks_resource(self, rule: AccessRule) -> bool:
        if self.pattern in (LITERAL, PREFIXED) and rule.pattern_type != self.pattern:
            return False
        if self.resource_name is None:
            return True
        if self.pattern != _MATCH:
            return rule.resource_name == self.resource_name
        if rule.pattern_type == PREFIXED:
            return self.resource_name.startswith(rule.resource_name)
        return rule.resource_name in (self.resource_name, "*")
