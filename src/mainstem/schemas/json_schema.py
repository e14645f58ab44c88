"""JSON Schemas, of the drafts 4 to 2020-12. jsonschema validates; nothing is ever fetched from elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any
from urllib.parse import urljoin

from jsonschema import exceptions, validators
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from mainstem.errors import MalformedSchema, UndecodablePayload
from mainstem.schemas.json_compatibility import JsonDocuments, canonical, reading_problems
from mainstem.schemas.patterns import Patterns
from mainstem.schemas.schema import (
    JSON,
    ParsedSchema,
    ReferencedSchema,
)

_DEFAULT_DRAFT = validators.Draft7Validator
# Keywords that are applied to one value, subschemas included.
_STEPS_MIN = 20_000
_STEPS_PER_BYTE = 20
_VALUES_PER_STEP = 4  # of an enum, which are compared one after another …
_TEXTS_PER_STEP = 64  # … with a text


# Of jsonschema's own keywords, those with patterns use a backtracking engine, and `uniqueItems` compares each pair of
# items: a payload could keep them busy for hours.


def _pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[exceptions.ValidationError]:
    if validator.is_type(value, "string") and not _steps.patterns.matches(pattern, value):
        yield exceptions.ValidationError(f"{value[:200]!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], value: Any, schema: Any
) -> Iterator[exceptions.ValidationError]:
    if validator.is_type(value, "object"):
        for pattern, inner in patterns.items():
            for name, one in value.items():
                if _steps.patterns.matches(pattern, name):
                    yield from validator.descend(one, inner, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, value: Any, schema: Any
) -> Iterator[exceptions.ValidationError]:
    if not validator.is_type(value, "object"):
        return
    patterns = schema.get("patternProperties", ())
    for name in value:
        matching = (_steps.patterns.matches(pattern, name) for pattern in patterns)
        if name in schema.get("properties", ()) or any(matching):
            continue
        if allowed is False:
            yield exceptions.ValidationError(f"property {name[:200]!r} is not allowed")
        else:
            yield from validator.descend(value[name], allowed, path=name)


def _unique_items(
    validator: Any, wanted: Any, value: Any, schema: Any
) -> Iterator[exceptions.ValidationError]:
    if wanted and validator.is_type(value, "array") and len(set(map(canonical, value))) < len(value):
        yield exceptions.ValidationError("an item of the array occurs more than once")


def _enum(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[exceptions.ValidationError]:
    if isinstance(value, str):
        _spend(len(allowed) // _TEXTS_PER_STEP)
        found = value in allowed
    else:
        _spend(len(allowed) // _VALUES_PER_STEP)
        found = not any(_DEFAULT_DRAFT.VALIDATORS["enum"](validator, allowed, value, schema))
    if not found:
        yield exceptions.ValidationError(f"{str(value)[:200]!r} is not one of {str(allowed)[:200]}")


@cache
def _bounded(draft: Any) -> Any:
    """A validator whose keywords take linear time, and that stops at the limit of steps."""
    linear = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
        "enum": _enum,
    }
    keywords = {**draft.VALIDATORS, **linear}
    return validators.extend(draft, {name: _counted(keyword) for name, keyword in keywords.items()})


@cache
def _of_schemas(draft: Any) -> Any:
    """A validator of schemas of a draft."""
    made = validators.validator_for(draft.META_SCHEMA, default=draft)
    linear = validators.extend(made, {"uniqueItems": _unique_items})
    return linear(draft.META_SCHEMA, format_checker=made.FORMAT_CHECKER)


class _Steps(threading.local):
    """That the validation of this thread may still take, and its patterns."""

    left = 0

    def __init__(self) -> None:
        self.patterns = Patterns(_spend)


class _TooManySteps(Exception):
    pass


def _spend(steps: int) -> None:
    _steps.left -= steps
    if _steps.left < 0:
        raise _TooManySteps


_steps = _Steps()


def _counted(keyword: Callable[..., Any]) -> Callable[..., Any]:
    def call(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _spend(1)
        return keyword(validator, value, instance, schema)

    return call


class JsonSchema(ParsedSchema):
    kind = JSON

    def __init__(self, text: str, references: Sequence[ReferencedSchema] = ()) -> None:
        self._schema = _loaded(text)
        if not isinstance(self._schema, dict | bool):
            raise MalformedSchema("Invalid schema: a JSON Schema is an object or a boolean")
        draft = validators.validator_for(self._schema, default=_DEFAULT_DRAFT)
        wrong = next(_of_schemas(draft).iter_errors(self._schema), None)
        if wrong is not None:
            place = "/".join(map(str, wrong.absolute_path)) or "the top"
            raise MalformedSchema(f"Invalid schema: at {place}: {wrong.message}")
        resources = {reference.name: _loaded(reference.text) for reference in references}
        base = self._schema.get("$id", "") if isinstance(self._schema, dict) else ""
        self.documents = JsonDocuments(
            self._schema,
            {
                **resources,
                **{urljoin(str(base), name): one for name, one in resources.items()},
                **{
                    str(one["$id"]): one
                    for one in resources.values()
                    if isinstance(one, dict) and "$id" in one
                },
            },
        )
        registry: Registry[Any] = Registry().with_resources(
            (name, Resource.from_contents(one, default_specification=DRAFT7))
            for name, one in self.documents.others.items()
        )
        self._validator = _bounded(draft)(self._schema, registry=registry)
        missing = self.documents.unresolved()
        if missing is not None:
            raise MalformedSchema(f"Invalid schema: nothing is known as {missing!r}, which $ref names")

    @property
    def text(self) -> str:
        return json.dumps(self._schema, separators=(",", ":"), ensure_ascii=False)

    def normal_text(self) -> str:
        return json.dumps(self._schema, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def differences(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, JsonSchema)
        return reading_problems(self.documents, writer.documents)

    def decode(self, payload: bytes) -> Any:
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError) as wrong:
            raise UndecodablePayload(f"the bytes are not JSON: {wrong}") from None
        self._check(value, len(payload))
        return value

    def encode(self, value: Any) -> bytes:
        try:
            payload = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        except (TypeError, ValueError) as wrong:
            raise UndecodablePayload(f"the value is not JSON: {wrong}") from None
        self._check(value, len(payload))
        return payload

    def _check(self, value: Any, size: int) -> None:
        """Schemas can be written so that a small value takes for ever."""
        _steps.left = _STEPS_MIN + _STEPS_PER_BYTE * size
        _steps.patterns = Patterns(_spend)
        try:
            wrong = exceptions.best_match(self._validator.iter_errors(value))
        except (Unresolvable, RecursionError) as unresolved:
            raise UndecodablePayload(f"the schema cannot be applied: {unresolved}") from None
        except _TooManySteps:
            raise UndecodablePayload("the schema takes too many steps for this value") from None
        if wrong is not None:
            place = ".".join(map(str, wrong.absolute_path))
            raise UndecodablePayload((f"field {place!r}: " if place else "") + wrong.message[:500])


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as wrong:
        raise MalformedSchema(f"Invalid schema: the text is not JSON: {wrong}") from None
