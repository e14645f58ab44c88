"""The schema registry: subjects, versions and schemas, as Confluent's registry defines them.

Subjects are stored names: with their namespace before them, and without the default context. Messages show them as
clients know them.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from mainstem import limits
from mainstem.broker.decoding import Decoding
from mainstem.broker.schemas.settings import RegistrySettingsService
from mainstem.errors import (
    IncompatibleSchema,
    InvalidSchemaVersion,
    InvalidSubject,
    MalformedSchema,
    RegistryOperationRefused,
    SchemaNotFound,
    SchemaReferenced,
    SchemaRegistryChanged,
    SchemaTooLarge,
    SchemaVersionNotFound,
    SchemaVersionNotSoftDeleted,
    SchemaVersionSoftDeleted,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    Unavailable,
)
from mainstem.ledger.namespaces import qualify_id, split_id
from mainstem.ledger.schemas import (
    FINGERPRINT_BYTES,
    DeleteSchemaVersions,
    RegisterSchema,
    SchemaReference,
    StoredSchema,
    StoredSubject,
    SubjectVersion,
)
from mainstem.log.log import Log
from mainstem.metrics import Metric, one
from mainstem.schemas import subjects as names
from mainstem.schemas.schema import AVRO, KINDS, ParsedSchema, ReferencedSchema, parse

__all__ = [
    "LATEST",
    "Registered",
    "SchemaReference",
    "SchemaService",
    "StoredSchema",
    "Submission",
    "canonical_json",
    "guid",
    "parse_version",
]

T = TypeVar("T")

LATEST = -1
_INLINE_CHARS_MAX = 8 * limits.KIB  # a schema up to this size is parsed on the event loop
_ATTEMPTS_MAX = 20
_VERSION_MAX = 2**31 - 1


class Submission(NamedTuple):
    """A schema as a client sends it."""

    text: str
    kind: str = AVRO
    references: tuple[SchemaReference, ...] = ()
    extras: str = ""  # metadata and rules, as canonical JSON
    id: int = 0  # 0: to be assigned
    version: int = 0


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


def canonical_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


class SchemaService:
    def __init__(self, log: Log, decoding: Decoding) -> None:
        self._log = log
        self._state = log.ledger.schemas
        self._decoding = decoding
        self._changing = asyncio.Lock()  # changes of this broker come one after another; others are detected
        self._parsed: OrderedDict[tuple[str, bytes], ParsedSchema] = OrderedDict()
        self.settings = RegistrySettingsService(log)
        self.refused_total = 0  # registrations that were not compatible
        self.undecodable_total = 0  # batches that topics refused for their payload

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
            if len(self._parsed) > limits.SCHEMAS_PARSED_KEPT:
                self._parsed.popitem(last=False)
        return found

    def resolved(self, parent: str, references: tuple[SchemaReference, ...]) -> list[ReferencedSchema]:
        """What a schema of a subject refers to, and what those refer to, each after what it needs.

        Raises MalformedSchema."""
        found: dict[str, ReferencedSchema] = {}

        def add(above: str, each: SchemaReference, depth: int) -> None:
            if each.name in found:
                return
            if depth > limits.SCHEMA_REFERENCES_MAX or len(found) >= limits.SCHEMA_REFERENCES_MAX:
                raise MalformedSchema(f"a schema needs at most {limits.SCHEMA_REFERENCES_MAX} others")
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

    async def _run(self, holder: str, size: int, work: Callable[[], T]) -> T:
        """Small work on the loop, other work on a thread that its callers share fairly."""
        return work() if size <= _INLINE_CHARS_MAX else await self._decoding.run(holder, work)

    async def parse(self, stored: str, submission: Submission, holder: str = "") -> ParsedSchema:
        """Raises MalformedSchema, SchemaTooLarge."""
        size = len(submission.text) + len(submission.extras)
        if size > limits.SCHEMA_CHARS_MAX:
            raise SchemaTooLarge(f"a schema has at most {limits.SCHEMA_CHARS_MAX} characters, not {size}")
        if submission.kind not in KINDS:
            raise MalformedSchema(
                f"Invalid schema type {submission.kind[:64]!r}: the types are {', '.join(KINDS)}"
            )
        if not submission.text:
            raise MalformedSchema("Invalid schema: the text is empty")
        references = self.resolved(stored, submission.references)
        total = size + sum(len(each.text) for each in references)
        return await self._run(holder, total, lambda: parse(submission.kind, submission.text, references))

    # Lookup and registration

    async def look_up(
        self, stored: str, submission: Submission, *, normalize: bool, deleted: bool = False, holder: str = ""
    ) -> Registered:
        """The version of a subject that has this schema. Raises SubjectNotFound, SchemaNotFound, MalformedSchema."""
        self.versions(stored, deleted=deleted)
        submission = self._pinned(stored, submission)
        parsed = await self.parse(stored, submission, holder)
        found = self._match(stored, submission, parsed, self._normalizes(stored, normalize), deleted=deleted)
        if found is None:
            raise SchemaNotFound
        return found

    def _normalizes(self, stored: str, asked: bool) -> bool:
        return asked or bool(self.settings.config(stored).get("normalize"))

    def _pinned(self, stored: str, submission: Submission) -> Submission:
        """With the numbers of the versions that references call the latest."""
        if all(each.version != LATEST for each in submission.references):
            return submission
        namespace, shown = split_id(stored)
        pinned = []
        for each in submission.references:
            version = each.version
            if version == LATEST:
                try:
                    target = self.version(qualify_id(namespace, names.beside(shown, each.subject)), LATEST)
                except SubjectNotFound:
                    raise MalformedSchema(
                        f"Invalid schema: no schema reference found for subject {each.subject!r}"
                    ) from None
                version = target.version
            pinned.append(msgspec.structs.replace(each, version=version))
        return submission._replace(references=tuple(pinned))

    def _match(
        self,
        stored: str,
        submission: Submission,
        parsed: ParsedSchema,
        normalize: bool,
        *,
        deleted: bool = False,
    ) -> Registered | None:
        subject = self._state.subject(stored)
        if subject is None:
            return None
        normal = parsed.normal_text() if normalize else ""
        for version in reversed(subject.versions):
            if version.deleted and not deleted:
                continue
            found = self._registered(subject, version)
            schema = found.schema
            if schema.kind != submission.kind or schema.references != submission.references:
                continue
            if submission.extras not in ("", schema.extras):
                continue
            if schema.text == parsed.text or (normalize and self.parsed(schema).normal_text() == normal):
                return found
        return None

    async def register(
        self, stored: str, submission: Submission, *, normalize: bool = False, holder: str = ""
    ) -> Registered:
        """Add a version to a subject, unless it has one with this schema.

        Raises InvalidSubject, MalformedSchema, IncompatibleSchema, RegistryOperationRefused, SchemaIdConflict."""
        shown = self.shown(stored)
        if not names.is_valid(shown):
            raise InvalidSubject(shown)
        importing = self._check_register(stored, submission)
        submission = self._pinned(stored, submission)
        parsed = await self.parse(stored, submission, holder)
        normalize = self._normalizes(stored, normalize)
        text = parsed.normal_text() if normalize else parsed.text
        async with self._changing:
            for _ in range(_ATTEMPTS_MAX):
                revision = self._state.revision
                self._check_register(stored, submission)
                if not importing:
                    found = self._match(stored, submission, parsed, normalize)
                    if found is not None:
                        return found
                    self._check_version(stored, submission.version)
                    await self._check_compatible(stored, submission, parsed, holder)
                command = RegisterSchema(
                    revision,
                    stored,
                    self.space(stored),
                    submission.kind,
                    text,
                    submission.references,
                    submission.extras,
                    _fingerprint(submission, text),
                    submission.id,
                    submission.version,
                )
                try:
                    added: SubjectVersion = await self._log.propose(command)
                except SchemaRegistryChanged:
                    self.resolved(stored, submission.references)  # they may be gone
                    continue
                return self.version(stored, added.version)
        raise Unavailable("the schema registry changes too often: retry")

    def _check_register(self, stored: str, submission: Submission) -> bool:
        """Whether the subject is in import mode. Raises RegistryOperationRefused."""
        shown, mode = self.shown(stored), self.settings.mode(stored)
        self.settings.check_writable(stored)
        if submission.id and mode != "IMPORT":
            raise RegistryOperationRefused(f"Subject {shown} is not in import mode")
        if mode == "IMPORT" and not submission.id:
            raise RegistryOperationRefused(f"Subject {shown} is in import mode: give the id of the schema")
        return mode == "IMPORT"

    def _check_version(self, stored: str, version: int) -> None:
        if version:
            subject = self._state.subject(stored)
            expected = subject.versions[-1].version + 1 if subject else 1
            if version != expected:
                raise MalformedSchema(
                    f"Invalid schema: version {version} is not one more than the last version, {expected - 1}"
                )

    # Compatibility

    async def _check_compatible(
        self, stored: str, submission: Submission, parsed: ParsedSchema, holder: str
    ) -> None:
        problems = await self.problems(stored, submission, parsed, holder=holder)
        if problems:
            self.refused_total += 1
            raise IncompatibleSchema(
                f"Schema being registered is incompatible with an earlier schema for subject "
                f'"{self.shown(stored)}", details: [{"; ".join(problems)}]'
            )

    async def problems(
        self,
        stored: str,
        submission: Submission,
        parsed: ParsedSchema,
        against: int | None = None,
        holder: str = "",
    ) -> list[str]:
        """Why the compatibility level of a subject does not allow a schema; none if it does.

        `against`: compare with this version alone. Raises SchemaVersionNotFound."""
        config = self.settings.config(stored)
        level = str(config["compatibilityLevel"])
        earlier = list(
            self._compared_with(stored, submission, str(config.get("compatibilityGroup") or ""), against)
        )
        if config.get("frozen") and earlier:
            return ["the subject takes no further versions: its strategy is ALWAYS_INCOMPATIBLE"]
        if level == "NONE":
            return []
        if against is None and not level.endswith("_TRANSITIVE"):
            earlier = earlier[-1:]
        kinds = [found for found in earlier if found.schema.kind != submission.kind]
        if kinds:
            return [
                f"the schema type is {submission.kind}, and that of version {kinds[-1].version} is "
                f"{kinds[-1].schema.kind}"
            ]
        size = len(submission.text) + sum(len(found.schema.text) for found in earlier)
        return await self._run(holder, size, lambda: self._compare(level, parsed, earlier))

    def _compare(self, level: str, parsed: ParsedSchema, earlier: list[Registered]) -> list[str]:
        for found in reversed(earlier):
            old = self.parsed(found.schema)
            problems: list[str] = []
            if level.startswith(("BACKWARD", "FULL")):
                problems += [
                    f"{one} (new schema reads version {found.version})" for one in parsed.differences(old)
                ]
            if level.startswith(("FORWARD", "FULL")):
                problems += [
                    f"{one} (version {found.version} reads new schema)" for one in old.differences(parsed)
                ]
            if problems:
                return problems[:_PROBLEMS_MAX]
        return []

    def _compared_with(
        self, stored: str, submission: Submission, group: str, against: int | None
    ) -> Iterator[Registered]:
        if against is not None:
            try:
                yield self.version(stored, against)
            except (SubjectNotFound, SchemaVersionNotFound):
                if against != LATEST:
                    raise
            return
        subject = self._state.subject(stored)
        for each in subject.versions if subject else ():
            if not each.deleted:
                found = self._registered(subject, each) if subject else None
                if found and _group_of(found.schema.extras, group) == _group_of(submission.extras, group):
                    yield found

    # Deletion

    async def delete_version(self, stored: str, version: int, *, permanent: bool) -> int:
        """Raises SubjectNotFound, SchemaVersionNotFound and what else forbids it. Returns the version."""
        self.settings.check_writable(stored)
        async with self._changing:
            for _ in range(_ATTEMPTS_MAX):
                revision = self._state.revision
                found = self.version(stored, version, deleted=True)
                if version == LATEST and not permanent:
                    found = self.version(stored, version)
                if permanent and not found.deleted:
                    raise SchemaVersionNotSoftDeleted(found.subject, found.version)
                if found.deleted and not permanent:
                    raise SchemaVersionSoftDeleted(found.subject, found.version)
                if self.referrers(stored, found.version):
                    raise SchemaReferenced(found.subject, found.version)
                if await self._delete(revision, stored, (found.version,), permanent):
                    return found.version
        raise Unavailable("the schema registry changes too often: retry")

    async def delete_subject(self, stored: str, *, permanent: bool) -> list[int]:
        """Returns the versions that were deleted. Raises SubjectNotFound and what else forbids it."""
        shown = self.shown(stored)
        self.settings.check_writable(stored)
        async with self._changing:
            for _ in range(_ATTEMPTS_MAX):
                revision = self._state.revision
                subject = self._state.subject(stored)
                if subject is None:
                    raise SubjectNotFound(shown)
                live = [one.version for one in subject.versions if not one.deleted]
                if permanent and live:
                    raise SubjectNotSoftDeleted(shown)
                if not permanent and not live:
                    raise SubjectSoftDeleted(shown)
                wanted = [one.version for one in subject.versions] if permanent else live
                for version in wanted:
                    if self.referrers(stored, version):
                        raise SchemaReferenced(shown, version)
                if await self._delete(revision, stored, tuple(wanted), permanent):
                    if permanent:
                        await self.settings.forget(stored)
                    return wanted
        raise Unavailable("the schema registry changes too often: retry")

    async def _delete(self, revision: int, stored: str, versions: tuple[int, ...], permanent: bool) -> bool:
        try:
            await self._log.propose(DeleteSchemaVersions(revision, stored, versions, permanent))
        except SchemaRegistryChanged:
            return False
        if permanent:
            self._parsed.clear()
        return True

    def published(self) -> Iterator[Metric]:
        """As metrics."""
        yield one("mainstem_schemas", "gauge", "Schemas in the registry.", len(self._state))
        yield one("mainstem_schema_subjects", "gauge", "Subjects in the registry.", self._state.subject_count)
        for name, help, value in (
            ("incompatible", "Registrations refused by the compatibility level.", self.refused_total),
            ("undecodable_batches", "Batches refused by schema validation.", self.undecodable_total),
        ):
            yield one(f"mainstem_schema_{name}_total", "counter", help, value)


_PROBLEMS_MAX = 50


def _fingerprint(submission: Submission, text: str) -> bytes:
    identity = (
        submission.kind,
        text,
        [[each.name, each.subject, each.version] for each in submission.references],
        submission.extras,
    )
    return blake2b(canonical_json(identity).encode(), digest_size=FINGERPRINT_BYTES).digest()


def _group_of(extras: str, group: str) -> object:
    """The property of a schema's metadata that its compatibility group is about."""
    if not group or not extras:
        return None
    properties = (json.loads(extras).get("metadata") or {}).get("properties") or {}
    return properties.get(group)
