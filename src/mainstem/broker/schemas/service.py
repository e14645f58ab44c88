"""The schema registry: subjects, versions and schemas, as Confluent's registry defines them.

Subjects are stored names: with their namespace before them, and without the default context. Messages show them as
clients know them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import msgspec

from mainstem import limits
from mainstem.api.lake import WriterSchema
from mainstem.broker.decoding import Decoding
from mainstem.broker.schemas.registered import LATEST, Registered, RegisteredSchemas, guid, parse_version
from mainstem.errors import (
    IncompatibleSchema,
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
    SubjectVersion,
)
from mainstem.log.log import Log
from mainstem.metrics import Metric, one
from mainstem.schemas import subjects as names
from mainstem.schemas.schema import AVRO, KINDS, ParsedSchema, parse

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

_INLINE_CHARS_MAX = 1 * limits.KIB  # a schema up to this size is parsed on the event loop
_ATTEMPTS_MAX = 20


class Submission(NamedTuple):
    """A schema as a client sends it."""

    text: str
    kind: str = AVRO
    references: tuple[SchemaReference, ...] = ()
    extras: str = ""  # metadata and rules, as canonical JSON
    id: int = 0  # 0: to be assigned
    version: int = 0


def canonical_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


class SchemaService(RegisteredSchemas):
    """Changes to the registry: parses, registers, compares and deletes schemas."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._decoding = Decoding()  # its own thread: parsing a large schema takes seconds
        self._changing = asyncio.Lock()  # serialises the changes of this broker; those of others are detected
        self.refused_total = 0  # registrations that were not compatible
        self.undecodable_total = 0  # batches that topics refused for their payload

    def close(self) -> None:
        self._decoding.close()

    # Parsing

    async def _run(self, holder: str, size: int, work: Callable[[], T]) -> T:
        """Run small work on the loop, and other work on a thread that its callers share fairly."""
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

        def work() -> ParsedSchema:
            parsed = parse(submission.kind, submission.text, references)
            _ = parsed.text  # which takes as long as parsing, and is kept
            return parsed

        return await self._run(holder, total, work)

    # Lookup and registration

    async def look_up(
        self, stored: str, submission: Submission, *, normalize: bool, deleted: bool = False, holder: str = ""
    ) -> Registered:
        """The version of a subject that has this schema. Raises SubjectNotFound, SchemaNotFound, MalformedSchema."""
        self.versions(stored, deleted=deleted)
        submission = self._pinned(stored, submission)
        parsed = await self.parse(stored, submission, holder)
        normalize = self._normalizes(stored, normalize)
        found = await self._match(stored, submission, parsed, normalize, deleted=deleted, holder=holder)
        if found is None:
            raise SchemaNotFound
        return found

    def _normalizes(self, stored: str, asked: bool) -> bool:
        return asked or bool(self.settings.config(stored).get("normalize"))

    def _pinned(self, stored: str, submission: Submission) -> Submission:
        """The submission, with `latest` in its references replaced by version numbers."""
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

    async def _match(
        self,
        stored: str,
        submission: Submission,
        parsed: ParsedSchema,
        normalize: bool,
        *,
        deleted: bool = False,
        holder: str = "",
    ) -> Registered | None:
        def work() -> Registered | None:
            return self._matching(stored, submission, parsed, normalize, deleted=deleted)

        return await self._decoding.run(holder, work) if normalize else work()

    def _matching(
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
        text = await self._run(holder, len(parsed.text), parsed.normal_text) if normalize else parsed.text
        async with self._changing:
            for _ in range(_ATTEMPTS_MAX):
                revision = self._state.revision
                self._check_register(stored, submission)
                if not importing:
                    found = await self._match(stored, submission, parsed, normalize, holder=holder)
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
        """Returns the version. Raises SubjectNotFound, SchemaVersionNotFound, or why the deletion is rejected."""
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
        """Returns the versions that were deleted. Raises SubjectNotFound, and the errors that reject the deletion."""
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


class SubjectSchemas:
    """The schemas of a subject, for tables that have their columns from it."""

    def __init__(self, schemas: SchemaService) -> None:
        self._schemas = schemas

    def ids(self, namespace: str, subject: str) -> tuple[int, ...]:
        """In the order of versions, with deleted ones: records name them still."""
        stored = qualify_id(namespace, names.normal(subject))
        try:
            versions = self._schemas.versions(stored, deleted=True)
        except SubjectNotFound:
            return ()
        found = (self._schemas.version(stored, each, deleted=True).schema.id for each in versions)
        return tuple(dict.fromkeys(found))

    def writer(self, namespace: str, subject: str, id: int) -> WriterSchema:
        """Raises MalformedSchema if a schema that it refers to is gone."""
        stored = qualify_id(namespace, names.normal(subject))
        schema = self._schemas.by_id(namespace, id, stored)
        references = self._schemas.resolved(stored, schema.references)
        return WriterSchema(
            id, schema.kind, schema.text, tuple((each.name, each.text) for each in references)
        )
