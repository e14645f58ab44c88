"""The principal in a client's certificate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainstem.broker.access.principal import Principal

_SHORT = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "domainComponent": "DC",
    "userId": "UID",
}
_SPECIAL = frozenset(',+"\\<>;=')


def by_certificate(certificate: Mapping[str, Any] | None) -> Principal | None:
    """`User:` and the subject of a verified certificate; None without one."""
    subject = subject_of(certificate) if certificate else None
    return None if subject is None else Principal(f"User:{subject}")


def subject_of(certificate: Mapping[str, Any]) -> str | None:
    """The subject's name in RFC 2253 form, most specific part first."""
    parts = [
        "+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in group)
        for group in certificate.get("subject", ())
    ]
    return ",".join(reversed(parts)) if parts else None


def _escaped(value: str) -> str:
    escaped = "".join(f"\\{char}" if char in _SPECIAL else char for char in value)
    if escaped.startswith((" ", "#")):
        escaped = "\\" + escaped
    if len(value) > 1 and value.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return escaped
