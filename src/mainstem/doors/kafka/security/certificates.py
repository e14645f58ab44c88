"""TLS of the Kafka door."""

from __future__ import annotations

import ssl
from pathlib import Path

from mainstem.errors import InvalidConfig


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
