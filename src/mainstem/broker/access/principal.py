"""Principals: who calls, as every door identifies its clients."""

from __future__ import annotations

import msgspec

from mainstem.ledger.access_rules import AccessRule


class Principal(msgspec.Struct, frozen=True):
    """The result of an authentication. Access rules, rates and the audit log name clients by `name`."""

    name: str  # "User:alice", as access rules write it
    namespace: str = ""  # whose topics and groups it sees by their plain names; empty: not bound
    grants: tuple[
        AccessRule, ...
    ] = ()  # rules that come with the credential: scopes and prefixes of an API key


ANONYMOUS = Principal("User:ANONYMOUS")  # a client that did not have to authenticate
