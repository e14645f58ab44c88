"""The schema registry, for Confluent's clients and all others that speak their API.

Errors have a shape of their own: {"error_code", "message"}, with Confluent's numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mainstem import errors
from mainstem.api.access import Operation, ResourceType
from mainstem.api.route import REGISTRY_JSON
from mainstem.api.schemas import (
    CompatibilityBody,
    CompatibilityReport,
    RegistryMode,
    SchemaBody,
    SchemaContextId,
    SchemaError,
    SchemaReferenceBody,
    SchemaText,
    SchemaUse,
    SchemaVersion,
)
from mainstem.broker.namespaces import DEFAULT, qualify_id, split_id
from mainstem.broker.schemas.service import (
    Registered,
    SchemaReference,
    SchemaService,
    StoredSchema,
    Submission,
    canonical_json,
    guid,
    parse_version,
)
from mainstem.doors.http.transport.errors import WIRE, Refusal
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response
from mainstem.errors import MainstemError, SchemaNotFound
from mainstem.schemas import subjects as names
from mainstem.schemas.schema import AVRO, KINDS

_HEADERS = ((b"content-type", REGISTRY_JSON.encode()),)
_DIGITS_MAX = 10

_schema_body = msgspec.json.Decoder(SchemaBody)
_config_body = msgspec.json.Decoder(CompatibilityBody)
_mode_body = msgspec.json.Decoder(RegistryMode)

# Errors. The nearest ancestor of an error that stands here decides.
_CODES: dict[type[BaseException], tuple[int, int]] = {
    errors.SubjectNotFound: (404, 40401),
    errors.SchemaVersionNotFound: (404, 40402),
    errors.SchemaNotFound: (404, 40403),
    errors.SubjectSoftDeleted: (404, 40404),
    errors.SubjectNotSoftDeleted: (404, 40405),
    errors.SchemaVersionSoftDeleted: (404, 40406),
    errors.SchemaVersionNotSoftDeleted: (404, 40407),
    errors.CompatibilityNotConfigured: (404, 40408),
    errors.RegistryModeNotConfigured: (404, 40409),
    errors.IncompatibleSchema: (409, 409),
    errors.MalformedSchema: (422, 42201),
    errors.InvalidSchemaVersion: (422, 42202),
    errors.InvalidCompatibility: (422, 42203),
    errors.InvalidRegistryMode: (422, 42204),
    errors.RegistryOperationRefused: (422, 42205),
    errors.SchemaReferenced: (422, 42206),
    errors.SchemaIdConflict: (422, 42207),
    errors.InvalidSubject: (422, 42208),
    errors.SchemaTooLarge: (422, 42209),
    errors.SchemaRegistryChanged: (500, 50001),
}
_BY_STATUS = {403: 40301, 500: 50001}


def answer(error: MainstemError | Refusal) -> Response:
    """A failed request's answer, in the registry's own shape."""
    if isinstance(error, Refusal):
        status, headers = error.status, error.headers
        code = _BY_STATUS.get(status, status)
    else:
        status, code = next((_CODES[each] for each in type(error).__mro__ if each in _CODES), (0, 0))
        row = next((WIRE[each] for each in type(error).__mro__ if each in WIRE), None)
        headers = row.headers if row else ()
        if not status:
            status = row.status if row else 500
            code = _BY_STATUS.get(status, status)
    body = SchemaError(code, str(error) or type(error).__name__)
    return Response(status, msgspec.json.encode(body), (*_HEADERS, *headers))


def _reply(content: object) -> Response:
    return Response(200, msgspec.json.encode(content), _HEADERS)


# What a request names


def _service(request: HttpRequest) -> SchemaService:
    return request.broker.schemas


def _namespace(request: HttpRequest) -> str:
    return DEFAULT if request.view is None else request.view.namespace


def _subject(request: HttpRequest) -> str:
    """The stored subject of the path."""
    return request.parameters["subject"]


def _asked_subject(request: HttpRequest) -> str:
    """The stored subject of the query, or the context of the path; empty without either."""
    given = request.text("subject") or ""
    context = request.parameters.get("context", "")
    if not given and not context:
        return ""
    shown = names.in_context(context, given) if context else names.normal(given)
    if request.view is not None:
        return request.view.id(shown)
    if "\x1f" in shown:
        raise errors.InvalidSubject(shown)
    return shown


def _scope(request: HttpRequest) -> str:
    """What settings are about, where the path names no subject: a context, or all of a namespace."""
    context = request.parameters.get("context", "")
    return qualify_id(_namespace(request), names.in_context(context, "") if context else "")


def _visible(request: HttpRequest) -> Callable[[str], bool]:
    return lambda stored: request.may(Operation.READ, ResourceType.SUBJECT, stored)


def _sees(request: HttpRequest, stored: str) -> bool:
    return request.may(Operation.DESCRIBE, ResourceType.SUBJECT, stored)


def _id(request: HttpRequest) -> int:
    given = request.parameters["id"]
    if not (given.isascii() and given.isdigit()) or len(given) > _DIGITS_MAX:
        raise SchemaNotFound(given[:64])
    return int(given)


def _page(request: HttpRequest, found: list[Any]) -> list[Any]:
    offset, limit = request.number("offset", 0), request.number("limit", len(found))
    return found[offset : offset + limit]


def _submission(request: HttpRequest) -> Submission:
    """The schema of the body; the client must be allowed to read what it refers to. Raises Refusal."""
    body = request.json(_schema_body)
    namespace, shown = split_id(_subject(request))
    references = []
    for each in body.references or ():
        target = qualify_id(namespace, names.beside(shown, each.subject))
        request.require(Operation.READ, ResourceType.SUBJECT, target)
        references.append(SchemaReference(each.name, each.subject, each.version))
    extras = {
        name: value
        for name, value in (("metadata", body.metadata), ("ruleSet", body.rule_set))
        if value is not None
    }
    return Submission(
        body.schema or "",
        (body.schema_type or "AVRO").upper(),
        tuple(references),
        canonical_json(extras) if extras else "",
        max(body.id or 0, 0),
        max(body.version or 0, 0),
    )


# What is answered


def _extras(schema: StoredSchema) -> dict[str, Any]:
    extras = msgspec.json.decode(schema.extras) if schema.extras else {}
    return {"metadata": extras.get("metadata"), "rule_set": extras.get("ruleSet")}


def _kind(schema: StoredSchema) -> str | None:
    return None if schema.kind == AVRO else schema.kind


def _references(schema: StoredSchema) -> list[SchemaReferenceBody]:
    return [SchemaReferenceBody(each.name, each.subject, each.version) for each in schema.references]


def _text(request: HttpRequest, schema: StoredSchema) -> str:
    format = request.text("format")
    return _service(request).parsed(schema).formatted(format) if format else schema.text


def _version(request: HttpRequest, found: Registered) -> SchemaVersion:
    schema = found.schema
    return SchemaVersion(
        found.subject,
        found.version,
        schema.id,
        found.guid,
        _text(request, schema),
        _kind(schema),
        _references(schema),
        deleted=found.deleted,
        **_extras(schema),
    )


def _schema_text(request: HttpRequest, schema: StoredSchema, max_id: int | None = None) -> SchemaText:
    return SchemaText(
        _text(request, schema),
        guid(schema),
        _kind(schema),
        _references(schema),
        max_id=max_id,
        **_extras(schema),
    )


# Subjects


async def list_subjects(request: HttpRequest) -> Response:
    """List the subjects that have schemas."""
    service = _service(request)
    context = request.parameters.get("context", "")
    prefix = request.text("subjectPrefix")
    if prefix is None:
        prefix = names.in_context(context, "") if context else names.ALL_CONTEXTS
    found = service.subjects(
        _namespace(request),
        prefix,
        deleted=request.flag("deleted", False),
        deleted_only=request.flag("deletedOnly", False),
    )
    return _reply(_page(request, [service.shown(one) for one in found if _sees(request, one)]))


async def look_up_schema(request: HttpRequest) -> Response:
    """Find the version of a subject that has a schema."""
    found = await _service(request).look_up(
        _subject(request),
        _submission(request),
        normalize=request.flag("normalize", False),
        deleted=request.flag("deleted", False),
        holder=request.holder,
    )
    return _reply(_version(request, found))


async def delete_subject(request: HttpRequest) -> Response:
    """Delete a subject softly, or with `permanent` for good. Returns its versions."""
    permanent = request.flag("permanent", False)
    return _reply(await _service(request).delete_subject(_subject(request), permanent=permanent))


async def list_versions(request: HttpRequest) -> Response:
    """List the versions of a subject."""
    found = _service(request).versions(
        _subject(request),
        deleted=request.flag("deleted", False),
        deleted_only=request.flag("deletedOnly", False),
    )
    return _reply(_page(request, found))


async def register_schema(request: HttpRequest) -> Response:
    """Register a schema as the next version of a subject."""
    found = await _service(request).register(
        _subject(request),
        _submission(request),
        normalize=request.flag("normalize", False),
        holder=request.holder,
    )
    return _reply(_version(request, found))


def _named_version(request: HttpRequest) -> Registered:
    version = parse_version(request.parameters["version"])
    return _service(request).version(_subject(request), version, deleted=request.flag("deleted", False))


async def get_version(request: HttpRequest) -> Response:
    """Get a version of a subject, or the latest."""
    return _reply(_version(request, _named_version(request)))


async def get_version_schema(request: HttpRequest) -> Response:
    """Get the schema of a version, by itself."""
    return Response(200, _text(request, _named_version(request).schema).encode(), _HEADERS)


async def delete_version(request: HttpRequest) -> Response:
    """Delete a version softly, or with `permanent` for good."""
    version = parse_version(request.parameters["version"])
    permanent = request.flag("permanent", False)
    return _reply(await _service(request).delete_version(_subject(request), version, permanent=permanent))


async def list_referrers(request: HttpRequest) -> Response:
    """List the ids of the schemas that refer to a version."""
    found = _service(request).referrers(_subject(request), _named_version(request).version)
    return _reply([id for _, id in found])


# Schemas


async def list_schemas(request: HttpRequest) -> Response:
    """List all versions of all subjects."""
    service, deleted = _service(request), request.flag("deleted", False)
    prefix = request.text("subjectPrefix") or names.ALL_CONTEXTS
    found = []
    for stored in service.subjects(_namespace(request), prefix, deleted=deleted):
        if request.may(Operation.READ, ResourceType.SUBJECT, stored):
            versions = service.versions(stored, deleted=deleted)
            for version in versions[-1:] if request.flag("latestOnly", False) else versions:
                found.append(service.version(stored, version, deleted=True))
    return _reply([_version(request, one) for one in _page(request, found)])


async def list_types(request: HttpRequest) -> Response:
    """List the kinds of schemas."""
    return _reply(KINDS)


def _named_schema(request: HttpRequest) -> StoredSchema:
    return _service(request).by_id(
        _namespace(request), _id(request), _asked_subject(request), _visible(request)
    )


async def get_schema(request: HttpRequest) -> Response:
    """Get a schema by its id."""
    schema = _named_schema(request)
    max_id = _service(request).last_id(schema) if request.flag("fetchMaxId", False) else None
    return _reply(_schema_text(request, schema, max_id))


async def get_plain_schema(request: HttpRequest) -> Response:
    """Get a schema by its id, by itself."""
    return Response(200, _text(request, _named_schema(request)).encode(), _HEADERS)


def _uses(request: HttpRequest) -> list[tuple[str, int]]:
    service = _service(request)
    found = service.uses(_named_schema(request), deleted=request.flag("deleted", False))
    return [(service.shown(stored), version) for stored, version in found if _sees(request, stored)]


async def list_schema_subjects(request: HttpRequest) -> Response:
    """List the subjects that have a schema."""
    return _reply(_page(request, list(dict.fromkeys(subject for subject, _ in _uses(request)))))


async def list_schema_versions(request: HttpRequest) -> Response:
    """List the versions that have a schema."""
    return _reply(_page(request, [SchemaUse(*one) for one in _uses(request)]))


async def get_schema_by_guid(request: HttpRequest) -> Response:
    """Get a schema by its guid."""
    found = _service(request).by_guid(_namespace(request), request.parameters["guid"], _visible(request))
    return _reply(_schema_text(request, found[0]))


async def list_guid_ids(request: HttpRequest) -> Response:
    """List the ids of a guid, by context."""
    found = _service(request).by_guid(_namespace(request), request.parameters["guid"], _visible(request))
    return _reply([SchemaContextId(split_id(one.space)[1], one.id) for one in found])


# Compatibility


async def check_version(request: HttpRequest) -> Response:
    """Check whether a schema is compatible with a version of a subject."""
    return await _check(request, request.parameters["version"])


async def check_subject(request: HttpRequest) -> Response:
    """Check whether a schema could be registered under a subject."""
    return await _check(request, None)


async def _check(request: HttpRequest, version: str | None) -> Response:
    service, subject = _service(request), _subject(request)
    submission = _submission(request)
    against = None if version is None else parse_version(version)
    parsed = await service.parse(subject, submission, request.holder)
    problems = await service.problems(subject, submission, parsed, against, request.holder)
    verbose = request.flag("verbose", False)
    return _reply(CompatibilityReport(not problems, problems if verbose else None))


# Settings


async def get_global_config(request: HttpRequest) -> Response:
    """Get the compatibility level of all subjects that have none of their own."""
    return _reply(_service(request).settings.config(_scope(request)))


async def get_subject_config(request: HttpRequest) -> Response:
    """Get the compatibility level of a subject."""
    settings = _service(request).settings
    if request.flag("defaultToGlobal", False):
        return _reply(settings.config(_subject(request)))
    return _reply(settings.own_config(_subject(request)))


async def put_global_config(request: HttpRequest) -> Response:
    """Set the compatibility level of all subjects that have none of their own."""
    return await _put_config(request, _scope(request))


async def put_subject_config(request: HttpRequest) -> Response:
    """Set the compatibility level of a subject."""
    return await _put_config(request, _subject(request))


async def _put_config(request: HttpRequest, scope: str) -> Response:
    body = request.json(_config_body)
    changes = msgspec.to_builtins(body)
    level = changes.pop("compatibility", None)
    if level is not None:
        changes["compatibilityLevel"] = level
    if not changes:
        raise errors.InvalidCompatibility("Invalid compatibility level: the body sets nothing")
    await _service(request).settings.put_config(scope, changes)
    changes.pop("compatibilityLevel", None)
    level = level or body.compatibility_level
    return _reply({**({"compatibility": level} if level else {}), **changes})


async def delete_global_config(request: HttpRequest) -> Response:
    """Reset the compatibility level of all subjects that have none of their own."""
    return _reply(await _service(request).settings.delete_config(_scope(request)))


async def delete_subject_config(request: HttpRequest) -> Response:
    """Remove the compatibility level of a subject."""
    return _reply(await _service(request).settings.delete_config(_subject(request)))


async def get_global_mode(request: HttpRequest) -> Response:
    """Get the mode of all subjects that have none of their own."""
    return _reply(RegistryMode(_service(request).settings.mode(_scope(request))))


async def get_subject_mode(request: HttpRequest) -> Response:
    """Get the mode of a subject."""
    settings = _service(request).settings
    if request.flag("defaultToGlobal", False):
        return _reply(RegistryMode(settings.mode(_subject(request))))
    return _reply(RegistryMode(settings.own_mode(_subject(request))))


async def put_global_mode(request: HttpRequest) -> Response:
    """Set the mode of all subjects that have none of their own."""
    return await _put_mode(request, _scope(request))


async def put_subject_mode(request: HttpRequest) -> Response:
    """Set the mode of a subject."""
    return await _put_mode(request, _subject(request))


async def _put_mode(request: HttpRequest, scope: str) -> Response:
    mode = request.json(_mode_body).mode
    set = await _service(request).settings.put_mode(scope, mode, force=request.flag("force", False))
    return _reply(RegistryMode(set))


async def delete_global_mode(request: HttpRequest) -> Response:
    """Reset the mode of all subjects that have none of their own."""
    return _reply(RegistryMode(await _service(request).settings.delete_mode(_scope(request))))


async def delete_subject_mode(request: HttpRequest) -> Response:
    """Remove the mode of a subject."""
    return _reply(RegistryMode(await _service(request).settings.delete_mode(_subject(request))))


async def list_contexts(request: HttpRequest) -> Response:
    """List the contexts that subjects are in."""
    service, namespace = _service(request), _namespace(request)
    if not request.broker.access.open_to(request.principal):
        seen = [one for one in service.subjects(namespace, deleted=True) if _sees(request, one)]
        found = {names.DEFAULT_CONTEXT} | {names.parse(service.shown(one)).context for one in seen}
        return _reply(_page(request, sorted(found)))
    return _reply(_page(request, service.contexts(namespace)))
