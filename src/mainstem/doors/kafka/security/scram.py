"""SASL SCRAM (RFC 5802): the client proves that it knows its password without sending it.

| from   | message                                            |
|--------|----------------------------------------------------|
| client | `n,,n=user,r=nonce`                                |
| server | `r=nonce and more,s=salt,i=iterations`             |
| client | `c=biws,r=the whole nonce,p=proof`                 |
| server | `v=signature`                                      |
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

from mainstem.broker.access.authentication import Authentication
from mainstem.broker.access.passwords import hash_name
from mainstem.broker.access.service import Credential
from mainstem.doors.kafka.security.exchange import REFUSED, ExchangeStep, text_of
from mainstem.errors import Unauthorized

_NONCE_BYTES = 24
_MALFORMED = "this is not a SCRAM message"


class ScramExchange:
    def __init__(self, mechanism: int, authentication: Authentication) -> None:
        self._mechanism = mechanism
        self._authentication = authentication
        self._credential: Credential | None = None  # once the client has named its user
        self._binding = b""
        self._nonce = ""
        self._first_messages = ""  # of both sides: the proof covers them

    async def step(self, message: bytes) -> ExchangeStep:
        text = text_of(message)
        if self._credential is None:
            return self._first(text)
        return self._final(text, self._credential)

    def _first(self, text: str) -> ExchangeStep:
        flag, acting_for, bare = _split(text)
        if flag not in ("n", "y"):
            raise Unauthorized("channel binding is not supported")
        name, nonce, *extensions = bare.split(",")
        if not name.startswith("n=") or not nonce.startswith("r=") or len(nonce) == 2:
            raise Unauthorized(_MALFORMED)
        if any(extension == "tokenauth=true" for extension in extensions):
            raise Unauthorized("delegation tokens are not supported")
        user = _unescaped(name[2:])
        if acting_for and _unescaped(acting_for.removeprefix("a=")) != user:
            raise Unauthorized("acting for another user is not supported")
        credential = self._authentication.credential(user, self._mechanism)
        self._binding = base64.b64encode(f"{flag},{acting_for},".encode())
        self._nonce = nonce[2:] + base64.b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._first_messages = f"{bare},{answer}"
        self._credential = credential
        return ExchangeStep(answer.encode())

    def _final(self, text: str, credential: Credential) -> ExchangeStep:
        without_proof, _, proof = text.rpartition(",p=")
        binding, nonce, *_ = [*without_proof.split(","), ""]
        if binding.encode() != b"c=" + self._binding or nonce != f"r={self._nonce}":
            raise Unauthorized(_MALFORMED)
        name = hash_name(self._mechanism)
        signed = f"{self._first_messages},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, name)
        proved = _decoded(proof)
        if len(proved) != len(signature):
            raise Unauthorized(_MALFORMED)
        client_key = bytes(one ^ other for one, other in zip(proved, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key):
            raise Unauthorized(REFUSED)
        verifier = base64.b64encode(hmac.digest(credential.server_key, signed, name))
        return ExchangeStep(b"v=" + verifier, self._authentication.user(credential.user))


def _split(text: str) -> tuple[str, str, str]:
    parts = text.split(",", 2)
    if len(parts) != 3 or "," not in parts[2]:
        raise Unauthorized(_MALFORMED)
    return parts[0], parts[1], parts[2]


def _unescaped(name: str) -> str:
    """A comma is written =2C, an equals sign =3D."""
    pieces = name.split("=")
    if not name or any(not piece.startswith(("2C", "3D")) for piece in pieces[1:]):
        raise Unauthorized(_MALFORMED)
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Unauthorized(_MALFORMED) from None
