"""Client quotas as state: what is taken, what is refused, what a checkpoint keeps."""

from __future__ import annotations

from math import inf, nan

import pytest

from mainstem.errors import InvalidInput
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.rates import AlterRate, RateEntity, RateLimits

from .writer import Writer

_ANN = RateEntity("ann", None)
_EVERY_CLIENT = RateEntity(None, "")
_TOPIC = RateEntity(topic="acme/orders")
_RATE = ("producer_byte_rate", 1000.5)


def test_limits_are_set_one_by_one_and_what_goes_leaves_no_trace(writer: Writer) -> None:
    empty = writer.ledger.digest()
    assert writer.do(AlterRate(_ANN, (_RATE,))) == RateLimits(_ANN, (_RATE,))
    share = ("request_percentage", 50.0)
    assert writer.do(AlterRate(_ANN, (share,))).limits == (_RATE, share)
    assert writer.do(AlterRate(_ANN, (), ("request_percentage", "consumer_byte_rate"))).limits == (_RATE,)
    assert writer.ledger.digest() != empty
    assert writer.do(AlterRate(_ANN, (), ("producer_byte_rate",))).limits == ()
    assert writer.ledger.digest() == empty
    assert not writer.ledger.rates


def test_a_checkpoint_keeps_them(writer: Writer) -> None:
    for entity in (
        _EVERY_CLIENT,
        RateEntity("", "c"),
        _ANN,
        RateEntity("", None),
        RateEntity("ann", "c"),
        _TOPIC,
    ):
        writer.do(AlterRate(entity, (_RATE,)))
    again = Ledger.decode(writer.ledger.encode())
    assert again.digest() == writer.ledger.digest()
    assert list(again.rates) == list(writer.ledger.rates)
    assert again.rates.get(_EVERY_CLIENT) == dict([_RATE])
    assert again.rates.topics == {"acme/orders"}


@pytest.mark.parametrize(
    "command",
    [
        AlterRate(RateEntity(None, None), (_RATE,)),
        AlterRate(RateEntity("u" * 300, None), (_RATE,)),
        AlterRate(RateEntity(topic=""), (_RATE,)),
        AlterRate(RateEntity(namespace="n", topic="t"), (_RATE,)),
        AlterRate(_ANN, (("cores", 1.0),)),
        AlterRate(_ANN, (), ("cores",)),
        AlterRate(_ANN, (_RATE, _RATE)),
        AlterRate(_ANN, (_RATE,), ("producer_byte_rate",)),
        *(AlterRate(_ANN, (_RATE, ("consumer_byte_rate", bad))) for bad in (0.0, -1.0, nan, inf, 1e300)),
    ],
)
def test_quotas_that_make_no_sense_are_refused_as_a_whole(writer: Writer, command: AlterRate) -> None:
    assert isinstance(writer.do(command), InvalidInput)
    assert not writer.ledger.rates
