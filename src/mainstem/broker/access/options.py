"""How clients authenticate, and who may do everything: the part of the settings that all doors share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.broker.access.keys import SettingsKey, parse_keys
from mainstem.broker.access.passwords import parse_users
from mainstem.config import Config
from mainstem.errors import InvalidConfig
from mainstem.ledger.credentials import Credential

if TYPE_CHECKING:
    from mainstem.broker.access.tokens import TokenVerifier

_ANY = "any"  # waives the check of a token's issuer or audience


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """By default nobody has to authenticate, and every client may do everything."""

    keys: tuple[SettingsKey, ...] = ()
    users: tuple[Credential, ...] = ()
    tokens: TokenVerifier | None = None
    logins: bool = False  # a door asks for passwords, tokens or certificates
    rules: str = "auto"  # whether stored rules apply: on, off, or auto, which is where clients authenticate
    super_users: frozenset[str] = frozenset()  # principals that may do everything

    @property
    def authenticates(self) -> bool:
        return bool(self.keys) or self.logins


def access_options(config: Config) -> AccessOptions:
    """Raises InvalidConfig."""
    names = (name.strip() for name in config.kafka_super_users.split(";"))
    mechanisms = {name.strip().lower() for name in config.kafka_sasl.split(",") if name.strip()}
    return AccessOptions(
        keys=parse_keys(config.api_keys),
        users=tuple(parse_users(config.kafka_users)),
        tokens=_tokens(config) if "oauthbearer" in mechanisms else None,
        logins=bool(mechanisms) or config.kafka_tls_ca is not None or config.tls_ca is not None,
        rules=config.kafka_acl,
        super_users=frozenset(f"User:{name.removeprefix('User:')}" for name in names if name),
    )


def _tokens(config: Config) -> TokenVerifier:
    from mainstem.broker.access.tokens import TokenVerifier, read_keys  # imports PyJWT and cryptography

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
