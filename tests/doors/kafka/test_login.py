"""Authentication, frame by frame: what may come before it, what fails, and how long it lasts."""

from __future__ import annotations

import base64
import random
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.passwords import hashed, matches, parse_users
from mainstem.broker.broker import Broker
from mainstem.doors.kafka.security.options import KafkaSecurity
from mainstem.doors.kafka.transport.registry import apis
from mainstem.errors import InvalidConfig
from tests.support.batches import batch
from tests.support.clock import ManualClock

from .conftest import KafkaStage, opened
from .requests import metadata, produce
from .wire import Wire, request_frame

_HANDSHAKE = load_request_schema(17, 1)
_AUTHENTICATE = load_request_schema(36, 2)
_GOOD = b"\0ann\0an"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def closed(broker: Broker, clock: ManualClock) -> AsyncIterator[KafkaStage]:
    """A door at which clients have to authenticate every ten seconds."""
    security = KafkaSecurity(mechanisms=("PLAIN", "SCRAM-SHA-256"), reauthenticate_ms=10_000)
    access = AccessOptions(users=tuple(parse_users("ann:an,bob:bo")), logins=True, rules="off")
    async with opened(broker, security=security, access=access, clock=clock) as stage:
        yield stage


async def _said(wire: Wire, message: bytes, mechanism: str = "PLAIN") -> Any:
    assert (await wire.ask(_HANDSHAKE(mechanism=mechanism))).error_code == ErrorCode.none
    return await wire.ask(_AUTHENTICATE(auth_bytes=message))


async def test_before_login_only_login_requests_are_served(closed: KafkaStage) -> None:
    slice, _ = batch(b"1")
    for request in (
        metadata(9, "made", create=True),
        produce(9, "made", slice),
        produce(9, "made", slice, acks=0),
    ):
        wire = await closed.connect()
        assert (await wire.ask(load_request_schema(18, 0)())).error_code == ErrorCode.none
        wire.send(request)
        assert await wire.ended()
    assert closed.broker.streams.get("made") is None


async def test_a_request_pipelined_with_a_failing_login_is_not_served(closed: KafkaStage) -> None:
    wire = await closed.connect()
    wire.send(_HANDSHAKE(mechanism="PLAIN"))
    wire.send(_AUTHENTICATE(auth_bytes=b"\0ann\0wrong"))
    wire.send_raw(request_frame(metadata(9, "made", create=True), 3))
    handshake, refused = await wire.answers()
    assert handshake.error_code == ErrorCode.none
    assert refused.error_code == ErrorCode.sasl_authentication_failed
    assert await wire.ended()
    assert closed.broker.streams.get("made") is None


async def test_a_request_pipelined_with_a_successful_login_is_served_after_it(closed: KafkaStage) -> None:
    wire = await closed.connect()
    wire.send(_HANDSHAKE(mechanism="PLAIN"))
    wire.send(_AUTHENTICATE(auth_bytes=_GOOD))
    wire.send(metadata(9, "made", create=True))
    _, done, answer = await wire.answers()
    assert done.error_code == ErrorCode.none
    assert done.session_lifetime.total_seconds() == 10
    assert answer.topics[0].error_code == ErrorCode.none


async def test_before_login_large_requests_are_not_even_received(closed: KafkaStage) -> None:
    wire = await closed.connect()
    wire.send_raw(struct.pack(">ihhi", 1 << 20, 0, 9, 1))
    assert await wire.ended()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"\0ann\0",
        b"\0\0an",
        b"ann\0an",
        b"bob\0ann\0an",
        b"\0ann\0an\0",
        b"\xff\0ann\0an",
        b"\0ann\0bo",
    ],
)
async def test_an_invalid_login_is_refused_and_ends_the_connection(
    closed: KafkaStage, message: bytes
) -> None:
    wire = await closed.connect()
    answer = await _said(wire, message)
    assert answer.error_code == ErrorCode.sasl_authentication_failed
    assert await wire.ended()


@pytest.mark.parametrize(
    "message",
    [
        b"n,,n=ann",
        b"p=tls,,n=ann,r=x",
        b"n,,r=x,n=ann",
        b"n,,n=a=nn,r=x",
        b"n,,n=ann,r=",
        b"n,a=bob,n=ann,r=x",
        b",",
    ],
)
async def test_an_invalid_first_scram_message_is_refused(closed: KafkaStage, message: bytes) -> None:
    wire = await closed.connect()
    answer = await _said(wire, message, "SCRAM-SHA-256")
    assert answer.error_code == ErrorCode.sasl_authentication_failed
    assert await wire.ended()


