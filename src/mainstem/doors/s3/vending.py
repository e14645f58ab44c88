"""How Iceberg clients reach the files of tables: the endpoint of the S3 door, and credentials for one table."""

from __future__ import annotations

from typing import Protocol

from mainstem.address import Address
from mainstem.broker.access.principal import Principal
from mainstem.broker.access.s3_credentials import ANONYMOUS_SECRET, SESSION_S_DEFAULT, S3Credentials
from mainstem.broker.broker import Broker
from mainstem.broker.buckets.table_files import BUCKET

REGION = "us-east-1"
DELEGATION = b"x-iceberg-access-delegation"
VENDED, SIGNED = "vended-credentials", "remote-signing"
_EVERYWHERE = ("0.0.0.0", "::", "")


class BoundDoor(Protocol):
    """A door that listens at an address."""

    @property
    def bound(self) -> Address | None: ...

    @property
    def authenticates(self) -> bool: ...


class S3Endpoint:
    """Where clients reach the S3 door."""

    def __init__(self, door: BoundDoor, advertise: Address | None, *, tls: bool) -> None:
        self._door = door
        self._advertise = advertise
        self._scheme = "https" if tls else "http"

    def url(self, host: str) -> str | None:
        """The door's URL for a client that calls this server by `host`; None: it does not listen."""
        bound = self._door.bound
        if bound is None:
            return None
        address = self._advertise or bound
        if address.host in _EVERYWHERE:
            address = Address(host.strip("[]") or "127.0.0.1", address.port)
        return f"{self._scheme}://{address}"

    def credentials(
        self, broker: Broker, principal: Principal, prefixes: tuple[str, ...] = (), *, writes: bool = True
    ) -> S3Credentials:
        """Short-lived credentials for objects below these prefixes of "bucket/key"."""
        if not self._door.authenticates:
            return S3Credentials("anonymous", ANONYMOUS_SECRET)
        return broker.authentication.s3_session(principal, SESSION_S_DEFAULT, prefixes, writes=writes)


def asked_delegation(header: bytes | None) -> set[str]:
    """The ways of access to files that a client of the catalog understands."""
    given = (header or b"").decode("latin-1").lower().split(",")
    return {one.strip() for one in given} & {VENDED, SIGNED}


def table_config(
    endpoint: S3Endpoint,
    broker: Broker,
    principal: Principal,
    host: str,
    prefixes: tuple[str, ...],
    *,
    writes: bool,
) -> dict[str, str]:
    """The properties with which clients read and write the files of a table; none: the door does not listen."""
    url = endpoint.url(host)
    if url is None:
        return {}
    scope = tuple(f"{BUCKET}/{prefix}" for prefix in prefixes)
    credentials = endpoint.credentials(broker, principal, scope, writes=writes)
    config = {
        "s3.endpoint": url,
        "s3.path-style-access": "true",
        "s3.region": REGION,
        "client.region": REGION,
        "s3.access-key-id": credentials.access_key_id,
        "s3.secret-access-key": credentials.secret_access_key,
        # Trino uses credentials only with a token. Where nobody has to authenticate, any token is accepted, too.
        "s3.session-token": credentials.session_token or ANONYMOUS_SECRET,
    }
    if credentials.session_token:
        config["s3.session-token-expires-at-ms"] = str(credentials.expires_ms)
    return config
