"""Security options of the Kafka door, from the settings."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from mainstem.broker.access.authentication import Authentication
from mainstem.broker.access.passwords import MECHANISMS
from mainstem.broker.cluster.clock import Clock
from mainstem.config import Config
from mainstem.doors.kafka.security.exchange import Exchange
from mainstem.doors.kafka.security.oauth_bearer import OAuthBearerExchange
from mainstem.doors.kafka.security.plain import PlainExchange
from mainstem.doors.kafka.security.scram import ScramExchange
from mainstem.doors.tls import tls_context
from mainstem.errors import InvalidConfig

_OFFERED = ("PLAIN", *MECHANISMS, "OAUTHBEARER")


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """Security of the Kafka door. The broker knows the credentials (`AccessOptions`)."""

    tls: ssl.SSLContext | None = None
    mechanisms: tuple[
        str, ...
    ] = ()  # of SASL; empty: those that the credentials allow, where access is restricted
    reauthenticate_ms: int = 0  # 0: a login lasts as long as its connection
    insecure: bool = False  # clients need not log in, although access is restricted

    @property
    def certificates(self) -> bool:
        """Whether clients must present a certificate."""
        return self.tls is not None and self.tls.verify_mode is ssl.CERT_REQUIRED

    def exchanges(
        self, authentication: Authentication, clock: Clock, *, restricted: bool
    ) -> dict[str, Callable[[], Exchange]]:
        """Factories of login exchanges, by mechanism. None: clients need not log in."""
        names = self.mechanisms
        if not names and restricted and not self.certificates and not self.insecure:
            names = ("PLAIN", *MECHANISMS)
            if authentication.tokens is not None:
                names = (*names, "OAUTHBEARER")
        elif names and "PLAIN" not in names and authentication.has_keys:
            names = (*names, "PLAIN")  # an API key is sent as a password
        found: dict[str, Callable[[], Exchange]] = {}
        for name in names:
            if name in MECHANISMS:
                found[name] = partial(ScramExchange, MECHANISMS[name], authentication)
            elif name == "PLAIN":
                found[name] = partial(PlainExchange, authentication)
            else:
                found[name] = partial(OAuthBearerExchange, authentication, clock)
        return found


def kafka_security(config: Config) -> KafkaSecurity:
    """Raises InvalidConfig."""
    mechanisms = tuple(
        dict.fromkeys(name.strip().upper() for name in config.kafka_sasl.split(",") if name.strip())
    )
    unknown = [name for name in mechanisms if name not in _OFFERED]
    if unknown:
        raise InvalidConfig(f"--kafka-sasl: {unknown[0]!r} is not one of {', '.join(_OFFERED).lower()}")
    return KafkaSecurity(
        tls=tls_context(
            config.kafka_tls_cert, config.kafka_tls_key, config.kafka_tls_ca, flags="--kafka-tls"
        ),
        mechanisms=mechanisms,
        reauthenticate_ms=config.kafka_reauthenticate_ms,
    )
