"""Access rules: whether a client may perform an operation. What no rule allows is denied, and a denial wins.

Rules name a resource literally, by a prefix, or all of a type with `*`. Some operations imply others: READ, WRITE,
DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from mainstem import limits
from mainstem.api.access import (
    ALLOW,
    AUDIT_TOPIC,
    CLUSTER_NAME,
    DENY,
    EVERYBODY,
    EVERYTHING,
    LITERAL,
    PREFIXED,
    Operation,
    ResourceType,
)
from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.principal import Principal
from mainstem.ledger.access_rules import AccessRule, AccessRules
from mainstem.ledger.api_keys import ApiKeys
from mainstem.ledger.namespaces import (
    DEFAULT,
    DEFAULT_PREFIX,
    ID_SEPARATOR,
    Namespaces,
    canonical,
    split,
)

ACCESS_DECISIONS_KEPT = 100_000  # cached decisions of the access rules, until a rule changes

__all__ = [
    "ALLOW",
    "CLUSTER_NAME",
    "DENY",
    "LITERAL",
    "PREFIXED",
    "Access",
    "Operation",
    "ResourceType",
]


_IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
_ALLOWED_BY = {
    operation: frozenset({operation, Operation.ALL, *_IMPLIED_BY.get(operation, ())})
    for operation in Operation
}

# A queue is a topic, and a table shows one: the rules of the topic hold for it as well.
_KINDS = {
    ResourceType.QUEUE: (ResourceType.QUEUE, ResourceType.TOPIC),
    ResourceType.TABLE: (ResourceType.TABLE, ResourceType.TOPIC),
}

_TOPICS = (ResourceType.TOPIC, ResourceType.QUEUE, ResourceType.TABLE)
_READING = (Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)

_NOT_IN_NAMESPACES = (ResourceType.CLUSTER, ResourceType.NAMESPACE)

_Asked = tuple[Principal, str, Operation, ResourceType, str]


class RuleSource(Protocol):
    """Where the rules come from: the broker's `Security`."""

    @property
    def access_rules(self) -> AccessRules: ...

    @property
    def api_keys(self) -> ApiKeys: ...


