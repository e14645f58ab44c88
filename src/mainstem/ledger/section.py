"""Sections: the parts of the ledger's state.

A section is one class in one module, together with its commands and their results. It declares
- its commands: a method marked `@applies(SomeCommand)` applies that command;
- the events it reacts to: a method marked `@reacts(SomeEvent)` runs when another section publishes that event;
- its codec: the type argument of `Section` is the type of its encoded state, `encode` gives it and `load` takes it;
- its digest;
- the sections it needs: `requires`, which its constructor gets in this order.

registry.py lists the sections. Nothing else has to change to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, get_args

import msgspec

Buffer = bytes | bytearray | memoryview
Outcome = object  # of a command: its result, or the MainstemError that refuses it

_APPLIES, _REACTS, _ADMITS = "_applies", "_reacts", "_admits"


class Command(msgspec.Struct, frozen=True, array_like=True):
    """A state change. Every change but an append is one; appends travel as arrays (see entry.py).

    A command is encoded with msgpack as an array that begins with its tag. Times and random ids arrive inside it."""


class Moment:
    """What a command can see outside its own section: when it applies, and the outcome right before it."""

    def __init__(self) -> None:
        self.position = 0  # entries applied so far, refused ones included
        self.time_ms = 0  # ledger time: never runs back
        self.before: Outcome | None = None  # outcome of the previous part of the same entry
        self._reactions: Mapping[type[Any], Sequence[Callable[[Any, Moment], None]]] = {}

    def publish(self, event: object) -> None:
        """Run every reaction to the event, in the order of the registry."""
        for react in self._reactions.get(type(event), ()):
            react(event, self)


C = TypeVar("C", bound=Command)
E = TypeVar("E")
R = TypeVar("R")
S = TypeVar("S")

Applier = Callable[[Any, C, Moment], R]
Reaction = Callable[[Any, E, Moment], None]
AppendCheck = Callable[[Any, C], bool]


def applies(command: type[C]) -> Callable[[Applier[C, R]], Applier[C, R]]:
    """The method applies this command. It returns a result, or the error that refuses the command."""

    def mark(method: Applier[C, R]) -> Applier[C, R]:
        setattr(method, _APPLIES, command)
        return method

    return mark


def reacts(event: type[E]) -> Callable[[Reaction[E]], Reaction[E]]:
    """The method runs when this event is published."""

    def mark(method: Reaction[E]) -> Reaction[E]:
        setattr(method, _REACTS, event)
        return method

    return mark


def admits_append(command: type[C]) -> Callable[[AppendCheck[C]], AppendCheck[C]]:
    """The method decides whether the append run right before this command, in the same entry, still applies."""

    def mark(method: AppendCheck[C]) -> AppendCheck[C]:
        setattr(method, _ADMITS, command)
        return method

    return mark


class Section(Generic[S]):
    """One part of the state. `S` is its encoded form."""

    requires: ClassVar[tuple[type[Section[Any]], ...]] = ()
    state_type: ClassVar[Any]
    appliers: ClassVar[dict[type[Command], str]]  # command → method
    reactions: ClassVar[dict[type[Any], str]]  # event → method
    admissions: ClassVar[dict[type[Command], str]]  # command → method

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in getattr(cls, "__orig_bases__", ()):
            if getattr(base, "__origin__", None) is Section:
                cls.state_type = get_args(base)[0]
        cls.appliers = _marked(cls, _APPLIES)
        cls.reactions = _marked(cls, _REACTS)
        cls.admissions = _marked(cls, _ADMITS)

    @property
    def digest(self) -> int:
        """64 bits that depend on the values in the section, and not on the order of changes (see digest.py)."""
        raise NotImplementedError

    def encode(self) -> S:
        """The state, for a checkpoint. Equal states encode to equal bytes."""
        raise NotImplementedError

    def load(self, state: S) -> None:
        """Load an encoded state. The section is new, and the sections it requires are loaded."""
        raise NotImplementedError


def _marked(cls: type[Any], mark: str) -> dict[type[Any], str]:
    methods = [(name, getattr(cls, name)) for name in dir(cls) if not name.startswith("__")]
    return {getattr(method, mark): name for name, method in methods if hasattr(method, mark)}
