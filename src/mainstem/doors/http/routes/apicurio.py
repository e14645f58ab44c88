"""The schema registry for serializers that speak the API of Apicurio Registry (version 3).

| below /apis/registry/v3                                     |                                               |
|-------------------------------------------------------------|-----------------------------------------------|
| GET /groups/{group}/artifacts/{artifact}/versions/{version}  | a version; `/content`: its schema            |
| POST /groups/{group}/artifacts                               | register a schema; `ifExists` as in Apicurio |
| GET /ids/globalIds/{id}, /ids/contentIds/{id}                | a schema by its id                           |

An artifact is a subject: `artifact` in the group `default`, `group:artifact` in others. Both ids are the schema's.
"""

from __future__ import annotations

from urllib.parse import unquote

import msgspec

from mainstem.api.access import Operation, ResourceType
from mainstem.broker.namespaces import DEFAULT, ID_SEPARATOR, split_id
from mainstem.broker.schemas.service import (
    LATEST,
    Registered,
    SchemaReference,
    StoredSchema,
    Submission,
    parse_version,
)
from mainstem.doors.http.routes import schemas
from mainstem.doors.http.transport.errors import Refusal, invalid
from mainstem.doors.http.transport.requests import HttpRequest, decoded
from mainstem.doors.http.transport.responses import JSON, Response
from mainstem.errors import (
    InvalidSchemaVersion,
    MainstemError,
    NotFound,
    SchemaNotFound,
    SubjectNotFound,
    drop_frames,
)
from mainstem.schemas import subjects as names

_DEFAULT_GROUP = "default"
_NEWEST = ("latest", "branch=latest")
_MEDIA = {"PROTOBUF": b"application/x-protobuf"}  # the others are JSON
_ID_DIGITS_MAX = 10


