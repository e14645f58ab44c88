"""Credentials and access rules as state: what is taken, what is refused, what a checkpoint keeps."""

from __future__ import annotations

from typing import Any

import pytest

from mainstem.errors import CredentialNotFound, InvalidInput, LimitReached
from mainstem.ledger.access_rules import AccessRule, AccessRulesChanged, DeleteAccessRules, PutAccessRules
from mainstem.ledger.credentials import DeleteScramCredential, PutScramCredential
from mainstem.ledger.ledger import Ledger

from .writer import Writer

_KEY = bytes(32)
_RULE = AccessRule(2, "t", 3, "User:ann", "*", 3, 3)
_OTHER = AccessRule(2, "t", 3, "User:bob", "*", 3, 3)


def _credential(**changes: Any) -> PutScramCredential:
    values = {"user": "ann", "mechanism": 1, "salt": b"s", "iterations": 4096}
    return PutScramCredential(**{**values, "stored_key": _KEY, "server_key": _KEY, **changes})


def test_what_goes_leaves_no_trace_in_the_digest(writer: Writer) -> None:
    empty = writer.ledger.digest()
    writer.do(_credential())
    writer.do(_credential(iterations=5000))
    writer.do(PutAccessRules((_RULE, _OTHER, _RULE)))
    assert writer.ledger.digest() != empty
    writer.do(DeleteScramCredential("ann", 1))
    writer.do(DeleteAccessRules((_RULE, _OTHER)))
    assert writer.ledger.digest() == empty
    assert writer.ledger.encode() == Ledger.decode(writer.ledger.encode()).encode()


def test_a_checkpoint_keeps_all_of_it(writer: Writer) -> None:
    writer.do(_credential())
    writer.do(PutAccessRules((_OTHER, _RULE)))
    again = Ledger.decode(writer.ledger.encode())
    assert again.digest() == writer.ledger.digest()
    credential = again.credentials.get("ann", 1)
    assert credential is not None
    assert credential.iterations == 4096
    assert list(again.access_rules) == [_RULE, _OTHER]


def test_rules_are_a_set(writer: Writer) -> None:
    assert writer.do(PutAccessRules((_RULE,))) == AccessRulesChanged((_RULE,))
    assert writer.do(PutAccessRules((_RULE, _OTHER))) == AccessRulesChanged((_OTHER,))
    assert writer.do(DeleteAccessRules((_RULE,))) == AccessRulesChanged((_RULE,))
    assert writer.do(DeleteAccessRules((_RULE,))) == AccessRulesChanged(())


def test_one_bad_rule_refuses_them_all(writer: Writer) -> None:
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
        assert isinstance(writer.do(PutAccessRules((_RULE, bad))), InvalidInput)
    assert not len(writer.ledger.access_rules)


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
def test_credentials_that_nobody_could_use_are_refused(writer: Writer, changes: dict[str, Any]) -> None:
    assert isinstance(writer.do(_credential(**changes)), InvalidInput)
    assert not writer.ledger.credentials.all()
    assert isinstance(writer.do(DeleteScramCredential("ann", 1)), CredentialNotFound)


def test_rules_are_bounded(monkeypatch: pytest.MonkeyPatch, writer: Writer) -> None:
    monkeypatch.setattr("mainstem.ledger.access_rules.ACCESS_RULES_MAX", 1)
    assert isinstance(writer.do(PutAccessRules((_RULE, _OTHER))), LimitReached)
    assert not len(writer.ledger.access_rules)