@pytest.mark.parametrize(
    "final",
    ["", "c=biws,r=x,p=AA==", "c=biws,r={nonce},p=AA==", "c=biws,r={nonce},p=!", "c=bad,r={nonce},p=AA=="],
)
async def test_an_invalid_scram_proof_is_refused(closed: KafkaStage, final: str) -> None:
    wire = await closed.connect()
    first = await _said(wire, b"n,,n=ann,r=x", "SCRAM-SHA-256")
    nonce = first.auth_bytes.decode().split(",")[0][2:]
    answer = await wire.ask(_AUTHENTICATE(auth_bytes=final.format(nonce=nonce).encode()))
    assert answer.error_code == ErrorCode.sasl_authentication_failed
    assert await wire.ended()


async def test_an_unknown_user_gets_the_same_salt_every_time_like_a_known_one(
    closed: KafkaStage,
) -> None:
    async def salt(user: bytes) -> str:
        answer = await _said(await closed.connect(), b"n,,n=" + user + b",r=x", "SCRAM-SHA-256")
        return str(answer.auth_bytes.decode().split(",", 1)[1])

    assert await salt(b"nobody") == await salt(b"nobody")
    assert await salt(b"ann") == await salt(b"ann")
    assert await salt(b"nobody") != await salt(b"noone")


async def test_a_login_out_of_turn_is_refused(closed: KafkaStage) -> None:
    wire = await closed.connect()
    assert (await wire.ask(_AUTHENTICATE(auth_bytes=_GOOD))).error_code == ErrorCode.illegal_sasl_state
    assert await wire.ended()
    wire = await closed.connect()
    answer = await wire.ask(_HANDSHAKE(mechanism="GSSAPI"))
    assert answer.error_code == ErrorCode.unsupported_sasl_mechanism
    assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert await wire.ended()


async def test_a_login_where_none_is_needed_is_refused_and_harmless(kafka: KafkaStage) -> None:
    wire = await kafka.connect()
    assert (await wire.ask(_HANDSHAKE(mechanism="PLAIN"))).error_code == ErrorCode.illegal_sasl_state
    assert (await wire.ask(_AUTHENTICATE(auth_bytes=_GOOD))).error_code == ErrorCode.illegal_sasl_state
    assert (await wire.ask(metadata(9, "t"))).topics[0].error_code == ErrorCode.none


async def test_a_login_lasts_as_long_as_it_says_and_can_be_renewed(
    closed: KafkaStage, clock: ManualClock
) -> None:
    wire = await closed.connect()
    await _said(wire, _GOOD)
    clock.advance(9_000)
    assert (await _said(wire, _GOOD)).error_code == ErrorCode.none
    clock.advance(9_000)  # past the end of the first login
    await wire.ask(metadata(9, "t"))
    clock.advance(1_000)
    wire.send(metadata(9, "t"))
    assert await wire.ended()


async def test_a_connection_stays_with_its_user(closed: KafkaStage) -> None:
    wire = await closed.connect()
    await _said(wire, _GOOD)
    assert (await _said(wire, b"\0bob\0bo")).error_code == ErrorCode.sasl_authentication_failed
    assert await wire.ended()


async def test_noise_before_login_affects_no_other_client(closed: KafkaStage) -> None:
    chance = random.Random(7)
    for _ in range(200):
        wire = await closed.connect()
        key = chance.choice([17, 36, *apis()])
        body = struct.pack(">hhih", key, chance.randrange(4), 1, -1) + chance.randbytes(chance.randrange(60))
        wire.send_raw(struct.pack(">i", len(body)) + body)
        wire.writer.write_eof()
        await wire.reader.read()
    wire = await closed.connect()
    assert (await _said(wire, _GOOD)).error_code == ErrorCode.none


def test_users_are_listed_with_a_password_or_its_hash() -> None:
    credential = hashed("ann", 2, "an:$,"[:3])
    parts = [
        base64.b64encode(part).decode()
        for part in (credential.salt, credential.stored_key, credential.server_key)
    ]
    text = "$".join(["SCRAM-SHA-512", str(credential.iterations), *parts])
    [parsed] = parse_users(f"ann:{text}")
    assert parsed == credential
    assert matches(parsed, "an:")
    assert not matches(parsed, "an")
    assert [one.mechanism for one in parse_users("ann:a:b")] == [1, 2]
    for wrong in ("ann", ":x", "ann:", "ann:SCRAM-SHA-512$1$x", "ann:SCRAM-SHA-256$4096$AA==$AA==$AA=="):
        with pytest.raises(InvalidConfig, match="--kafka-users"):
            parse_users(wrong)


async def test_requests_pipelined_with_a_failing_renewal_are_not_served(closed: KafkaStage) -> None:
    wire = await closed.connect()
    await _said(wire, _GOOD)
    await wire.ask(_HANDSHAKE(mechanism="PLAIN"))
    wire.send(_AUTHENTICATE(auth_bytes=b"\0ann\0wrong"))
    wire.send_raw(request_frame(metadata(9, "made", create=True), 9))
    [refused] = await wire.answers()
    assert refused.error_code == ErrorCode.sasl_authentication_failed
    assert await wire.ended()
    assert closed.broker.streams.get("made") is None
