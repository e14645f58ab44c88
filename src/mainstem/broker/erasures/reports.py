"""Reports of erasures: JSON that the server signs with its own Ed25519 key.

The key is the file `erasure.key` in the data directory: 32 bytes, as 64 hexadecimal digits, which only the server's
user can read. The server makes it when it signs its first report. Anyone who has the public key can verify a report.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mainstem.errors import InvalidInput

KEY_FILE = "erasure.key"
_KEY_BYTES = 32


class ReportKey:
    """Imports `cryptography` where it is used: it is slow to import, and few servers erase."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / KEY_FILE

    def public(self) -> str:
        """The public key, in hexadecimal. Blocks. Makes the key if there is none."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self._seed()).public_key().public_bytes_raw().hex()

    def sign(self, report: dict[str, Any]) -> bytes:
        """The report as JSON, with the public key and the signature. Blocks."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.from_private_bytes(self._seed())
        signed = report | {"public_key": key.public_key().public_bytes_raw().hex()}
        return _canonical(signed | {"signature": key.sign(_canonical(signed)).hex()})

    def _seed(self) -> bytes:
        try:
            return bytes.fromhex(self._path.read_text(encoding="ascii").strip())
        except FileNotFoundError:
            pass
        fresh = os.urandom(_KEY_BYTES)
        staged = self._path.with_suffix(".tmp")
        staged.unlink(missing_ok=True)
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(fresh.hex() + "\n")
            file.flush()
            os.fsync(descriptor)
        staged.replace(self._path)
        return fresh


def verify_report(report: bytes, public_key: str) -> dict[str, Any]:
    """The report, if the holder of this public key signed it. Raises InvalidInput."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        found: dict[str, Any] = json.loads(report)
        signature = bytes.fromhex(found["signature"])
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        signed = {name: value for name, value in found.items() if name != "signature"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"this is not a signed report, or {public_key!r} is not a public key") from error
    try:
        key.verify(signature, _canonical(signed))
    except InvalidSignature:
        raise InvalidInput("the report was changed, or another key signed it") from None
    return signed


def _canonical(report: dict[str, Any]) -> bytes:
    return json.dumps(report, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
