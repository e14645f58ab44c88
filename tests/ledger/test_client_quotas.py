"""Client quotas as state: what is taken, what is refused, what a checkpoint keeps."""

from __future__ import annotations

from math import inf, nan

import pytest

from mainstem.errors import InvalidInput
from mainstem.ledger.client_quotas import AlterClientQuota, ClientQuota, QuotaEntity
from mainstem.ledger.ledger import Ledger

from .writer import Writer

_ANN = QuotaEntity("ann", None)
_EVERY_CLIENT = QuotaEntity(None, "")
_RATE = ("producer_byte_rate", 1000.5)


def test_limits_are_set_one_by_one_and_what_goes_leaves_no_trace(writer: Writer) -> None:
    empty = writer.ledger.digest()
    assert writer.do(AlterClientQuota(_ANN, (_RATE,))) == ClientQuota(_ANN, (_RATE,))
    share = ("request_percentage", 50.0)
    assert writer.do(AlterClientQuota(_ANN, (share,))).limits == (_RATE, share)
    assert writer.do(AlterClientQuota(_ANN, (), ("request_percentage", "consumer_byte_rate"))).limits == (
        _RATE,
    )
    assert writer.ledger.digest() != empty
    assert writer.do(AlterClientQuota(_ANN, (), ("producer_byte_rate",))).limits == ()
    assert writer.ledger.digest() == empty
    assert not writer.ledger.client_quotas


def test_a_checkpoint_keeps_them(writer: Writer) -> None:
    for entity in (_EVERY_CLIENT, QuotaEntity("", "c"), _ANN, QuotaEntity("", None), QuotaEntity("ann", "c")):
        writer.do(AlterClientQuota(entity, (_RATE,)))
    again = Ledger.decode(writer.ledger.encode())
    assert again.digest() == writer.ledger.digest()
    assert list(again.client_quotas) == list(writer.ledger.client_quotas)
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
def test_quotas_that_make_no_sense_are_refused_as_a_whole(writer: Writer, command: AlterClientQuota) -> None:
    assert isinstance(writer.do(command), InvalidInput)
    assert not writer.ledger.client_quotas
