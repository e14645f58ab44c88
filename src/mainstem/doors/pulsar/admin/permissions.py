"""Permissions: the actions of Pulsar's roles, as access rules of all doors.

| action    | rules for User:ROLE                                                |
|-----------|--------------------------------------------------------------------|
| `produce` | WRITE of the topic, or of the topics of the namespace              |
| `consume` | READ of the same; of a namespace also READ of its subscriptions    |
"""

from __future__ import annotations

from collections.abc import Iterable

from mainstem.broker.access.rules import ALLOW, LITERAL, PREFIXED, Operation, ResourceType
from mainstem.broker.access.service import AccessRule
from mainstem.broker.namespaces import DEFAULT, split
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.pulsar.admin.call import DONE, NOT_ALLOWED, AdminCall, AdminRefusal, answer
from mainstem.errors import InvalidInput, TopicNotFound

_ACTIONS = {"produce": Operation.WRITE, "consume": Operation.READ}
_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP


class _Scope:
    """The topics that a permission is about: those of a prefix, or one."""

    def __init__(self, name: str, pattern: int) -> None:
        self.name = name
        self.pattern = pattern

    def rule(self, role: str, operation: Operation, kind: ResourceType = _TOPIC) -> AccessRule:
        return AccessRule(kind, self.name, self.pattern, _principal(role), "*", operation, ALLOW)

    def rules(self, role: str, action: str) -> list[AccessRule]:
        found = [self.rule(role, _ACTIONS[action])]
        if action == "consume" and self.pattern == PREFIXED:
            found.append(self.rule(role, Operation.READ, _GROUP))
        return found

    def covers(self, rule: AccessRule) -> bool:
        return (rule.resource_name, rule.pattern_type, rule.host) == (self.name, self.pattern, "*") and (
            rule.permission == ALLOW
        )


def _principal(role: str) -> str:
    return role if ":" in role else f"User:{role}"


def _role(principal: str) -> str:
    return principal.removeprefix("User:")


async def namespace_permissions(call: AdminCall, namespace: str) -> Response:
    call.check_cluster(Operation.DESCRIBE, "permissions")
    return answer(_granted(call, _Scope(f"{call.namespace(namespace)}/", PREFIXED)))


async def grant_namespace(call: AdminCall, namespace: str, role: str) -> Response:
    return await _grant(call, _of_namespace(call, namespace), role)


async def revoke_namespace(call: AdminCall, namespace: str, role: str) -> Response:
    return await _revoke(call, _of_namespace(call, namespace), role)


async def topic_permissions(call: AdminCall, topic: str) -> Response:
    """Those of its namespace count too."""
    call.check_cluster(Operation.DESCRIBE, "permissions")
    scope = _of_topic(call, topic)
    found = _granted(call, scope)
    for role, actions in _granted(call, _Scope(f"{split(scope.name)[0]}/", PREFIXED)).items():
        found[role] = list(dict.fromkeys((*actions, *found.get(role, ()))))
    return answer(found)


async def grant_topic(call: AdminCall, topic: str, role: str) -> Response:
    return await _grant(call, _of_topic(call, topic), role)


async def revoke_topic(call: AdminCall, topic: str, role: str) -> Response:
    return await _revoke(call, _of_topic(call, topic), role)


async def subscription_permissions(call: AdminCall, namespace: str) -> Response:
    """Roles by subscription: rules about single groups."""
    call.check_cluster(Operation.DESCRIBE, "permissions")
    prefix = f"{call.namespace(namespace)}/"
    found: dict[str, list[str]] = {}
    for rule in call.broker.security.access_rules:
        literal = (rule.resource_type, rule.pattern_type, rule.permission) == (_GROUP, LITERAL, ALLOW)
        if literal and rule.resource_name.startswith(prefix):
            found.setdefault(rule.resource_name.removeprefix(prefix), []).append(_role(rule.principal))
    return answer(found)


async def grant_subscription(call: AdminCall, namespace: str, subscription: str) -> Response:
    scope = _of_subscription(call, namespace, subscription)
    roles = call.body()
    if not isinstance(roles, list):
        raise InvalidInput("the body is a list of roles")
    await _put(call, [scope.rule(str(role), Operation.READ, _GROUP) for role in roles])
    return DONE


async def revoke_subscription(call: AdminCall, namespace: str, subscription: str, role: str) -> Response:
    scope = _of_subscription(call, namespace, subscription)
    await _delete(call, [scope.rule(role, Operation.READ, _GROUP)])
    return DONE


