"""TLS of the Kafka door, and the principal in a client's certificate."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mainstem.errors import InvalidConfig

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


def tls_context(cert: Path | None, key: Path | None, ca: Path | None) -> ssl.SSLContext | None:
    """TLS as configured by the flags; with a CA, clients must present a certificate. Raises InvalidConfig."""
    if cert is None:
        if key is not None or ca is not None:
            raise InvalidConfig("--kafka-tls-key and --kafka-tls-ca need --kafka-tls-cert")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
        if ca is not None:
            context.load_verify_locations(ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as wrong:
        raise InvalidConfig(f"the TLS files of the Kafka door cannot be used: {wrong}") from None
    return context


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
