"""The checks of `mainstem doctor` on access: who reaches the server, and with which credentials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.address import Address
from mainstem.cli.doctor_checks import Finding, listening_process
from mainstem.config import Config

if TYPE_CHECKING:
    from mainstem.api.security import KeyDescription

SETTINGS = (
    "api_keys",
    "api_keys_file",
    "kafka_users",
    "kafka_users_file",
    "kafka_sasl",
    "kafka_tls_cert",
    "kafka_tls_ca",
    "oidc_issuer",
    "tls_cert",
    "tls_ca",
    "insecure",
    "insecure_http",
    "insecure_kafka",
    "insecure_text",
    "insecure_pulsar",
    "pulsar_tls_cert",
    "allow_insecure_no_auth",
)  # that the checks look at

_ABOUT = "access"
_SECRETS = {"api_keys": "--api-keys", "kafka_users": "--kafka-users"}
_STDIN = "-"
_YEAR_MS = 365 * 24 * 3600 * 1000


def access(config: Config, sources: Mapping[str, str], *, restricted: bool = False) -> Iterator[Finding]:
    """Check how the doors are opened. `restricted`: the running server asks for credentials."""
    restricted = restricted or _authenticates(config)
    found = [*_doors(config, restricted=restricted), *_command_lines(config, sources)]
    if not found:
        what = "every door asks for credentials" if restricted else "other machines cannot reach any door"
        yield Finding("ok", _ABOUT, what)
    yield from found


def _authenticates(config: Config) -> bool:
    return bool(
        config.api_keys
        or config.api_keys_file
        or config.kafka_sasl
        or config.oidc_issuer
        or config.kafka_tls_ca
        or config.tls_ca
    )


def _doors(config: Config, *, restricted: bool) -> Iterator[Finding]:
    lock = "create a key with `mainstem key create`, or set --api-keys-file"
    for door, address, insecure, encrypted in _listeners(config):
        if restricted and insecure:
            yield Finding(
                "note" if address.loopback else "problem",
                _ABOUT,
                f"--insecure-{door} lets anonymous clients do everything at {address}",
                f"start the server without --insecure-{door}",
            )
        elif not restricted and not address.loopback:
            yield Finding(
                "problem",
                _ABOUT,
                f"everyone who reaches the {door} door at {address} may do everything",
                lock,
            )
        if not address.loopback and not encrypted:
            yield Finding(
                "note",
                _ABOUT,
                f"the {door} door at {address} sends credentials and records without encryption",
                _ENCRYPT[door],
            )


_ENCRYPT = {
    "http": "set --tls-cert, or put a proxy with TLS before it",
    "kafka": "set --kafka-tls-cert, or put a proxy with TLS before it",
    "pulsar": "set --pulsar-tls-cert, or put a proxy with TLS before it",
    "text": "put a proxy with TLS before it, or let it listen on loopback",
}


def _listeners(config: Config) -> Iterator[tuple[str, Address, bool, bool]]:
    """Each door that is open: its name, its address, whether it lets anonymous clients in, and whether it has TLS."""
    if config.http is not None:
        yield "http", config.http, config.insecure_http, config.tls_cert is not None
    if config.text is not None:
        yield "text", config.text, config.insecure_text, False
    for address in config.kafka or ():
        yield "kafka", address, config.insecure_kafka, config.kafka_tls_cert is not None
    if config.pulsar is not None:
        yield "pulsar", config.pulsar, config.insecure_pulsar, config.pulsar_tls_cert is not None


def _command_lines(config: Config, sources: Mapping[str, str]) -> Iterator[Finding]:
    advice = "set --api-keys-file or --kafka-users-file, the environment, or - for standard input"
    for name, flag in _SECRETS.items():
        if sources.get(name) == "flag" and getattr(config, name) != _STDIN:
            yield Finding("problem", _ABOUT, f"{flag} shows secrets in the list of processes", advice)
            return
    for _, address, _, _ in _listeners(config):
        process = listening_process(address.port) if address.port else None
        flag = _secret_on(process) if process is not None else ""
        if flag:
            what = f"{flag} of process {process} shows secrets in the list of processes"
            yield Finding("problem", _ABOUT, what, advice)
            return


def _secret_on(process: int) -> str:
    """The flag in the command line of a process that shows a secret; empty if there is none."""
    try:
        words = (Path("/proc") / str(process) / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        flag, _, value = word.partition("=")
        if flag in _SECRETS.values() and (value or following) != _STDIN:
            return flag
    return ""


def stored_keys(keys: Iterable[KeyDescription], now_ms: int) -> Iterator[Finding]:
    """Check the API keys that the server stores."""
    for key in keys:
        about = f"key {key.id} of {key.principal}"
        if key.expires_ms is not None and key.expires_ms <= now_ms:
            yield Finding("note", _ABOUT, f"{about} has expired", f"delete it: mainstem key revoke {key.id}")
        elif now_ms - (key.rotated_ms or key.created_ms) > _YEAR_MS:
            days = (now_ms - (key.rotated_ms or key.created_ms)) // (_YEAR_MS // 365)
            yield Finding(
                "note", _ABOUT, f"{about} has had its secret for {days} days", f"mainstem key rotate {key.id}"
            )
