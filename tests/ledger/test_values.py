"""State, digest and checkpoint are functions of values.

Commands here carry every kind of value a proposer can pass: defaults as new objects, interned or not, lists for tuples,
bools for ints, "" for an absent text. Whatever the ledger accepts must replay to the same digest and the same bytes.
"""

from __future__ import annotations

import typing
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainstem.errors import InvalidInput
from mainstem.ledger.brokers import Boot
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.entry import Entry, canonical_command, encode_command
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.registry import REGISTRY
from mainstem.ledger.replay import apply_all
from mainstem.ledger.section import Command
from mainstem.ledger.streams import MarkLost
from mainstem.ledger.topics import AlterTopic, CreateTopic
from mainstem.ledger.transactions import InitProducer

_COMMANDS: tuple[type[Any], ...] = tuple(REGISTRY.commands.values())
_INTS = (0, 1, 2, 3, 100, -1, 2**31, 2**53, 2**63 - 1, -(2**63))
_TEXTS = ("", "t", "u", "q", "g", "group", "default", "fsync", "CreateTime", "a" * 300, "é", "null")
_BYTES = (b"", b"\1" * 16, b"\2" * 16, b"\xff")


def _fresh(value: Any) -> Any:
    """An equal value that shares no object with `value`, where Python lets one be made."""
    if isinstance(value, str):
        return "".join(list(value))
    if isinstance(value, bytes):
        return bytes(bytearray(value))
    if type(value) is int:
        return int(str(value))
    if isinstance(value, tuple):
        return tuple(map(_fresh, value))
    return value


