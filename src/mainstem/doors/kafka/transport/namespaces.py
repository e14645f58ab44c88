"""Names of a bound client in Kafka's messages: full names on the way in, plain names on the way out.

The library types the fields that name topics, groups and transactions, so what to translate follows from its classes.
The few fields that it leaves as text have a line in `_UNTYPED`. APIs that read or write their bytes by hand translate
where they look a topic up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, get_args, get_type_hints
from uuid import UUID

from kio.schema.types import GroupId, TopicName, TransactionalId

from mainstem.broker.namespaces import ID_SEPARATOR, NamespaceView, view_of
from mainstem.broker.streams import StreamService
from mainstem.doors.kafka.apis.config_entries import Resource
from mainstem.errors import InvalidName, MalformedRequest

_UNKNOWN_ID = UUID(
    int=1
)  # in place of the id of a topic in another namespace; ids are random, so no topic has it

# Lists that name everything there is, by API key: an unbound client sees those of the default namespace.
_LISTS = {16, 35, 66, 74}  # ListGroups, DescribeLogDirs, ListTransactions, ListConfigResources

_TOPIC, _ID, _TOPIC_ID, _MESSAGE = "topic", "id", "topic id", "message"
_KINDS: dict[Any, str] = {TopicName: _TOPIC, GroupId: _ID, TransactionalId: _ID}

# Fields that name something and that the library types as text, by class.
_UNTYPED = {
    ("FindCoordinatorRequest", "coordinator_keys"): _ID,
    ("Coordinator", "key"): _ID,
}
_CONFIG_KINDS = {int(Resource.TOPIC): _TOPIC, int(Resource.GROUP): _ID}


class _ForeignName(Exception):
    """The message names something of another namespace."""


@dataclasses.dataclass(frozen=True, slots=True)
class _MessageFields:
    """What to translate in one class of messages."""

    names: tuple[tuple[str, str, bool], ...]  # field, kind, whether it is a list
    nested: tuple[tuple[str, Any, bool], ...]  # field, its class, whether it is a list
    config: bool  # `resource_name` is of the kind that `resource_type` says

    @property
    def empty(self) -> bool:
        return not (self.names or self.nested or self.config)


@cache
def _fields(message: type[Any]) -> _MessageFields:
    names: list[tuple[str, str, bool]] = []
    nested: list[tuple[str, Any, bool]] = []
    hints = get_type_hints(message)
    for field in (field.name for field in dataclasses.fields(message)):
        inner, is_list = _inner(hints[field])
        kind = _UNTYPED.get((message.__name__, field)) or _KINDS.get(inner)
        if field == "error_message":
            kind = _MESSAGE
        elif field == "topic_id":
            kind = _TOPIC_ID
        if kind is not None:
            names.append((field, kind, is_list))
        elif dataclasses.is_dataclass(inner) and not _fields(inner).empty:  # type: ignore[arg-type]  # a class
            nested.append((field, inner, is_list))
    own = {field.name for field in dataclasses.fields(message)}
    config = {"resource_name", "resource_type"} <= own and "Acl" not in message.__name__
    return _MessageFields(tuple(names), tuple(nested), config)


def _inner(hint: Any) -> tuple[Any, bool]:
    """The type of a field without None, or of the items of a list."""
    arguments = [one for one in get_args(hint) if one is not type(None)]
    if not arguments:
        return hint, False
    if arguments[-1] is Ellipsis:
        return arguments[0], True
    return _inner(arguments[0])


# Requests


def qualified(view: NamespaceView, streams: StreamService, message: Any) -> Any:
    """A request of a bound client, with full names. It changes the message, which nothing else uses yet."""
    _qualify(view, streams, message, _fields(message.__class__))
    return message


def _qualify(view: NamespaceView, streams: StreamService, message: Any, fields: _MessageFields) -> None:
    try:
        for field, kind, is_list in fields.names:
            value = getattr(message, field)
            if value is not None and kind is not _MESSAGE:
                one = _IN[kind]
                changed = (
                    tuple(one(view, streams, each) for each in value)
                    if is_list
                    else one(view, streams, value)
                )
                object.__setattr__(message, field, changed)
        if fields.config and message.resource_type in _CONFIG_KINDS:
            one = _IN[_CONFIG_KINDS[message.resource_type]]
            object.__setattr__(message, "resource_name", one(view, streams, message.resource_name))
    except InvalidName as error:
        raise MalformedRequest(str(error)) from None
    for field, inner, is_list in fields.nested:
        value = getattr(message, field)
        if value is not None:
            for each in value if is_list else (value,):
                _qualify(view, streams, each, _fields(inner))


def _own_topic_id(view: NamespaceView, streams: StreamService, id: UUID) -> UUID:
    topic = streams.get_by_id(id.bytes)
    return id if topic is None or view.has(topic) else _UNKNOWN_ID


_IN: dict[str, Callable[[NamespaceView, StreamService, Any], Any]] = {
    _TOPIC: lambda view, streams, name: view.topic(name),
    _ID: lambda view, streams, id: view.id(id) if id else id,
    _TOPIC_ID: _own_topic_id,
}


def check_ids(message: Any) -> None:
    """Raises MalformedRequest if an unbound client names a group or transaction of a namespace by its stored id."""
    fields = _fields(message.__class__)
    for field, kind, is_list in fields.names:
        value = getattr(message, field)
        if (
            kind is _ID
            and value is not None
            and any(ID_SEPARATOR in each for each in (value if is_list else (value,)))
        ):
            raise MalformedRequest("ids of groups and transactions cannot contain U+001F")
    if fields.config and ID_SEPARATOR in message.resource_name:
        raise MalformedRequest("ids of groups and transactions cannot contain U+001F")
    for field, _, is_list in fields.nested:
        value = getattr(message, field)
        if value is not None:
            for each in value if is_list else (value,):
                check_ids(each)


# Responses


def plain(view: NamespaceView, answer: Any) -> Any:
    """A response to a bound client, with plain names. Items of lists that name anything else are left out."""
    return _strip(view, answer, _fields(answer.__class__))


def default_lists(key: int, request: Any, answer: Any) -> Any:
    """A response to an unbound client: lists of everything show the default namespace."""
    if key not in _LISTS or getattr(request, "topics", None):
        return answer
    return plain(view_of("default"), answer)


def _strip(view: NamespaceView, message: Any, fields: _MessageFields) -> Any:
    changes: dict[str, Any] = {}
    for field, kind, is_list in fields.names:
        value = getattr(message, field)
        if value is not None and kind is not _TOPIC_ID:
            changes[field] = _stripped_list(view, kind, value) if is_list else _stripped(view, kind, value)
    if fields.config and message.resource_type in _CONFIG_KINDS:
        changes["resource_name"] = _stripped(
            view, _CONFIG_KINDS[message.resource_type], message.resource_name
        )
    for field, inner, is_list in fields.nested:
        value = getattr(message, field)
        if value:
            changes[field] = (
                _strip_all(view, value, inner) if is_list else _strip(view, value, _fields(inner))
            )
    return dataclasses.replace(message, **changes) if changes else message


def _strip_all(view: NamespaceView, messages: tuple[Any, ...], inner: Any) -> tuple[Any, ...]:
    fields, kept = _fields(inner), []
    for message in messages:
        try:
            kept.append(_strip(view, message, fields))
        except _ForeignName:
            continue
    return tuple(kept)


def _stripped_list(view: NamespaceView, kind: str, names: tuple[str, ...]) -> tuple[str, ...]:
    kept = []
    for name in names:
        try:
            kept.append(_stripped(view, kind, name))
        except _ForeignName:
            continue
    return tuple(kept)


def _stripped(view: NamespaceView, kind: str, name: str) -> str:
    if kind is _MESSAGE:
        return view.text(name)
    if not name:
        return name
    found = view.plain_topic(name) if kind is _TOPIC else view.plain_id(name)
    if found is None:
        raise _ForeignName
    return found
