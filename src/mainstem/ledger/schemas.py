"""The schema registry: schemas by id, the versions of each subject, and settings of compatibility and mode.

Subjects are stored with their namespace before them, like groups (namespaces.py). Ids are numbered within a space: a
namespace and a context. The broker parses and compares schemas. Its commands name the revision of the registry that it
compared with, and are rejected if the registry has changed since. So the ledger's state never depends on the version of
a library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached, SchemaIdConflict, SchemaRegistryChanged
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies

SCHEMAS_CHARS_MAX = 512_000_000  # of all schemas together: they are held in memory
SCHEMA_SUBJECTS_MAX = 100_000
SCHEMA_VERSIONS_MAX = 1_000  # of one subject, softly deleted ones included

FINGERPRINT_BYTES = 16
SCHEMA_ID_MAX = 2**31 - 1
_NAME_CHARS_MAX = 2048  # of a subject with its namespace and context


class SchemaReference(msgspec.Struct, frozen=True, array_like=True):
    """A schema of another subject that a schema uses, as the client wrote it."""

    name: str
    subject: str
    version: int


class StoredSchema(msgspec.Struct, frozen=True, array_like=True):
    """One schema of a space; also the form in a checkpoint."""

    space: str
    id: int
    kind: str  # AVRO, JSON or PROTOBUF
    text: str
    references: tuple[SchemaReference, ...]
    extras: str  # metadata and rules, as JSON; empty without
    fingerprint: bytes  # of all of these but the space and the id


class SubjectVersion(msgspec.Struct, frozen=True, array_like=True):
    version: int
    id: int
    deleted: bool = False  # softly: it can still be looked up, and its number is not given out again


class StoredSubject(msgspec.Struct, frozen=True, array_like=True):
    """The versions of one subject, in order; also the form in a checkpoint."""

    subject: str
    space: str
    versions: tuple[SubjectVersion, ...]


class RegistrySettings(msgspec.Struct, frozen=True, array_like=True):
    """What is set for a subject, for a context or for a whole namespace; also the form in a checkpoint."""

    scope: str
    config: str  # compatibility and normalisation, as JSON; empty if not set
    mode: str  # empty if not set


class IdSpace(msgspec.Struct, frozen=True, array_like=True):
    space: str
    next_id: int


class SchemasState(msgspec.Struct, frozen=True, array_like=True):
    revision: int
    spaces: list[IdSpace]
    schemas: list[StoredSchema]
    subjects: list[StoredSubject]
    settings: list[RegistrySettings]


class RegisterSchema(Command, frozen=True, tag=210):
    """Add a version to a subject. An id and a version of 0 are assigned on apply."""

    revision: int  # of the registry that the schema was checked against
    subject: str
    space: str
    kind: str
    text: str
    references: tuple[SchemaReference, ...]
    extras: str
    fingerprint: bytes
    id: int
    version: int


class DeleteSchemaVersions(Command, frozen=True, tag=211):
    """Delete versions of a subject, softly or for good."""

    revision: int
    subject: str
    versions: tuple[int, ...]
    permanent: bool


class PutRegistrySettings(Command, frozen=True, tag=212):
    """Set the settings of a scope. Empty ones are removed."""

    revision: int
    settings: RegistrySettings


class Schemas(Section[SchemasState]):
    """`revision` grows with every change."""

    def __init__(self) -> None:
        self.revision = 0
        self._spaces: Keyed[str, IdSpace] = Keyed(fields_hash("schema ids"))
        self._schemas: Keyed[tuple[str, int], StoredSchema] = Keyed(fields_hash("schema"))
        self._subjects: Keyed[str, StoredSubject] = Keyed(fields_hash("schema subject"))
        self._settings: Keyed[str, RegistrySettings] = Keyed(fields_hash("schema settings"))
        # Derived from the above.
        self._ids: dict[tuple[str, bytes], int] = {}  # by fingerprint
        self._uses: dict[tuple[str, int], set[str]] = {}  # subjects that have a version of the schema
        self._bytes = 0
        self.on_change: Callable[[], None] | None = None

    # Reads

    def subject(self, stored: str) -> StoredSubject | None:
        return self._subjects.get(stored)

    def subjects(self) -> Iterator[StoredSubject]:
        """By name."""
        return iter(self._subjects)

    def schema(self, space: str, id: int) -> StoredSchema | None:
        return self._schemas.get((space, id))

    def id_of(self, space: str, fingerprint: bytes) -> int | None:
        return self._ids.get((space, fingerprint))

    def subjects_of(self, space: str, id: int) -> list[str]:
        """The subjects that have a version of a schema, by name."""
        return sorted(self._uses.get((space, id), ()))

    def all_schemas(self) -> Iterator[StoredSchema]:
        return self._schemas.unordered()

    def settings(self, scope: str) -> RegistrySettings | None:
        return self._settings.get(scope)

    def last_id(self, space: str) -> int:
        found = self._spaces.get(space)
        return 0 if found is None else found.next_id - 1

    def __len__(self) -> int:
        return len(self._schemas)

    @property
    def subject_count(self) -> int:
        return len(self._subjects)

    # Changes

    @applies(RegisterSchema)
    def register(
        self, command: RegisterSchema, now: Moment
    ) -> SubjectVersion | InvalidInput | LimitReached | SchemaRegistryChanged | SchemaIdConflict:
        refusal = self._fault(command)
        if refusal is not None:
            return refusal
        space, subject = command.space, self._subjects.get(command.subject)
        known = self._ids.get((space, command.fingerprint))
        if command.id:
            taken = self._schemas.get((space, command.id))
            if taken is not None and taken.fingerprint != command.fingerprint:
                return SchemaIdConflict(f"id {command.id} belongs to another schema")
        id = command.id or known or self.last_id(space) + 1
        versions = () if subject is None else subject.versions
        version = command.version or (versions[-1].version + 1 if versions else 1)
        if max(id, version) > SCHEMA_ID_MAX:
            return LimitReached("there are no more schema ids or versions")
        if any(one.version == version and not one.deleted for one in versions):
            return SchemaIdConflict(f"subject has a version {version} already")
        self._put_schema(
            StoredSchema(
                space, id, command.kind, command.text, command.references, command.extras, command.fingerprint
            )
        )
        if id > self.last_id(space):
            self._spaces.put(space, IdSpace(space, id + 1))
        added = SubjectVersion(version, id)
        kept = [one for one in versions if one.version != version]
        ordered = sorted((*kept, added), key=lambda one: one.version)
        self._put_subject(StoredSubject(command.subject, space, tuple(ordered)))
        self._forget_unused((one.id for one in versions if one.version == version), space)
        self._changed()
        return added

    @applies(DeleteSchemaVersions)
    def delete(self, command: DeleteSchemaVersions, now: Moment) -> tuple[int, ...] | SchemaRegistryChanged:
        subject = self._subjects.get(command.subject)
        if command.revision != self.revision or subject is None:
            return SchemaRegistryChanged()
        wanted = set(command.versions)
        found = tuple(one.version for one in subject.versions if one.version in wanted)
        if not found:
            return ()
        if command.permanent:
            left = tuple(one for one in subject.versions if one.version not in wanted)
        else:
            left = tuple(
                SubjectVersion(one.version, one.id, True) if one.version in wanted else one
                for one in subject.versions
            )
        self._put_subject(StoredSubject(subject.subject, subject.space, left))
        if command.permanent:
            self._forget_unused((one.id for one in subject.versions if one.version in wanted), subject.space)
        self._changed()
        return found

    @applies(PutRegistrySettings)
    def put_settings(
        self, command: PutRegistrySettings, now: Moment
    ) -> RegistrySettings | InvalidInput | LimitReached | SchemaRegistryChanged:
        settings = command.settings
        if command.revision != self.revision:
            return SchemaRegistryChanged()
        if max(len(settings.scope), len(settings.mode)) > _NAME_CHARS_MAX:
            return InvalidInput("the name is too long")
        if len(settings.config) > limits.SCHEMA_CHARS_MAX:
            return InvalidInput(f"settings have at most {limits.SCHEMA_CHARS_MAX} characters")
        if settings.config or settings.mode:
            full = self._settings.refusal(settings.scope, SCHEMA_SUBJECTS_MAX, "registry settings")
            if full is not None:
                return full
            self._settings.put(settings.scope, settings)
        else:
            self._settings.pop(settings.scope)
        self._changed()
        return settings

    def _fault(self, command: RegisterSchema) -> InvalidInput | LimitReached | SchemaRegistryChanged | None:
        if command.revision != self.revision:
            return SchemaRegistryChanged()
        subject = self._subjects.get(command.subject)
        if subject is not None and subject.space != command.space:
            return InvalidInput("a subject belongs to one space of ids")
        if max(len(command.subject), len(command.space), len(command.kind)) > _NAME_CHARS_MAX:
            return InvalidInput("the name is too long")
        if not (0 <= command.id <= SCHEMA_ID_MAX and 0 <= command.version <= SCHEMA_ID_MAX):
            return InvalidInput(f"ids and versions are 0 to {SCHEMA_ID_MAX}")
        if len(command.fingerprint) != FINGERPRINT_BYTES:
            return InvalidInput(f"a fingerprint has {FINGERPRINT_BYTES} bytes")
        size = _size(command)
        if size > limits.SCHEMA_CHARS_MAX:
            return InvalidInput(f"a schema has at most {limits.SCHEMA_CHARS_MAX} characters, not {size}")
        if (command.space, command.fingerprint) not in self._ids and (self._bytes + size > SCHEMAS_CHARS_MAX):
            return LimitReached(
                f"the registry holds {SCHEMAS_CHARS_MAX} characters of schemas, the maximum: delete some"
            )
        if subject is not None and len(subject.versions) >= SCHEMA_VERSIONS_MAX:
            return LimitReached(f"a subject has at most {SCHEMA_VERSIONS_MAX} versions: delete some for good")
        return self._subjects.refusal(command.subject, SCHEMA_SUBJECTS_MAX, "subjects")

    def _changed(self) -> None:
        self.revision += 1
        if self.on_change is not None:
            self.on_change()

    def _put_schema(self, schema: StoredSchema) -> None:
        key = schema.space, schema.id
        if key not in self._schemas:
            self._bytes += _size(schema)
            self._schemas.put(key, schema)
        before = self._ids.get((schema.space, schema.fingerprint))
        if before is None or schema.id < before:  # imports may give one schema several ids
            self._ids[schema.space, schema.fingerprint] = schema.id

    def _put_subject(self, subject: StoredSubject) -> None:
        before = self._subjects.get(subject.subject)
        for one in () if before is None else before.versions:
            self._uses.get((subject.space, one.id), set()).discard(subject.subject)
        for one in subject.versions:
            self._uses.setdefault((subject.space, one.id), set()).add(subject.subject)
        if subject.versions:
            self._subjects.put(subject.subject, subject)
        else:
            self._subjects.pop(subject.subject)

    def _forget_unused(self, ids: Iterable[int], space: str) -> None:
        for id in sorted(set(ids)):
            schema = self._schemas.get((space, id))
            if schema is None or self._uses.get((space, id)):
                continue
            self._schemas.pop((space, id))
            self._uses.pop((space, id), None)
            self._bytes -= _size(schema)
            key = space, schema.fingerprint
            if self._ids.get(key) == id:
                del self._ids[key]
                others = [
                    one.id
                    for one in self._schemas.unordered()
                    if one.space == space and one.fingerprint == schema.fingerprint
                ]
                if others:
                    self._ids[key] = min(others)

    # State as a whole

    @property
    def digest(self) -> int:
        parts = (self._spaces, self._schemas, self._subjects, self._settings)
        return (self.revision + sum(part.digest for part in parts)) & ((1 << 64) - 1)

    def encode(self) -> SchemasState:
        return SchemasState(
            self.revision,
            list(self._spaces),
            list(self._schemas),
            list(self._subjects),
            list(self._settings),
        )

    def load(self, state: SchemasState) -> None:
        self.revision = state.revision
        for space in state.spaces:
            self._spaces.put(space.space, space)
        for schema in state.schemas:
            self._put_schema(schema)
        for subject in state.subjects:
            self._put_subject(subject)
        for settings in state.settings:
            self._settings.put(settings.scope, settings)


def _size(schema: RegisterSchema | StoredSchema) -> int:
    references = sum(len(one.name) + len(one.subject) for one in schema.references)
    return len(schema.text) + len(schema.extras) + references
