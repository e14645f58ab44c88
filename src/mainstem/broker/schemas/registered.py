"""What the schema registry holds: subjects, versions and schemas, as clients look them up."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from mainstem.broker.schemas.settings import RegistrySettingsService
from mainstem.errors import (
    InvalidSchemaVersion,
    MalformedSchema,
    SchemaNotFound,
    SchemaVersionNotFound,
    SubjectNotFound,
)
from mainstem.ledger.namespaces import qualify_id, split_id
from mainstem.ledger.schemas import SchemaReference, StoredSchema, StoredSubject, SubjectVersion
from mainstem.log.log import Log
from mainstem.schemas import subjects as names
from mainstem.schemas.schema import ParsedSchema, ReferencedSchema, parse

SCHEMA_REFERENCES_MAX = 1_000  # that one schema needs, those of its references included
SCHEMAS_PARSED_KEPT = 1_000

LATEST = -1
_VERSION_MAX = 2**31 - 1


class Registered(NamedTuple):
    """A version of a subject."""

    subject: str  # as clients know it
    version: int
    deleted: bool
    schema: StoredSchema

    @property
    def guid(self) -> str:
        return guid(self.schema)


def guid(schema: StoredSchema) -> str:
    """An id that is the same in every context and every registry of Mainstem."""
    return str(UUID(bytes=schema.fingerprint))


def parse_version(text: str) -> int:
    """A version of a path; LATEST for the newest. Raises InvalidSchemaVersion."""
    if text in ("latest", "-1"):
        return LATEST
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or not 1 <= int(text) <= _VERSION_MAX:
        raise InvalidSchemaVersion(text)
    return int(text)


class RegisteredSchemas:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._state = log.ledger.schemas
        self._parsed: OrderedDict[tuple[str, bytes], ParsedSchema] = OrderedDict()
        self.settings = RegistrySettingsService(log)

    # Names

    @staticmethod
    def shown(stored: str) -> str:
        """A subject as its clients know it."""
        return split_id(stored)[1]

    @staticmethod
    def space(stored: str) -> str:
        """The space that the ids of a subject belong to."""
        namespace, subject = split_id(stored)
        return qualify_id(namespace, names.parse(subject).context)

    # Subjects and versions

    def subjects(
        self,
        namespace: str,
        prefix: str = names.ALL_CONTEXTS,
        *,
        deleted: bool = False,
        deleted_only: bool = False,
    ) -> list[str]:
        """Stored names, in order."""
        any_context = prefix.startswith(names.ALL_CONTEXTS)
        wanted = prefix.removeprefix(names.ALL_CONTEXTS) if any_context else names.normal(prefix)
        found = []
        for subject in self._state.subjects():
            owner, shown = split_id(subject.subject)
            name = names.parse(shown).name if any_context else shown
            gone = all(one.deleted for one in subject.versions)
            if owner != namespace or not name.startswith(wanted) or (gone and not (deleted or deleted_only)):
                continue
            if not any_context and names.parse(shown).context != names.parse(prefix).context:
                continue
            if not deleted_only or any(one.deleted for one in subject.versions):
                found.append(subject.subject)
        return found

    def contexts(self, namespace: str) -> list[str]:
        found = {names.DEFAULT_CONTEXT}
        for subject in self._state.subjects():
            owner, shown = split_id(subject.subject)
            if owner == namespace:
                found.add(names.parse(shown).context)
        return sorted(found)

    def versions(self, stored: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        """Raises SubjectNotFound."""
        subject = self._state.subject(stored)
        found = [
            one.version
            for one in (subject.versions if subject else ())
            if (one.deleted if deleted_only else deleted or not one.deleted)
        ]
        if not found:
            raise SubjectNotFound(self.shown(stored))
        return found

    def version(self, stored: str, version: int, *, deleted: bool = False) -> Registered:
        """Raises SubjectNotFound, SchemaVersionNotFound."""
        subject = self._state.subject(stored)
        found = [one for one in (subject.versions if subject else ()) if deleted or not one.deleted]
        if subject is None or not found:
            raise SubjectNotFound(self.shown(stored))
        if version == LATEST:
            return self._registered(subject, found[-1])
        for each in found:
            if each.version == version:
                return self._registered(subject, each)
        raise SchemaVersionNotFound(version)

    def _registered(self, subject: StoredSubject, version: SubjectVersion) -> Registered:
        schema = self._state.schema(subject.space, version.id)
        assert schema is not None  # the ledger keeps a schema as long as a version has it
        return Registered(self.shown(subject.subject), version.version, version.deleted, schema)

    def referrers(self, stored: str, version: int) -> list[tuple[str, int]]:
        """(space, id) of the schemas that refer to a version, of subjects that are not deleted."""
        namespace, shown = split_id(stored)
        found = []
        for schema in self._state.all_schemas():
            if not schema.references or split_id(schema.space)[0] != namespace:
                continue
            users = self._state.subjects_of(schema.space, schema.id)
            for reference in schema.references:
                parent = str(names.Subject(split_id(schema.space)[1], ""))
                refers = names.beside(parent, reference.subject) == shown and reference.version == version
                if refers and any(self._live(user, schema.id) for user in users):
                    found.append((schema.space, schema.id))
                    break
        return sorted(found)

    def _live(self, stored: str, id: int) -> bool:
        subject = self._state.subject(stored)
        return subject is not None and any(one.id == id and not one.deleted for one in subject.versions)

    # Schemas by id

    def by_id(
        self, namespace: str, id: int, stored: str = "", visible: Callable[[str], bool] = lambda stored: True
    ) -> StoredSchema:
        """The schema of an id, in the context of a subject if one is named. Raises SchemaNotFound.

        `visible` says which subjects the caller may see: it finds a schema by one of them."""
        space = self.space(stored) if stored else qualify_id(namespace, names.DEFAULT_CONTEXT)
        found = self._state.schema(space, id)
        if found is None and stored:  # the subject may be written without its context
            name = names.parse(self.shown(stored)).name
            for context in self.contexts(namespace) if name else ():
                qualified = qualify_id(namespace, str(names.Subject(context, name)))
                subject = self._state.subject(qualified)
                if subject is not None and any(one.id == id for one in subject.versions):
                    found = self._state.schema(subject.space, id)
        if found is None or not any(map(visible, self._state.subjects_of(found.space, id))):
            raise SchemaNotFound(id)
        return found

    def by_guid(
        self, namespace: str, text: str, visible: Callable[[str], bool] = lambda stored: True
    ) -> list[StoredSchema]:
        """The schemas of a guid, by context. Raises SchemaNotFound."""
        found = [
            schema
            for schema in self._state.all_schemas()
            if guid(schema) == text.lower()
            and split_id(schema.space)[0] == namespace
            and any(map(visible, self._state.subjects_of(schema.space, schema.id)))
        ]
        if not found:
            raise SchemaNotFound(text)
        return sorted(found, key=lambda schema: (schema.space, schema.id))

    def by_number(self, space: str, id: int) -> StoredSchema | None:
        return self._state.schema(space, id)

    def by_fingerprint(self, space: str, fingerprint: bytes) -> StoredSchema | None:
        id = self._state.id_of(space, fingerprint)
        return None if id is None else self._state.schema(space, id)

    def uses(self, schema: StoredSchema, *, deleted: bool = False) -> list[tuple[str, int]]:
        """The stored subjects and versions that have a schema."""
        found = []
        for stored in self._state.subjects_of(schema.space, schema.id):
            subject = self._state.subject(stored)
            for each in subject.versions if subject else ():
                if each.id == schema.id and (deleted or not each.deleted):
                    found.append((stored, each.version))
        return found

    def last_id(self, schema: StoredSchema) -> int:
        return self._state.last_id(schema.space)

    # Parsing

    def parsed(self, schema: StoredSchema) -> ParsedSchema:
        """Raises MalformedSchema if a schema that it refers to is gone."""
        key = schema.space, schema.fingerprint
        found = self._parsed.get(key)
        if found is None:
            parent = str(names.Subject(split_id(schema.space)[1], ""))
            namespace = split_id(schema.space)[0]
            references = self.resolved(qualify_id(namespace, parent), schema.references)
            found = parse(schema.kind, schema.text, references)
            self._parsed[key] = found
            if len(self._parsed) > SCHEMAS_PARSED_KEPT:
                self._parsed.popitem(last=False)
        return found

    def resolved(self, parent: str, references: tuple[SchemaReference, ...]) -> list[ReferencedSchema]:
        """What a schema of a subject refers to, and what those refer to, each after what it needs.

        Raises MalformedSchema."""
        found: dict[str, ReferencedSchema] = {}

        def add(above: str, each: SchemaReference, depth: int) -> None:
            if each.name in found:
                return
            if depth > SCHEMA_REFERENCES_MAX or len(found) >= SCHEMA_REFERENCES_MAX:
                raise MalformedSchema(f"a schema needs at most {SCHEMA_REFERENCES_MAX} others")
            namespace, shown = split_id(above)
            subject = qualify_id(namespace, names.beside(shown, each.subject))
            try:
                target = self.version(subject, each.version, deleted=each.version != LATEST)
            except (SubjectNotFound, SchemaVersionNotFound):
                raise MalformedSchema(
                    f"Invalid schema: no schema reference found for subject {each.subject!r} and version {each.version}"
                ) from None
            for inner in target.schema.references:
                add(subject, inner, depth + 1)
            found[each.name] = ReferencedSchema(each.name, target.schema.text)

        for each in references:
            add(parent, each, 0)
        return list(found.values())
