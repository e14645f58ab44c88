"""Client quotas as state: what is taken, what is refused, what a checkpoint keeps."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from mainstem.errors import InvalidInput
from mainstem.ledger.client_quotas import ClientQuota
from mainstem.ledger.commands import Boot, Command
from mainstem.ledger.entry import Entry
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.security_commands import AlterClientQuota, QuotaEntity

_ANN = QuotaEntity("ann", None)
_EVERY_CLIENT = QuotaEntity(None, "")
_RATE = ("producer_byte_rate", 1000.5)


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


def test_limits_are_set_one_by_one_and_what_goes_leaves_no_trace(apply: _Ledger) -> None:
    empty = apply.ledger.digest()
    assert apply(AlterClientQuota(_ANN, (_RATE,))) == ClientQuota(_ANN, (_RATE,))
    share = ("request_percentage", 50.0)
    assert apply(AlterClientQuota(_ANN, (share,))).limits == (_RATE, share)
    assert apply(AlterClientQuota(_ANN, (), ("request_percentage", "consumer_byte_rate"))).limits == (_RATE,)
    assert apply.ledger.digest() != empty
    assert apply(AlterClientQuota(_ANN, (), ("producer_byte_rate",))).limits == ()
    assert apply.ledger.digest() == empty
    assert not apply.ledger.client_quotas


def test_a_checkpoint_keeps_them(apply: _Ledger) -> None:
    for entity in (_EVERY_CLIENT, QuotaEntity("", "c"), _ANN, QuotaEntity("", None), QuotaEntity("ann", "c")):
        apply(AlterClientQuota(entity, (_RATE,)))
    again = Ledger.decode(apply.ledger.encode())
    assert again.digest() == apply.ledger.digest()
    assert list(again.client_quotas) == list(apply.ledger.client_quotas)
    assert again.client_quotas.get(_EVERY_CLIENT) == dict([_RATE])


@pytest.mark.parametrize(
    "command",
    [
        AlterClientQuota(QuotaEntity(None, None), (_RATE,)),
        AlterClientQuota(QuotaEntity("u" * 300, None), (_RATE,)),
        AlterClientQuota(_ANN, (("cores", 1.0),)),
        AlterClientQuota(_ANN, (), ("cores",)),
        AlterClientQuota(_ANN, (_RATE, _RATE)),
        AlterClientQuota(_ANN, (_RATE,), ("producer_byte_rate",)),
        *(
            AlterClientQuota(_ANN, (_RATE, ("consumer_byte_rate", bad)))
            for bad in (0.0, -1.0, nan, inf, 1e300)
        ),
    ],
)
def test_quotas_that_make_no_sense_are_refused_as_a_whole(apply: _Ledger, command: AlterClientQuota) -> None:
    assert isinstance(apply(command), InvalidInput)
    assert not apply.ledger.client_quotas