def _of_namespace(call: AdminCall, text: str) -> _Scope:
    namespace = call.namespace(text)
    if namespace == DEFAULT:
        raise AdminRefusal(
            NOT_ALLOWED,
            "a rule cannot cover the topics of public/default alone: grant permissions of its topics, or "
            "set access rules with mainstem acl",
        )
    return _Scope(f"{namespace}/", PREFIXED)


def _of_topic(call: AdminCall, text: str) -> _Scope:
    name, found = call.find(text)
    if found is None:
        raise TopicNotFound(text)
    return _Scope(name.name, LITERAL)


def _of_subscription(call: AdminCall, text: str, subscription: str) -> _Scope:
    namespace = call.namespace(text)
    return _Scope(subscription if namespace == DEFAULT else f"{namespace}/{subscription}", LITERAL)


def _granted(call: AdminCall, scope: _Scope) -> dict[str, list[str]]:
    names = {int(operation): action for action, operation in _ACTIONS.items()}
    found: dict[str, list[str]] = {}
    for rule in call.broker.security.access_rules:
        if rule.resource_type == _TOPIC and scope.covers(rule) and rule.operation in names:
            found.setdefault(_role(rule.principal), []).append(names[rule.operation])
    return found


async def _grant(call: AdminCall, scope: _Scope, role: str) -> Response:
    actions = call.body()
    if not isinstance(actions, list) or not all(action in _ACTIONS for action in actions):
        raise InvalidInput(f"the body is a list of actions, which are {', '.join(_ACTIONS)} here")
    await _grant_only(call, scope, role, actions)
    return DONE


async def _grant_only(call: AdminCall, scope: _Scope, role: str, actions: list[str]) -> None:
    """A role gets these actions, and has no others."""
    old = [rule for action in _ACTIONS if action not in actions for rule in scope.rules(role, action)]
    await _put(call, [rule for action in actions for rule in scope.rules(role, action)])
    await _delete(call, old)


async def _revoke(call: AdminCall, scope: _Scope, role: str) -> Response:
    await _delete(call, [rule for action in _ACTIONS for rule in scope.rules(role, action)])
    return DONE


# Of several topics at once


async def grant_topics(call: AdminCall) -> Response:
    for scope, role, actions in _topics_of_body(call):
        await _grant_only(call, scope, role, actions)
    return DONE


async def revoke_topics(call: AdminCall) -> Response:
    for scope, role, _ in _topics_of_body(call):
        await _delete(call, [rule for action in _ACTIONS for rule in scope.rules(role, action)])
    return DONE


def _topics_of_body(call: AdminCall) -> list[tuple[_Scope, str, list[str]]]:
    call.check_cluster(Operation.ALTER, "permissions")  # before it answers which topics exist
    rows = call.body()
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidInput("the body is a list of objects with topic, role and actions")
    found = []
    for row in rows:
        topic, role, actions = row.get("topic"), row.get("role"), row.get("actions") or []
        if not isinstance(topic, str) or not isinstance(role, str) or not role:
            raise InvalidInput("an object of the body names a topic and a role")
        if not isinstance(actions, list) or not all(action in _ACTIONS for action in actions):
            raise InvalidInput(f"actions are {', '.join(_ACTIONS)} here")
        found.append((_of_topic(call, topic), role, actions))
    return found


async def _put(call: AdminCall, rules: list[AccessRule]) -> None:
    call.check_cluster(Operation.ALTER, "permissions")
    if rules:
        await call.broker.security.put_rules(rules)


async def _delete(call: AdminCall, rules: Iterable[AccessRule]) -> None:
    call.check_cluster(Operation.ALTER, "permissions")
    there = set(call.broker.security.access_rules)
    gone = [rule for rule in rules if rule in there]
    if gone:
        await call.broker.security.delete_rules(gone)


# The admin roles of a tenant


def admin_roles(call: AdminCall, tenant: str) -> list[str]:
    scope = _Scope(f"{tenant}/", PREFIXED)
    return sorted(
        _role(rule.principal)
        for rule in call.broker.security.access_rules
        if rule.resource_type == _TOPIC and scope.covers(rule) and rule.operation == Operation.ALL
    )


async def set_admin_roles(call: AdminCall, tenant: str, roles: list[str]) -> None:
    scope = _Scope(f"{tenant}/", PREFIXED)
    old = [role for role in admin_roles(call, tenant) if role not in roles]
    await _put(call, [rule for role in roles for rule in _admin_rules(scope, role)])
    await _delete(call, [rule for role in old for rule in _admin_rules(scope, role)])


def _admin_rules(scope: _Scope, role: str) -> list[AccessRule]:
    return [scope.rule(role, Operation.ALL, kind) for kind in (_TOPIC, _GROUP)]