class Access:
    """Decides by the current rules for every door; caches decisions until a rule or an API key changes."""

    def __init__(
        self, source: RuleSource, options: AccessOptions, namespaces: Namespaces | None = None
    ) -> None:
        self.namespaces = namespaces
        self.admitted = {} if namespaces is None else namespaces.admitted
        self._source = source
        self.listeners: list[Callable[[], None]] = []  # called after such changes
        self.state = 0  # grows with every change of a rule or an API key
        self._state = -1
        self.decisions: dict[_Asked, bool] = {}
        self._literal: dict[tuple[int, str], list[AccessRule]] = {}
        self._prefixed: dict[tuple[int, str], list[AccessRule]] = {}
        self.configure(options)
        source.access_rules.on_change = source.api_keys.on_change = self._refresh
        if namespaces is not None:
            namespaces.on_change = self._refresh

    def configure(self, options: AccessOptions) -> None:
        """Use other options from now on."""
        self._options = options
        self._super_users = options.super_users
        self._refresh()

    def _refresh(self) -> None:
        """A rule or an API key was added, changed or deleted."""
        options = self._options
        stored = len(self._source.api_keys) > 0
        # Plain attributes: every request looks at them.
        self.state += 1
        self.restricted = options.authenticates or stored  # clients must authenticate
        self.enforced = options.rules == "on"  # the stored rules apply
        if options.rules == "auto":
            self.enforced = bool(options.keys) or options.logins or stored
        self.decisions.clear()
        for listener in self.listeners:
            listener()

    def open_to(self, principal: Principal) -> bool:
        """Whether this client may do everything, without a look at any rule."""
        if self.namespaces is not None and self.namespaces.admitted:
            return principal.name in self._super_users and not principal.key_id
        return self._unchecked(principal)

    def _unchecked(self, principal: Principal) -> bool:
        if principal.grants or principal.key_id:
            return False
        return principal.name in self._super_users or not self.enforced

    def _open_without_rules(self, principal: Principal) -> bool:
        """Whether the principal may use what no stored rule names. A key that is limited stays so."""
        return self._options.open_without_rules and not (principal.grants or principal.key_id)

    def _admits(self, principal: Principal, kind: ResourceType, name: str) -> bool:
        """Whether the namespace of a resource admits the principal."""
        if self.namespaces is None or kind in _NOT_IN_NAMESPACES or principal.name in self._super_users:
            return True
        admitted = self.namespaces.admitted
        return all(
            principal.name in admitted.get(namespace, (principal.name,))
            for namespace in self._namespaces_of(self.namespaces, kind, name)
        )

    @staticmethod
    def _namespaces_of(namespaces: Namespaces, kind: ResourceType, name: str) -> tuple[str, ...]:
        """The namespaces that a name may belong to. Names of topics contain no /, but ids and subjects may."""
        if kind in _TOPICS:
            return (split(name)[0],)
        first, _, rest = name.partition("/")
        second = rest.partition("/")[0]
        found = tuple(one for one in (first, f"{first}/{second}") if rest and one in namespaces)
        return found or (DEFAULT,)

    def allows(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        if self.open_to(principal):
            return True
        if kind in _TOPICS:
            name = canonical(name)
        if self.namespaces is not None and self.namespaces.admitted:
            if not self._admits(principal, kind, name):
                return False
            if self._unchecked(principal):
                return True
        self._renew()
        asked = principal, host, operation, kind, name
        decision = self.decisions.get(asked)
        if decision is None:
            decision = self._decide(principal, host, operation, kind, name)
            if len(name) <= limits.KEPT_NAME_CHARS_MAX:
                if len(self.decisions) >= ACCESS_DECISIONS_KEPT:
                    self.decisions.clear()
                self.decisions[asked] = decision
        return decision

    def allows_some(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether the operation is allowed on any resource of this type."""
        if self._unchecked(principal):
            return True
        if principal.key_id and principal.key_id not in self._source.api_keys:
            return False
        if principal.name in self._super_users:
            return True
        if self._open_without_rules(principal):
            return True
        stored = self._source.access_rules if self.enforced else ()
        rules = [rule for rule in _about((*stored, *principal.grants), principal, host) if _of(rule, kind)]
        return any(
            rule.permission == ALLOW
            and rule.operation in _ALLOWED_BY[operation]
            and self.allows(principal, host, operation, kind, _example(rule))
            for rule in rules
        )

    def denies(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Whether a stored rule denies the operation, so that no other right may stand in for it."""
        if not self.enforced or principal.name in self._super_users:
            return False
        if kind in _TOPICS:
            name = canonical(name)
        self._renew()
        return any(
            rule.permission == DENY and rule.operation in (operation, Operation.ALL)
            for rule in _about(self._matching(kind, name), principal, host)
        )

    def _decide(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        if principal.key_id and principal.key_id not in self._source.api_keys:
            return False  # revoked
        if principal.name in self._super_users:
            return True
        # Who could change the audit log could hide what it shows.
        changes_audit = name == AUDIT_TOPIC and kind in _TOPICS and operation not in _READING
        if changes_audit and not self.allows(
            principal, host, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return False
        stored = tuple(self._matching(kind, name)) if self.enforced else ()
        if not stored and self._open_without_rules(principal):
            return True
        granted = (rule for rule in principal.grants if _of(rule, kind) and _covers(rule, name))
        return _decide(_about((*stored, *granted), principal, host), operation)

    def _renew(self) -> None:
        rules = self._source.access_rules
        if self.state == self._state:
            return
        literal: dict[tuple[int, str], list[AccessRule]] = defaultdict(list)
        prefixed: dict[tuple[int, str], list[AccessRule]] = defaultdict(list)
        for rule in rules:
            table = literal if rule.pattern_type == LITERAL else prefixed
            table[rule.resource_type, rule.resource_name].append(rule)
        self._literal, self._prefixed = dict(literal), dict(prefixed)
        self.decisions.clear()
        self._state = self.state

    def _matching(self, kind: ResourceType, name: str) -> Iterator[AccessRule]:
        other = _other_name(kind, name)
        for each in _KINDS.get(kind, (kind,)):
            yield from self._literal.get((each, name), ())
            if other:
                yield from self._literal.get((each, other), ())
            if name != EVERYTHING:
                yield from self._literal.get((each, EVERYTHING), ())
            if self._prefixed:
                for length in range(1, len(name) + 1):
                    yield from self._prefixed.get((each, name[:length]), ())
                for length in range(len(DEFAULT_PREFIX), len(other) + 1):
                    yield from self._prefixed.get((each, other[:length]), ())


def _other_name(kind: ResourceType, name: str) -> str:
    """`default/orders` for the topic `orders`: rules may be about either. Empty: it has no other name."""
    return "" if kind not in _TOPICS or "/" in name or name == EVERYTHING else DEFAULT_PREFIX + name


def _of(rule: AccessRule, kind: ResourceType) -> bool:
    return rule.resource_type in _KINDS.get(kind, (kind,))


def _covers(rule: AccessRule, name: str) -> bool:
    if rule.resource_name.startswith(DEFAULT_PREFIX):
        name = _other_name(ResourceType(rule.resource_type), name) or name
    if rule.pattern_type == PREFIXED:
        return name.startswith(rule.resource_name)
    return rule.resource_name in (name, EVERYTHING)


def _example(rule: AccessRule) -> str:
    """A name that the rule covers, and that no rule about a narrower prefix or another name does."""
    return rule.resource_name + ID_SEPARATOR if rule.pattern_type == PREFIXED else rule.resource_name


def _about(rules: Iterable[AccessRule], principal: Principal, host: str) -> Iterator[AccessRule]:
    """The rules for this client."""
    for rule in rules:
        if rule.principal in (principal.name, EVERYBODY) and rule.host in (host, EVERYTHING):
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
