"""How clients authenticate, and who may do everything: the part of the settings that all doors share."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.broker.access.keys import SettingsKey, parse_keys
from mainstem.broker.access.passwords import parse_users
from mainstem.config import Config
from mainstem.errors import InvalidConfig
from mainstem.ledger.credentials import Credential

if TYPE_CHECKING:
    from mainstem.broker.access.tokens import TokenVerifier

_STDIN = "-"
_ANY = "any"  # waives the check of a token's issuer or audience


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """By default nobody has to authenticate, and every client may do everything."""

    keys: tuple[SettingsKey, ...] = ()
    users: tuple[Credential, ...] = ()
    tokens: TokenVerifier | None = None
    internal: tuple[SettingsKey, ...] = ()  # of the server's own processes; they do not restrict access
    logins: bool = False  # a door asks for passwords, tokens or certificates
    http_certificates: bool = False  # the HTTP door asks for certificates, which by itself calls for no rules
    rules: str = "auto"  # whether stored rules apply: on, off, or auto, which is where clients authenticate
    open_without_rules: bool = False  # a resource that no stored rule names is open to every principal
    super_users: frozenset[str] = frozenset()  # principals that may do everything

    @property
    def authenticates(self) -> bool:
        return bool(self.keys) or self.logins or self.http_certificates


def access_options(config: Config) -> AccessOptions:
    """Raises InvalidConfig. Reads files, and standard input where the settings say so."""
    if config.api_keys == config.kafka_users == _STDIN:
        raise InvalidConfig("only one of --api-keys and --kafka-users can come from standard input")
    names = (name.strip() for name in config.kafka_super_users.split(";"))
    mechanisms = {name.strip().lower() for name in config.kafka_sasl.split(",") if name.strip()}
    return AccessOptions(
        keys=parse_keys(_listed(config.api_keys, config.api_keys_file)),
        users=tuple(parse_users(_listed(config.kafka_users, config.kafka_users_file))),
        tokens=_tokens(config) if "oauthbearer" in mechanisms or config.oidc_issuer else None,
        logins=bool(mechanisms or config.oidc_issuer or config.kafka_tls_ca or config.pulsar_tls_ca),
        http_certificates=config.tls_ca is not None,
        rules=config.kafka_acl,
        open_without_rules=config.kafka_allow_everyone_if_no_acl,
        super_users=frozenset(f"User:{name.removeprefix('User:')}" for name in names if name),
    )


def _listed(given: str, file: Path | None) -> str:
    """Secrets of a setting, of standard input and of a file, as one comma-separated list."""
    lines = sys.stdin.read().splitlines() if given == _STDIN else [given]
    if file is not None:
        try:
            lines += file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as wrong:
            raise InvalidConfig(f"{file} cannot be read: {wrong}") from None
    return ",".join(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))


def _tokens(config: Config) -> TokenVerifier:
    from mainstem.broker.access.tokens import TokenVerifier, read_keys  # imports PyJWT and cryptography

    if config.oidc_issuer:
        return _issuer_tokens(config)
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


def _issuer_tokens(config: Config) -> TokenVerifier:
    import time

    from mainstem.broker.access.oidc import IssuerKeys
    from mainstem.broker.access.tokens import TokenVerifier

    if config.kafka_oauth_jwks is not None:
        raise InvalidConfig("--oidc-issuer finds the keys of its issuer: leave out --kafka-oauth-jwks")
    if not config.oidc_issuer.startswith(("https://", "http://")):
        raise InvalidConfig("--oidc-issuer is an https or http URL")
    if not config.oidc_audience:
        raise InvalidConfig(
            f"--oidc-issuer needs --oidc-audience: the aud that tokens must have, or {_ANY!r} to accept any"
        )
    return TokenVerifier(
        [],
        issuer=config.oidc_issuer,
        audience=_unless_any(config.oidc_audience),
        principal_claim=config.oidc_principal_claim,
        issuer_keys=IssuerKeys(config.oidc_issuer, time.monotonic),
    )


def _unless_any(value: str) -> str:
    return "" if value == _ANY else value
