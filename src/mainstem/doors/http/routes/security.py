"""API keys, users and access rules: list, create, rotate and revoke them."""

from __future__ import annotations

import msgspec

from mainstem.api.access import ALLOW, CLUSTER_NAME, DENY, LITERAL, PREFIXED, Operation, ResourceType
from mainstem.api.route import Scope
from mainstem.api.security import (
    KeyBody,
    KeyCreated,
    KeyDescription,
    KeyList,
    KeyRevoked,
    RuleBody,
    RuleList,
    RulesBody,
    UserBody,
    UserChanged,
    UserDeleted,
    UserDescription,
    UserList,
)
from mainstem.broker.access.keys import parse_scopes
from mainstem.broker.access.service import AccessRule, StoredApiKey
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply

_key_body = msgspec.json.Decoder(KeyBody)
_user_body = msgspec.json.Decoder(UserBody)
_rules_body = msgspec.json.Decoder(RulesBody)

_PATTERNS = {"literal": LITERAL, "prefixed": PREFIXED}
_PERMISSIONS = {"allow": ALLOW, "deny": DENY}


async def list_keys(request: HttpRequest) -> Response:
    """List the stored API keys, without their secrets."""
    keys = [_description(key) for key in request.broker.administration.listed_keys()]
    return reply(KeyList(keys, request.performance()))


async def create_key(request: HttpRequest) -> Response:
    """Create an API key. Only this response has its secret."""
    body = request.json(_key_body)
    try:
        scopes = parse_scopes(body.scopes)
    except ValueError as wrong:
        raise invalid(f"a scope {wrong}") from None
    key, secret = await request.broker.administration.create_key(
        body.name, scopes, body.prefixes, namespace=body.namespace, ttl_ms=body.ttl_ms
    )
    return reply(_created(request, key, secret), 201)


async def rotate_key(request: HttpRequest) -> Response:
    """Replace the secret of an API key. The old one is invalid from then on."""
    key, secret = await request.broker.administration.rotate_key(request.parameters["key"])
    return reply(_created(request, key, secret))


async def revoke_key(request: HttpRequest) -> Response:
    """Revoke an API key."""
    id = request.parameters["key"]
    await request.broker.administration.revoke_key(id)
    return reply(KeyRevoked(id, True, request.performance()))


async def list_users(request: HttpRequest) -> Response:
    """List the users that have a password."""
    users = request.broker.administration.users()
    rows = [UserDescription(user, mechanisms) for user, mechanisms in sorted(users.items())]
    return reply(UserList(rows, request.performance()))


async def put_user(request: HttpRequest) -> Response:
    """Create a user, or replace its password."""
    user, body = request.parameters["user"], request.json(_user_body)
    password = await request.broker.administration.put_user(user, body.password)
    shown = None if body.password else password
    return reply(UserChanged(user, request.performance(), shown))


async def delete_user(request: HttpRequest) -> Response:
    """Delete a user."""
    user = request.parameters["user"]
    await request.broker.administration.delete_user(user)
    return reply(UserDeleted(user, True, request.performance()))


async def list_rules(request: HttpRequest) -> Response:
    """List the access rules."""
    rules = [_rule_body(rule) for rule in request.broker.security.access_rules]
    return reply(RuleList(rules, request.performance()))


async def add_rules(request: HttpRequest) -> Response:
    """Add access rules: all of them, or none."""
    rules = [_rule(one) for one in request.json(_rules_body).rules]
    await request.broker.security.put_rules(rules)
    return reply(RuleList([_rule_body(rule) for rule in rules], request.performance()))


async def delete_rules(request: HttpRequest) -> Response:
    """Delete access rules. The response has those that existed."""
    rules = [_rule(one) for one in request.json(_rules_body).rules]
    deleted = await request.broker.security.delete_rules(rules)
    return reply(RuleList([_rule_body(rule) for rule in deleted], request.performance()))


def _created(request: HttpRequest, key: StoredApiKey, secret: str) -> KeyCreated:
    described = msgspec.structs.asdict(_description(key))
    return KeyCreated(**described, secret=secret, performance=request.performance())


def _description(key: StoredApiKey) -> KeyDescription:
    scopes = "+".join(scope.name.lower() for scope in Scope(key.scopes) if scope.name)
    return KeyDescription(
        key.id,
        key.principal,
        scopes,
        list(key.prefixes),
        key.namespace,
        key.created_ms,
        key.expires_ms or None,
        key.rotated_ms or None,
    )


def _rule(body: RuleBody) -> AccessRule:
    """Raises Refusal 400."""
    try:
        kind = ResourceType[body.resource.upper()]
        operation = Operation[body.operation.upper().replace("-", "_")]
        pattern, permission = _PATTERNS[body.pattern], _PERMISSIONS[body.permission]
    except KeyError as wrong:
        raise invalid(f"a rule has an unknown word: {str(wrong)[:64]}") from None
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else body.name
    return AccessRule(kind, name, pattern, body.principal, body.host, operation, permission)


def _rule_body(rule: AccessRule) -> RuleBody:
    kinds = {kind.value: kind.name.lower() for kind in ResourceType}
    operations = {operation.value: operation.name.lower() for operation in Operation}
    return RuleBody(
        rule.principal,
        operations.get(rule.operation, str(rule.operation)),
        kinds.get(rule.resource_type, str(rule.resource_type)),
        rule.resource_name,
        "literal" if rule.pattern_type == LITERAL else "prefixed",
        "allow" if rule.permission == ALLOW else "deny",
        rule.host,
    )
