"""Security options of the Kafka door, from the settings."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from mainstem.broker.access.service import Credential
from mainstem.broker.cluster.clock import Clock
from mainstem.config import Config
from mainstem.doors.kafka.security.certificates import tls_context
from mainstem.doors.kafka.security.exchange import Exchange
from mainstem.doors.kafka.security.oauth_bearer import OAuthBearerExchange
from mainstem.doors.kafka.security.passwords import MECHANISMS, parse_users
from mainstem.doors.kafka.security.plain import PlainExchange
from mainstem.doors.kafka.security.scram import ScramExchange
from mainstem.doors.kafka.security.users import Users
from mainstem.errors import InvalidConfig

if TYPE_CHECKING:
    from mainstem.doors.kafka.security.tokens import TokenVerifier

_OFFERED = ("PLAIN", *MECHANISMS, "OAUTHBEARER")
_ANY = "any"  # waives the check of a token's issuer or audience


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """Security of the Kafka door. By default every client may connect and do everything."""

    tls: ssl.SSLContext | None = None
    mechanisms: tuple[str, ...] = ()  # of SASL; empty: no client has to authenticate
    users: tuple[Credential, ...] = ()
    tokens: TokenVerifier | None = None
    reauthenticate_ms: int = 0  # 0: a login lasts as long as its connection
    rules: bool = False  # whether access rules apply
    super_users: frozenset[str] = frozenset()  # principals that may do everything

    @property
    def certificates(self) -> bool:
        """Whether clients must present a certificate."""
        return self.tls is not None and self.tls.verify_mode is ssl.CERT_REQUIRED

    @property
    def authenticates(self) -> bool:
        return bool(self.mechanisms) or self.certificates

    def exchanges(self, users: Users, clock: Clock) -> dict[str, Callable[[], Exchange]]:
        """Factories of login exchanges, by mechanism."""
        found: dict[str, Callable[[], Exchange]] = {}
        for name in self.mechanisms:
            if name in MECHANISMS:
                found[name] = partial(ScramExchange, MECHANISMS[name], users)
            elif name == "PLAIN":
                found[name] = partial(PlainExchange, users)
            elif self.tokens is not None:
                found[name] = partial(OAuthBearerExchange, self.tokens, clock)
        return found


def kafka_security(config: Config) -> KafkaSecurity:
    """Raises InvalidConfig."""
    mechanisms = tuple(
        dict.fromkeys(name.strip().upper() for name in config.kafka_sasl.split(",") if name.strip())
    )
    unknown = [name for name in mechanisms if name not in _OFFERED]
    if unknown:
        raise InvalidConfig(f"--kafka-sasl: {unknown[0]!r} is not one of {', '.join(_OFFERED).lower()}")
    tls = tls_context(config.kafka_tls_cert, config.kafka_tls_key, config.kafka_tls_ca)
    names = (name.strip() for name in config.kafka_super_users.split(";"))
    guard = KafkaSecurity(
        tls=tls,
        mechanisms=mechanisms,
        users=tuple(parse_users(config.kafka_users)),
        tokens=_tokens(config) if "OAUTHBEARER" in mechanisms else None,
        reauthenticate_ms=config.kafka_reauthenticate_ms,
        super_users=frozenset(f"User:{name.removeprefix('User:')}" for name in names if name),
        rules=config.kafka_acl == "on",
    )
    if config.kafka_acl == "auto" and guard.authenticates:
        return replace(guard, rules=True)
    return guard


def _tokens(config: Config) -> TokenVerifier:
    from mainstem.doors.kafka.security.tokens import (  # imports PyJWT and cryptography
        TokenVerifier,
        read_keys,
    )

    if config.kafka_oauth_jwks is None:
        if not config.kafka_oauth_unsecured:
            raise InvalidConfig(
                "--kafka-sasl oauthbearer needs --kafka-oauth-jwks PATH, or --kafka-oauth-unsecured true to "
                "accept unsigned tokens"
            )
        keys = []
    else:
        for option, claim, value in (
            ("--kafka-oauth-issuer", "iss", config.kafka_oauth_issuer),
            ("--kafka-oauth-audience", "aud", config.kafka_oauth_audience),
        ):
            if not value:
                raise InvalidConfig(
                    f"--kafka-oauth-jwks needs {option}: the {claim} that tokens must have, or {_ANY!r} to "
                    "accept any"
                )
        keys = read_keys(config.kafka_oauth_jwks)
    return TokenVerifier(
        keys,
        unsecured=config.kafka_oauth_unsecured,
        issuer=_unless_any(config.kafka_oauth_issuer),
        audience=_unless_any(config.kafka_oauth_audience),
    )


def _unless_any(value: str) -> str:
    return "" if value == _ANY else value