def _value(draw: Any, kind: Any, *, loose: bool) -> Any:
    """A value for a field of this type. `loose`: of a type that compares equal, too."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return _fresh(draw(st.sampled_from(arguments)))
    if arguments and type(None) in arguments:
        rest = [argument for argument in arguments if argument is not type(None)]
        return draw(st.none()) if draw(st.booleans()) else _value(draw, rest[0], loose=loose)
    if origin is tuple:
        of = (
            [arguments[0]] * draw(st.integers(0, 2))
            if len(arguments) == 2 and arguments[1] is Ellipsis
            else arguments
        )
        made = [_value(draw, argument, loose=loose) for argument in of]
        return made if loose and draw(st.booleans()) else tuple(made)
    if origin is list:
        return [_value(draw, arguments[0], loose=loose) for _ in range(draw(st.integers(0, 2)))]
    if origin is dict:
        return {
            _value(draw, arguments[0], loose=loose): _value(draw, arguments[1], loose=loose)
            for _ in range(draw(st.integers(0, 2)))
        }
    if origin is not None or typing.get_args(kind):
        return _value(draw, arguments[0], loose=loose)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(draw, kind, loose=loose)
    if kind is int:
        found = draw(st.sampled_from(_INTS))
        return bool(found) if loose and found in (0, 1) and draw(st.booleans()) else _fresh(found)
    if kind is bool:
        flag = draw(st.booleans())
        return int(flag) if loose and draw(st.booleans()) else flag
    if kind is float:
        number = draw(st.sampled_from((0.0, -0.0, 1.5, -1.0)))
        return int(number) if loose and number.is_integer() and draw(st.booleans()) else number
    if kind is bytes:
        return _fresh(draw(st.sampled_from(_BYTES)))
    assert kind is str, kind
    return _fresh(draw(st.sampled_from(_TEXTS)))


def _struct(draw: Any, kind: type[msgspec.Struct], *, loose: bool) -> Any:
    """Each field that has a default is left out, given its default as a new object, or given something else."""
    hints = typing.get_type_hints(kind)
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        how = draw(st.sampled_from(("absent", "default", "other"))) if not field.required else "other"
        if how == "other":
            given[field.name] = _value(draw, hints[field.name], loose=loose)
        elif how == "default" and field.default is not msgspec.NODEFAULT:
            given[field.name] = _fresh(field.default)
    return kind(**given)


def _furnished() -> list[Command]:
    """Commands whose results others can meet."""
    return [
        CreateTopic("t", b"\1" * 16, 2, TopicConfig()),
        CreateTopic("u", b"\2" * 16, 1, TopicConfig(cap_records=3)),
        CreateTopic("q", b"\3" * 16, 1, TopicConfig(type="queue")),
        InitProducer("t", 60_000),
    ]


class _Twins:
    """One ledger that applies commands as a broker does, and its log."""

    def __init__(self) -> None:
        self.live = Ledger()
        self.log: list[bytes] = []
        self._apply(Entry(1, 0, 0, 1, [Boot(1, "boot", False)]))
        for command in _furnished():
            self.propose(command)

    def propose(self, command: Command) -> None:
        """As the commit path: encode, apply what those bytes say, or refuse."""
        try:
            applied = canonical_command(encode_command(command))
        except InvalidInput:
            return
        self._apply(Entry(1, 1, len(self.log), 1_700_000_000_000 + len(self.log), [applied]))

    def propose_itself(self, command: Command) -> None:
        """Apply the very object, which may share none with its replay."""
        self._apply(Entry(1, 1, len(self.log), 1_700_000_000_000 + len(self.log), [command]))

    def _apply(self, entry: Entry) -> None:
        self.log.append(entry.encode())
        self.live.apply(entry)

    def check(self) -> None:
        state, digest = self.live.encode(), self.live.digest()
        replayed = Ledger()
        apply_all(self.log, replayed)
        assert replayed.digest() == digest
        assert replayed.encode() == state
        reloaded = Ledger.decode(state)
        assert reloaded.encode() == state
        half = Ledger()
        apply_all(self.log[: len(self.log) // 2], half)
        resumed = Ledger.decode(half.encode())
        apply_all(self.log[len(self.log) // 2 :], resumed)
        assert resumed.encode() == state


_SETTINGS = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", _COMMANDS, ids=lambda kind: str(kind.__name__))
@_SETTINGS
@given(data=st.data())
def test_a_command_of_any_values_replays_to_the_same_digest_and_bytes(
    kind: type[Any], data: st.DataObject
) -> None:
    twins = _Twins()
    for number in range(6):
        chosen = kind if number % 2 else data.draw(st.sampled_from(_COMMANDS))
        if number % 3:
            twins.propose(_struct(data.draw, chosen, loose=True))
        else:
            twins.propose_itself(_struct(data.draw, chosen, loose=False))
    twins.check()


def _settings_of_each_field() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for field in msgspec.structs.fields(TopicConfig):
        kind = typing.get_type_hints(TopicConfig)[field.name]
        values = {
            Literal: lambda kind=kind: typing.get_args(kind),
            tuple: lambda field=field: (
                (),
                (("a", "b"),) if field.name in ("inert", "properties") else ("a",),
            ),
        }.get(typing.get_origin(kind))
        plain: dict[Any, tuple[Any, ...]] = {
            int: (0, 1, 2**53),
            bool: (False, True),
            str: ("", "compact", "producer"),
            float: (0.0, -0.0, 1.5),
        }
        choices = (
            values() if values else plain.get(kind, (None, "t", 5)[: 2 if field.name == "dead_letter" else 3])
        )
        if kind == int | None:
            choices = (None, 0, 5)
        found += [(field.name, value) for value in (*choices, field.default)]
    return found


@pytest.mark.parametrize(("name", "value"), _settings_of_each_field())
def test_every_topic_setting_at_every_kind_of_value_survives_replay(name: str, value: Any) -> None:
    twins = _Twins()
    twins.propose_itself(CreateTopic("made", b"\7" * 16, 1, TopicConfig(**{name: _fresh(value)})))
    twins.propose_itself(AlterTopic(b"\1" * 16, TopicConfig(**{name: _fresh(value)})))
    twins.check()


def test_a_setting_equal_to_its_default_leaves_the_digest_as_it_was() -> None:
    plain, named = Ledger(), Ledger()
    for ledger, config in ((plain, TopicConfig()), (named, TopicConfig(durability=_fresh("fsync")))):
        ledger.apply(Entry(1, 0, 0, 1, [Boot(1, "boot", False)]))
        ledger.apply(Entry(1, 1, 1, 1, [CreateTopic("t", b"\1" * 16, 1, config)]))
    assert plain.digest() == named.digest()
    assert plain.encode() == named.encode()


def test_a_value_that_no_replay_could_read_is_refused_before_it_is_written() -> None:
    with pytest.raises(InvalidInput, match="wrong type"):
        canonical_command(encode_command(MarkLost(stream=True, start=0, end=1)))
