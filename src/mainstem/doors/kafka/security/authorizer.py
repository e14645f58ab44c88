"""Access rules on the wire: filters that pick some, and what is said where there are none."""

from __future__ import annotations

from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from mainstem.broker.access.rules import LITERAL, PREFIXED
from mainstem.broker.access.service import AccessRule
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
