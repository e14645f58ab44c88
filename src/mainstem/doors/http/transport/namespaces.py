"""Names of a bound client in requests and responses: full names on the way in, plain names on the way out.

The classes of the contract decide what to translate: a string field called `topic` names a topic.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from mainstem.broker.namespaces import DEFAULT, ID_SEPARATOR, NamespaceView, qualify, view_of

T = TypeVar("T")

_TOPICS = {"topic", "topics", "source", "dest", "queue"}
_IDS = {"group", "router", "transaction", "routers_removed"}
_NOT_NAMES = {"Publication", "PartRow"}  # classes whose fields of these names mean something else

current: ContextVar[NamespaceView | None] = ContextVar(
    "current", default=None
)  # of the request that is served


class _ForeignResource(Exception):
    """A response names something of another namespace."""


@dataclass(frozen=True, slots=True)
class _BodyFields:
    topics: tuple[str, ...]
    ids: tuple[str, ...]
    nested: tuple[str, ...]

    @property
    def empty(self) -> bool:
        return not (self.topics or self.ids or self.nested)


@cache
def _fields(kind: Any) -> _BodyFields:
    topics, ids, nested = [], [], []
    for name, hint in get_type_hints(kind).items():
        if _has_text(hint) and name in _TOPICS and kind.__name__ not in _NOT_NAMES:
            topics.append(name)
        elif _has_text(hint) and name in _IDS:
            ids.append(name)
        elif any(not _fields(inner).empty for inner in _structs(hint)):
            nested.append(name)
    return _BodyFields(tuple(topics), tuple(ids), tuple(nested))


def _has_text(hint: Any) -> bool:
    """Whether values are strings, lists of strings, or maps with string keys."""
    if hint is str:
        return True
    arguments = get_args(hint)
    if get_origin(hint) is dict:
        return arguments[0] is str
    return any(_has_text(one) for one in arguments if one is not Ellipsis)


def _structs(hint: Any) -> list[Any]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    return [inner for one in get_args(hint) if one is not Ellipsis for inner in _structs(one)]


def qualified(view: NamespaceView, body: T) -> T:
    """A body of a bound client, with full names."""
    if not isinstance(body, msgspec.Struct):
        return body
    fields = _fields(body.__class__)
    changes: dict[str, Any] = {}
    for name in fields.topics:
        changes[name] = _each(getattr(body, name), view.own_topic)
    for name in fields.ids:
        changes[name] = _each(getattr(body, name), view.id)
    for name in fields.nested:
        changes[name] = _each(getattr(body, name), lambda inner: qualified(view, inner))
    return msgspec.structs.replace(body, **changes) if changes else body


def plain(view: NamespaceView, content: T) -> T:
    """A response to a bound client, with plain names. Items of lists that name anything else are left out."""
    if isinstance(content, list | tuple):
        return _each(content, lambda inner: plain(view, inner))  # type: ignore[no-any-return]
    if not isinstance(content, msgspec.Struct):
        return content
    fields = _fields(content.__class__)
    changes: dict[str, Any] = {}
    for name in fields.topics:
        changes[name] = _each(getattr(content, name), lambda full: _known(view.plain_topic(full)))
    for name in fields.ids:
        changes[name] = _each(getattr(content, name), lambda stored: _known(view.plain_id(stored)))
    for name in fields.nested:
        changes[name] = _each(getattr(content, name), lambda inner: plain(view, inner))
    return msgspec.structs.replace(content, **changes) if changes else content


def _known(name: str | None) -> str:
    if name is None:
        raise _ForeignResource
    return name


def _each(value: Any, change: Any) -> Any:
    """Change a value, the items of a list or the keys of a map. Foreign items are left out."""
    if value is None or value is msgspec.UNSET:
        return value
    if isinstance(value, dict):
        kept = {}
        for key, inner in value.items():
            try:
                kept[change(key) if isinstance(key, str) else key] = inner
            except _ForeignResource:
                continue
        return kept
    if not isinstance(value, list | tuple):
        return change(value)
    items = []
    for item in value:
        try:
            items.append(change(item))
        except _ForeignResource:
            continue
    return type(value)(items)


def plain_text(view: NamespaceView, body: bytes) -> bytes:
    """The body of an error as the client may read it."""
    if view.namespace == DEFAULT:
        return body
    prefix = qualify(view.namespace, "").encode()
    escaped = f"{view.namespace}\\u00{ord(ID_SEPARATOR):02x}".encode()
    return body.replace(prefix + b"/", b"").replace(prefix, b"").replace(escaped, b"")


__all__ = ["NamespaceView", "current", "plain", "plain_text", "qualified", "view_of"]
