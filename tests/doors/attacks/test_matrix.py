"""Every kind of attack on every door: it is run, tested otherwise, or does not apply. A new door fails until then."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import mainstem.doors

from .attackers import CELLS, Kind

_DOORS = sorted(
    folder.name
    for folder in Path(mainstem.doors.__file__).parent.iterdir()
    if (folder / "__init__.py").exists()
)

# Tests in other files, or without a server under load.
_TESTED: dict[tuple[str, Kind], str] = {
    ("http", Kind.SILENT_HANDSHAKES): "test_a_handshake_counts_as_a_connection",
    ("kafka", Kind.SILENT_HANDSHAKES): "test_a_handshake_counts_as_a_connection",
    ("s3", Kind.SILENT_HANDSHAKES): "test_a_handshake_counts_as_a_connection",
    ("http", Kind.SESSIONS): "test_one_client_does_not_take_all_watch_sessions",
    ("http", Kind.LOGINS): "test_scopes_are_checked_before_the_body",
    ("kafka", Kind.LOGINS): "test_before_login_large_requests_are_not_even_received",
    ("pulsar", Kind.LOGINS): "test_before_connect_only_small_frames_are_taken",
    ("s3", Kind.LOGINS): "test_unknown_wrong_and_missing_credentials_are_refused",
}

_DOES_NOT_APPLY: dict[tuple[str, Kind], str] = {
    ("http", Kind.LOOKUPS): "lists are pages with a limit, of one request at a time",
    ("kafka", Kind.CONTROL_FRAMES): "the protocol has requests only, and each is answered",
    ("text", Kind.CONTROL_FRAMES): "the protocol has requests only, and each is answered",
    ("s3", Kind.CONTROL_FRAMES): "HTTP/1.1 on the connections of the HTTP door",
    ("text", Kind.BOMBS): "it has no compression",
    ("text", Kind.SILENT_HANDSHAKES): "it has no TLS",
    ("text", Kind.SESSIONS): "nothing of a connection outlives it",
    ("text", Kind.LOOKUPS): "STATE and METRICS are bounded; text_pipelined sends METRICS",
    ("text", Kind.LOGINS): "a request has at most 64 KiB, and AUTH is one lookup of a hash",
    ("s3", Kind.LOOKUPS): "lists are pages of at most 1,000 names",
}


@cache
def _test_names() -> frozenset[str]:
    root = Path(__file__).parents[2]
    return frozenset(
        name for path in root.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    )


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
@pytest.mark.parametrize("door", _DOORS)
def test_every_kind_of_attack_is_known_for_every_door(door: str, kind: Kind) -> None:
    attacks = CELLS.get((door, kind), []) + CELLS.get(("*", kind), [])
    tested = _TESTED.get((door, kind))
    reason = _DOES_NOT_APPLY.get((door, kind))
    assert attacks or tested or reason, (
        f"write an attack {kind.name} on the door {door}, or say why none applies"
    )
    assert not (reason and (attacks or tested)), "it applies after all"
    assert tested is None or tested in _test_names(), tested


def test_no_cell_names_a_door_that_does_not_exist() -> None:
    named = {door for door, _ in (*CELLS, *_TESTED, *_DOES_NOT_APPLY)}
    assert named <= {*_DOORS, "*"}
