"""Files of tables for clients on other machines: `s3:` locations, credentials, and signatures.

A client that understands it says so in X-Iceberg-Access-Delegation. Then the table of a topic, whose files are in a
directory of this machine, is shown with locations in the bucket `tables` of the S3 door.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from mainstem.api.access import Operation, ResourceType
from mainstem.api.catalog import SignBody, SignedRequest, StorageCredential, TableLoaded
from mainstem.api.security import S3CredentialsBody, S3CredentialsIssued
from mainstem.broker.access.s3_credentials import ANONYMOUS_SECRET, SESSION_S_MAX, S3Credentials
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.doors.s3.requests import parse_query
from mainstem.doors.s3.sigv4 import ALGORITHM, UNSIGNED, Signature, sign
from mainstem.doors.s3.vending import DELEGATION, REGION, SIGNED, VENDED, asked_delegation, table_config
from mainstem.tables.catalog import LoadedTable, TableName
from mainstem.tables.s3_locations import PREFIX

SIGN_PATH = "v1/aws/s3/sign"


class _Location(msgspec.Struct):
    """The part of a table's metadata that says where it is."""

    location: str


_location = msgspec.json.Decoder(_Location)
_sign_body = msgspec.json.Decoder(SignBody)
_credentials_body = msgspec.json.Decoder(S3CredentialsBody)


def loaded(request: HttpRequest, name: TableName, table: LoadedTable) -> Response:
    """A table as this client reads it."""
    asked = asked_delegation(request.header(DELEGATION))
    endpoint, catalog, files = request.context.s3_endpoint, request.broker.catalog, request.broker.table_files
    if not asked or endpoint is None or endpoint.url("") is None:
        return _reply(table.metadata, {}, table.location)
    stored = catalog.find(name)
    metadata, location = table.metadata, table.location
    if stored is None:  # its creation is staged: the client writes files before the table exists
        place = _location.decode(metadata).location.rstrip("/")
        prefixes: tuple[str, ...] = (f"{catalog.key_of(place)}/",)
        writes = True
    else:
        prefixes = files.prefixes_of(stored.location, stored.topic_id)
        if stored.topic_id and files.locations.needed:
            metadata, location = files.locations.metadata(metadata), files.locations.location(location)
        place = location
        writes = not stored.topic_id and request.may(
            Operation.ALTER, ResourceType.TABLE, catalog.rule_name(*name)
        )
    if not place.startswith(PREFIX):
        # in a bucket that the client reaches itself, or on this machine
        return _reply(metadata, {}, location)
    config = table_config(
        endpoint, request.broker, request.principal, _host(request), prefixes, writes=writes
    )
    if VENDED not in asked and SIGNED in asked:
        for secret in (
            "s3.access-key-id",
            "s3.secret-access-key",
            "s3.session-token",
            "s3.session-token-expires-at-ms",
        ):
            config.pop(secret, None)
        config |= {
            "s3.remote-signing-enabled": "true",
            "s3.signer": "S3V4RestSigner",
            "s3.signer.endpoint": SIGN_PATH,
        }
        return _reply(metadata, config, location)
    # Some clients, such as DuckDB, use those in `config` (and a lone one of these) only below the table's location, and
    # the Parquet files of a topic are elsewhere.
    return _reply(metadata, config, location, [StorageCredential(PREFIX + each, config) for each in prefixes])


def _reply(
    metadata: bytes, config: dict[str, str], location: str, credentials: list[StorageCredential] | None = None
) -> Response:
    return reply(TableLoaded(msgspec.Raw(metadata), config, location or None, credentials or []))


def with_location(request: HttpRequest, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
    """The body of a create request. A client that takes credentials gets a location at the S3 door, wherever it is:
    so engines on every machine read and write the table."""
    catalog, name = request.broker.catalog, body.get("name")
    if (
        body.get("location") is not None
        or not isinstance(name, str)
        or not _takes_s3_locations(request)
        or "location" in catalog.properties(namespace)
    ):
        return body
    folder = catalog.folder_of(namespace, name, request.broker.random.token(16))
    return {**body, "location": PREFIX + catalog.key_of(folder)}


def location_for(request: HttpRequest, location: str) -> str:
    """A location in the server's store, as this client reaches it. Trino creates tables below that of a namespace."""
    if not _takes_s3_locations(request):
        return location
    return PREFIX + request.broker.catalog.key_of(location)


def _takes_s3_locations(request: HttpRequest) -> bool:
    endpoint = request.context.s3_endpoint
    return (
        bool(asked_delegation(request.header(DELEGATION)))
        and endpoint is not None
        and endpoint.url("") is not None
        and request.broker.table_files.locations.needed
    )


async def issue_credentials(request: HttpRequest) -> Response:
    """Get credentials of the S3 door for the caller: lasting ones of its API key, or short-lived ones."""
    body = request.json(_credentials_body)
    endpoint, authentication = request.context.s3_endpoint, request.broker.authentication
    if not request.context.clients.required:
        issued: S3Credentials | None = S3Credentials("anonymous", ANONYMOUS_SECRET)
    elif body.ttl_ms:
        seconds = min(max(1, body.ttl_ms // 1000), SESSION_S_MAX)
        issued = authentication.s3_session(request.principal, seconds)
    else:
        issued = authentication.s3_credentials(request.principal)
    if issued is None:
        raise invalid("lasting S3 credentials follow from an API key: give ttl_ms for short-lived ones")
    return reply(
        S3CredentialsIssued(
            issued.access_key_id,
            issued.secret_access_key,
            issued.session_token,
            issued.expires_ms or None,
            None if endpoint is None else endpoint.url(_host(request)),
            REGION,
            request.performance(),
        )
    )


async def post_signature(request: HttpRequest) -> Response:
    """Sign a request to the S3 door, for a client that has no S3 credentials."""
    body = request.json(_sign_body)
    endpoint = request.context.s3_endpoint
    url = None if endpoint is None else endpoint.url(_host(request))
    target = urlsplit(body.uri)
    if endpoint is None or url is None or target.netloc != urlsplit(url).netloc:
        raise invalid("the URI to sign is not one of this server's S3 door")
    credentials = endpoint.credentials(request.broker, request.principal)
    time = _now(request)
    headers = {name.lower(): ",".join(values) for name, values in body.headers.items()}
    headers = {name: value for name, value in headers.items() if name != "authorization"}
    headers |= {"host": target.netloc, "x-amz-date": time}
    headers.setdefault("x-amz-content-sha256", UNSIGNED)
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    signed = tuple(
        sorted(name for name in headers if name == "host" or name.startswith(("x-amz-", "content-md5")))
    )
    region = body.region or REGION
    wanted = Signature(credentials.access_key_id, time[:8], region, "s3", signed, "", time, "", None)
    value = sign(
        wanted,
        credentials.secret_access_key,
        body.method.upper(),
        target.path.encode(),
        parse_query(target.query.encode()),
        headers,
        headers["x-amz-content-sha256"],
    )
    credential = f"{wanted.access_key_id}/{wanted.scope}"
    headers["authorization"] = (
        f"{ALGORITHM} Credential={credential}, SignedHeaders={';'.join(signed)}, Signature={value}"
    )
    return reply(SignedRequest(body.uri, {name: [text] for name, text in headers.items()}))


def _now(request: HttpRequest) -> str:
    return datetime.fromtimestamp(request.broker.clock.now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")


def _host(request: HttpRequest) -> str:
    """The name by which the client calls this server."""
    text = (request.header(b"host") or b"").decode("latin-1").strip()
    return text.rpartition(":")[0] if ":" in text and not text.endswith("]") else text
