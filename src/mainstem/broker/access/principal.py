"""Principals: who calls, as every door identifies its clients."""

from __future__ import annotations

import msgspec

from mainstem.api.access import ALLOW, EVERYTHING, LITERAL, Operation, ResourceType
from mainstem.ledger.access_rules import AccessRule


class Principal(msgspec.Struct, frozen=True, cache_hash=True):
    """The result of an authentication. Access rules, rates and the audit log name clients by `name`."""

    name: str  # "User:alice", as access rules write it
    namespace: str = ""  # whose topics and groups it sees by their plain names; empty: not bound
    grants: tuple[
        AccessRule, ...
    ] = ()  # rules that come with the credential: scopes and prefixes of an API key
    key_id: str = ""  # of the stored API key that it authenticated with, which may be revoked meanwhile


ANONYMOUS = Principal("User:ANONYMOUS")  # a client that did not have to authenticate

# A client of a door that is open although others ask for credentials: denials of User:ANONYMOUS still apply to it.
UNRESTRICTED = Principal(
    ANONYMOUS.name,
    grants=tuple(
        AccessRule(kind, EVERYTHING, LITERAL, ANONYMOUS.name, EVERYTHING, Operation.ALL, ALLOW)
        for kind in ResourceType
    ),
)
