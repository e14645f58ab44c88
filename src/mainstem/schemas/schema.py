"""What every kind of schema can do, whatever its language."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from mainstem.errors import MalformedSchema


class ReferencedSchema(NamedTuple):
    """A schema that another one refers to by `name`."""

    name: str
    text: str


class ParsedSchema(ABC):
    """A schema, with everything that it refers to."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def text(self) -> str:
        """The canonical text: independent of white space."""

    @abstractmethod
    def normal_text(self) -> str:
        """The same schema in the one form that all equal schemas share."""

    @abstractmethod
    def differences(self, writer: ParsedSchema) -> list[str]:
        """Why this schema cannot read what `writer` wrote; none if it can."""

    @abstractmethod
    def decode(self, payload: bytes) -> Any:
        """The value of a payload, after the magic byte and the id. Raises UndecodablePayload."""

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """The payload of a value, after the magic byte and the id. Raises UndecodablePayload."""

    def from_json(self, value: Any) -> Any:
        """A value of JSON, as `encode` takes it."""
        return value

    def formatted(self, format: str) -> str:
        """The text in a format of this kind, or the canonical text."""
        return self.text


def parse(kind: str, text: str, references: Sequence[ReferencedSchema] = ()) -> ParsedSchema:
    """Parse a schema. References come in an order in which each one needs only those before it.

    Raises MalformedSchema."""
    try:
        parsed = _parsed(kind, text, references)
        if "\\ud" in text.lower():  # an escape that may be half a character
            parsed.text.encode()
    except RecursionError:
        raise MalformedSchema("the schema is nested too deeply") from None
    except UnicodeEncodeError:
        raise MalformedSchema("Invalid schema: a text has half of a surrogate pair") from None
    return parsed


def _parsed(kind: str, text: str, references: Sequence[ReferencedSchema]) -> ParsedSchema:
    # The libraries of each kind load when the first schema of that kind does.
    if kind == AVRO:
        from mainstem.schemas.avro import AvroSchema

        return AvroSchema(text, references)
    if kind == JSON:
        from mainstem.schemas.json_schema import JsonSchema

        return JsonSchema(text, references)
    if kind == PROTOBUF:
        from mainstem.schemas.protobuf import ProtobufSchema

        return ProtobufSchema(text, references)
    raise MalformedSchema(f"invalid schema type {kind[:64]!r}: the types are {', '.join(KINDS)}")


AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
KINDS = (JSON, PROTOBUF, AVRO)
