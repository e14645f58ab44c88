"""Commands with every value a proposer could get wrong: each is applied or refused, and the state stays sound.

A command that made the ledger raise would be in the log by then, and no broker could ever start again.
"""

from __future__ import annotations

import random
import types
import typing
from typing import Any, Literal, Union

import msgspec
import pytest

from mainstem.errors import MainstemError
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.entry import Entry, decode_command, encode_command
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.registry import REGISTRY
from mainstem.ledger.section import Command

_INTS = (
    0,
    1,
    2,
    3,
    5,
    100,
    -1,
    -2,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
    2**62,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64 - 1,
)
_TEXTS = ("", "t", "u", "g", "default", "a" * 300, "\0", "é", "..", "t/../u", "[1]", "{}", "null")
_BYTES = (b"", b"\1" * 16, b"\2" * 16, b"\xff", bytes(300))
_ROUNDS = 25


def _value(chance: random.Random, kind: Any, depth: int = 0) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return chance.choice(arguments)
    if origin in (Union, types.UnionType):
        return _value(chance, chance.choice(arguments), depth)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_value(chance, arguments[0], depth + 1) for _ in range(chance.randrange(3)))
    if origin is tuple:
        return tuple(_value(chance, argument, depth + 1) for argument in arguments)
    if origin is list:
        return [_value(chance, arguments[0], depth + 1) for _ in range(chance.randrange(3))]
    if origin is dict:
        return {
            _value(chance, arguments[0]): _value(chance, arguments[1]) for _ in range(chance.randrange(3))
        }
    if kind is TopicConfig:
        return _config(chance)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(chance, kind)
    # Small numbers often, so that commands meet what others made.
    plain = {
        int: lambda: chance.choice(_INTS[:6] if chance.random() < 0.6 else _INTS),
        str: lambda: chance.choice(_TEXTS[:4] if chance.random() < 0.6 else _TEXTS),
        bytes: lambda: chance.choice(_BYTES),
        bool: lambda: chance.random() < 0.5,
        float: lambda: chance.choice((0.0, -1.5, 1e308)),
        type(None): lambda: None,
    }
    return plain[kind]()


def _struct(chance: random.Random, kind: type[msgspec.Struct]) -> msgspec.Struct:
    return kind(**{name: _value(chance, hint) for name, hint in typing.get_type_hints(kind).items()})


def _config(chance: random.Random) -> TopicConfig:
    hints = typing.get_type_hints(TopicConfig)
    changed = chance.sample(sorted(hints), chance.randrange(4))
    return TopicConfig(**{name: _value(chance, hints[name]) for name in changed})


def _applied(ledger: Ledger, command: Command, number: int) -> Any:
    entry = Entry(1, 1, number, 1_700_000_000_000 + number, [command])
    (outcome,) = ledger.apply(Entry.decode(entry.encode()))
    return outcome


def _furnished() -> Ledger:
    """A ledger with something in it for commands to meet."""
    from mainstem.ledger.brokers import Boot
    from mainstem.ledger.topics import CreateTopic
    from mainstem.ledger.transactions import InitProducer

    ledger = Ledger()
    ledger.apply(Entry(1, 0, 0, 1, [Boot(1, "boot", False)]))
    for number, (name, config) in enumerate(
        (("t", TopicConfig()), ("u", TopicConfig(cap_records=3)), ("q", TopicConfig(type="queue")))
    ):
        _applied(ledger, CreateTopic(name, bytes([number + 1]) * 16, 2, config), number + 1)
    _applied(ledger, InitProducer("t", 60_000), 4)
    return ledger


@pytest.mark.parametrize("kind", REGISTRY.commands.values(), ids=lambda kind: str(kind.__name__))
def test_no_command_makes_the_ledger_raise(kind: type[msgspec.Struct]) -> None:
    chance = random.Random(kind.__name__)
    others = list(REGISTRY.commands.values())
    for _ in range(_ROUNDS):
        ledger = _furnished()
        for number in range(12):
            chosen = kind if number % 2 else chance.choice(others)
            command = _struct(chance, chosen)
            assert decode_command(encode_command(command)) == command
            try:
                outcome = _applied(ledger, command, 10 + number)
            except Exception as error:
                raise AssertionError(f"{command} raised {error!r}") from error
            if isinstance(outcome, MainstemError):
                str(outcome)
        assert Ledger.decode(ledger.encode()).digest() == ledger.digest()
