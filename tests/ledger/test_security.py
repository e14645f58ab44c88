"""Credentials and access rules as state: what is taken, what is refused, what a checkpoint keeps."""

from __future__ import annotations

from typing import Any

import pytest

from mainstem import limits
from mainstem.errors import CredentialNotFound, InvalidInput, LimitReached
from mainstem.ledger.commands import Boot, Command
from mainstem.ledger.entry import Entry
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.results import AccessRulesChanged
from mainstem.ledger.security_commands import (
    AccessRule,
    DeleteAccessRules,
    DeleteScramCredential,
    PutAccessRules,
    PutScramCredential,
)

_KEY = bytes(32)
_RULE = AccessRule(2, "t", 3, "User:ann", "*", 3, 3)
_OTHER = AccessRule(2, "t", 3, "User:bob", "*", 3, 3)


class _Ledger:
    """One command an entry."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._commits = 0
        self.ledger.apply(Entry(1, 0, 0, 1, [Boot(1, "boot", False)]))

    def __call__(self, command: Command) -> Any:
        self._commits += 1
        entry = Entry(1, 1, self._commits, 1, [command])
        (outcome,) = self.ledger.apply(Entry.decode(entry.encode()))
        return outcome


@pytest.fixture
def apply() -> _Ledger:
    return _Ledger()


def _credential(**changes: Any) -> PutScramCredential:
    values = {"user": "ann", "mechanism": 1, "salt": b"s", "iterations": 4096}
    return PutScramCredential(**{**values, "stored_key": _KEY, "server_key": _KEY, **changes})


def test_what_goes_leaves_no_trace_in_the_digest(apply: _Ledger) -> None:
    empty = apply.ledger.digest()
    apply(_credential())
    apply(_credential(iterations=5000))
    apply(PutAccessRules((_RULE, _OTHER, _RULE)))
    assert apply.ledger.digest() != empty
    apply(DeleteScramCredential("ann", 1))
    apply(DeleteAccessRules((_RULE, _OTHER)))
    assert apply.ledger.digest() == empty
    assert apply.ledger.encode() == Ledger.decode(apply.ledger.encode()).encode()


def test_a_checkpoint_keeps_all_of_it(apply: _Ledger) -> None:
    apply(_credential())
    apply(PutAccessRules((_OTHER, _RULE)))
    again = Ledger.decode(apply.ledger.encode())
    assert again.digest() == apply.ledger.digest()
    credential = again.credentials.get("ann", 1)
    assert credential is not None
    assert credential.iterations == 4096
    assert list(again.access_rules) == [_RULE, _OTHER]


def test_rules_are_a_set(apply: _Ledger) -> None:
    assert apply(PutAccessRules((_RULE,))) == AccessRulesChanged((_RULE,))
    assert apply(PutAccessRules((_RULE, _OTHER))) == AccessRulesChanged((_OTHER,))
    assert apply(DeleteAccessRules((_RULE,))) == AccessRulesChanged((_RULE,))
    assert apply(DeleteAccessRules((_RULE,))) == AccessRulesChanged(())


def test_one_bad_rule_refuses_them_all(apply: _Ledger) -> None:
    for bad in (
        AccessRule(9, "t", 3, "User:a", "*", 3, 3),
        AccessRule(2, "", 3, "User:a", "*", 3, 3),
        AccessRule(2, "t", 2, "User:a", "*", 3, 3),
        AccessRule(2, "t", 3, "a", "*", 3, 3),
        AccessRule(2, "t", 3, "User:a", "", 3, 3),
        AccessRule(2, "t", 3, "User:a", "*", 1, 3),
        AccessRule(2, "t", 3, "User:a", "*", 3, 1),
        AccessRule(2, "t" * 2000, 3, "User:a", "*", 3, 3),
    ):
        assert isinstance(apply(PutAccessRules((_RULE, bad))), InvalidInput)
    assert not len(apply.ledger.access_rules)


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanism": 3},
        {"user": ""},
        {"user": "u" * 300},
        {"iterations": 4095},
        {"iterations": 16_385},
        {"salt": b""},
        {"stored_key": bytes(31)},
        {"mechanism": 2},
    ],
)
def test_credentials_that_nobody_could_use_are_refused(apply: _Ledger, changes: dict[str, Any]) -> None:
    assert isinstance(apply(_credential(**changes)), InvalidInput)
    assert not apply.ledger.credentials.all()
    assert isinstance(apply(DeleteScramCredential("ann", 1)), CredentialNotFound)


def test_rules_are_bounded(apply: _Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ACCESS_RULES_MAX", 1)
    assert isinstance(apply(PutAccessRules((_RULE, _OTHER))), LimitReached)
    assert not len(apply.ledger.access_rules)