class _ArtifactReference(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    artifact_id: str
    group_id: str | None = None
    version: str | None = None


class _ArtifactContent(msgspec.Struct, frozen=True):
    content: str
    references: tuple[_ArtifactReference, ...] = ()


class _ArtifactVersion(msgspec.Struct, frozen=True):
    content: _ArtifactContent


class _NewArtifact(msgspec.Struct, frozen=True, rename="camel"):
    artifact_id: str
    first_version: _ArtifactVersion
    artifact_type: str = "AVRO"


_artifact = msgspec.json.Decoder(_NewArtifact)


class ApicurioApi:
    """Served below /apis. Errors have the shape of RFC 7807, as Apicurio's have."""

    async def serve(self, request: HttpRequest, method: str, path: str) -> Response:
        try:
            request.bind()
            return await _current_answer(request, method, [unquote(part) for part in path.split("/")[1:]])
        except (MainstemError, Refusal) as error:
            drop_frames(error)
            status = schemas.answer(error).status
            name, text = type(error).__name__, str(error)
            if request.view is not None:
                text = request.view.text(text)
            problem = {"status": status, "title": text, "detail": f"{name}: {text}", "name": name}
            return _reply(problem, status)


async def _current_answer(request: HttpRequest, method: str, path: list[str]) -> Response:
    """Before this broker says that something is unknown: another one may have registered it. Raises MainstemError,
    Refusal."""
    broker = request.broker
    if not broker.cluster.shared:
        return await _answer(request, method, path)
    await broker.catch_up()
    try:
        return await _answer(request, method, path)
    except NotFound:
        known = broker.position
        await broker.barrier()
        if broker.position == known:
            raise
        return await _answer(request, method, path)


async def _answer(request: HttpRequest, method: str, path: list[str]) -> Response:
    """Raises MainstemError, Refusal."""
    if path[:3] == ["apis", "registry", "v3"]:
        match method, path[3:]:
            case "POST", ["groups", group, "artifacts"]:
                return await _create(request, group)
            case "GET", ["groups", group, "artifacts", artifact, "versions", version]:
                return _reply(_described(_found(request, group, artifact, version), group, artifact))
            case "GET", ["groups", group, "artifacts", artifact, "versions", version, "content"]:
                return _text(_found(request, group, artifact, version).schema)
            case "GET", ["ids", "globalIds" | "contentIds", id]:
                return _text(_schema(request, id))
    raise Refusal(404, "not_found", "there is nothing at this path")


def _stored(request: HttpRequest, group: str | None, artifact: str) -> str:
    """The subject of an artifact. Raises Refusal."""
    group = group or _DEFAULT_GROUP
    shown = names.normal(artifact if group == _DEFAULT_GROUP else f"{group}:{artifact}")
    if ID_SEPARATOR in shown or names.parse(shown).context != names.DEFAULT_CONTEXT:  # whose ids are others
        raise invalid("the names of groups and artifacts cannot contain U+001F or a context")
    return shown if request.view is None else request.view.id(shown)


def _number(version: str) -> int:
    """Raises InvalidSchemaVersion."""
    return LATEST if version in _NEWEST else parse_version(version)


def _found(request: HttpRequest, group: str, artifact: str, version: str) -> Registered:
    subject = _stored(request, group, artifact)
    request.require(Operation.READ, ResourceType.SUBJECT, subject)
    return request.broker.schemas.version(subject, _number(version))


def _schema(request: HttpRequest, id: str) -> StoredSchema:
    if not (id.isascii() and id.isdigit()) or len(id) > _ID_DIGITS_MAX:
        raise SchemaNotFound(id[:64])
    namespace = DEFAULT if request.view is None else request.view.namespace
    visible = lambda stored: request.may(Operation.READ, ResourceType.SUBJECT, stored)  # noqa: E731
    return request.broker.schemas.by_id(namespace, int(id), visible=visible)


async def _create(request: HttpRequest, group: str) -> Response:
    """Register a schema as a version of an artifact."""
    wanted = decoded(_artifact, request.body)
    subject = _stored(request, group, wanted.artifact_id)
    request.require(Operation.WRITE, ResourceType.SUBJECT, subject)
    service = request.broker.schemas
    if (request.text("ifExists") or "FAIL") == "FAIL" and _exists(request, subject):
        raise Refusal(409, "conflict", f"the artifact {wanted.artifact_id!r} exists already")
    content = wanted.first_version.content
    references = tuple(_reference(request, group, one) for one in content.references)
    submission = Submission(content.content, wanted.artifact_type.upper(), references)
    found = await service.register(subject, submission, holder=request.holder)
    described = _described(found, group, wanted.artifact_id)
    artifact = {key: described[key] for key in ("groupId", "artifactId", "artifactType")}
    return _reply({"artifact": artifact, "version": described})


def _exists(request: HttpRequest, subject: str) -> bool:
    try:
        return bool(request.broker.schemas.versions(subject))
    except SubjectNotFound:
        return False


def _reference(request: HttpRequest, group: str, one: _ArtifactReference) -> SchemaReference:
    target = _stored(request, one.group_id or group, one.artifact_id)
    request.require(Operation.READ, ResourceType.SUBJECT, target)
    if one.version is None:
        raise InvalidSchemaVersion("none")
    return SchemaReference(one.name, split_id(target)[1], _number(one.version))


# What is answered


def _described(found: Registered, group: str, artifact: str) -> dict[str, object]:
    schema = found.schema
    return {
        "groupId": group,
        "artifactId": artifact,
        "artifactType": schema.kind,
        "version": str(found.version),
        "globalId": schema.id,
        "contentId": schema.id,
        "state": "ENABLED",
    }


def _text(schema: StoredSchema) -> Response:
    id = str(schema.id).encode()
    headers = (
        (b"content-type", _MEDIA.get(schema.kind, JSON[1])),
        (b"x-registry-globalid", id),
        (b"x-registry-contentid", id),
        (b"x-registry-artifacttype", schema.kind.encode()),
    )
    return Response(200, schema.text.encode(), headers)


def _reply(content: object, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(content))
