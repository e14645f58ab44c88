"""Requests: retries, their limits, errors off the wire, hostile answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import mainstem
from mainstem import errors
from mainstem.client.sse import Event, EventParser
from mainstem.testing.broker import throw_away_broker
from tests.support.certificates import make_self_signed

from .answering import AnsweringServer, Asked, Said

_HEALTH = b'{"status":"ok","version":"9","uptime_ms":1}'


def _refusal(code: str, detail: object = None) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": "so", "detail": detail}})


def _in_turn(*said: Said) -> Callable[[Asked], Said]:
    left = list(said)
    return lambda asked: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_when_it_says(status: int) -> None:
    busy = Said(status, _refusal("throttled" if status == 429 else "not_ready"), (("retry-after", "1"),))
    with AnsweringServer(_in_turn(busy, Said(200, _HEALTH))) as server, mainstem.Client(server.url) as client:
        began = time.monotonic()
        assert client.health().version == "9"
        assert time.monotonic() - began >= 1.0
        assert len(server.asked) == 2


def test_retries_end_with_the_time_that_was_given() -> None:
    busy = Said(429, _refusal("throttled", {"limit": "max_topics", "max": 7}))
    with AnsweringServer(_in_turn(busy)) as server:
        with mainstem.Client(server.url, timeout=2) as client:
            began = time.monotonic()
            with pytest.raises(errors.Throttled) as refused:
                client.health()
            assert time.monotonic() - began < 20  # for ever, if they did not
        assert (refused.value.limit, refused.value.bound) == ("max_topics", 7)
        assert 2 < len(server.asked) < 20
        server.asked.clear()
        with mainstem.Client(server.url, retries=False) as client, pytest.raises(errors.Throttled):
            client.health()
        assert len(server.asked) == 1


def test_a_wait_longer_than_the_time_left_is_not_begun() -> None:
    busy = Said(503, _refusal("shutting_down"), (("retry-after", "600"),))
    with AnsweringServer(_in_turn(busy)) as server, mainstem.Client(server.url, timeout=60) as client:
        began = time.monotonic()
        with pytest.raises(errors.Unavailable):
            client.health()
        assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("status", "code", "detail", "kind"),
    [
        (400, "invalid_request", None, errors.InvalidInput),
        (400, "batch_too_large", None, errors.TooLarge),
        (401, "unauthorized", None, errors.Unauthorized),
        (403, "forbidden", {"topic": "t"}, errors.Forbidden),
        (404, "topic_not_found", {"topic": "t"}, errors.TopicNotFound),
        (404, "topic_not_found", {"topic": "t", "partition": 3}, errors.NotFound),
        (404, "router_not_found", {"router": "r"}, errors.RouterNotFound),
        (409, "topic_exists_incompatible", {"topic": "t"}, errors.TopicExists),
        (409, "topic_exists_incompatible", {"topic": "t", "reason": "x"}, errors.TopicIncompatible),
        (409, "topic_not_empty", {"topic": "t", "count": 3}, errors.TopicNotEmpty),
        (409, "not_a_queue", {"topic": "t"}, errors.NotAQueue),
        (409, "group_not_empty", {"group": "g"}, errors.GroupNotEmpty),
        (409, "router_cycle", {"cycle": ["a", "b", "a"]}, errors.RouterCycle),
        (413, "payload_too_large", None, errors.TooLarge),
        (422, "topic_full", {}, errors.TopicFull),
        (500, "internal", None, errors.ServerFault),
        (501, "not_installed", None, errors.PackageMissing),
        (418, "of_a_newer_server", None, errors.ServerFault),
    ],
)
def test_every_code_is_an_error_of_the_tree_and_not_retried(
    status: int, code: str, detail: object, kind: type[Exception]
) -> None:
    answer = _in_turn(Said(status, _refusal(code, detail)))
    with AnsweringServer(answer) as server, mainstem.Client(server.url) as client:
        with pytest.raises(kind):
            client.health()
        assert len(server.asked) == 1


@pytest.mark.parametrize("detail", [None, 7, [], {"topic": 3, "count": "many", "max": None}, "text"])
def test_details_of_another_shape_break_nothing(detail: object) -> None:
    for code in (
        "topic_not_found",
        "topic_exists_incompatible",
        "topic_not_empty",
        "throttled",
        "records_lost",
    ):
        with (
            AnsweringServer(_in_turn(Said(400, _refusal(code, detail)))) as server,
            mainstem.Client(server.url, retries=False) as client,
            pytest.raises(errors.MainstemError),
        ):
            client.health()


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"status":5}', b"\xff", b"[" * 5000])
def test_answers_that_are_no_answers_are_the_servers_fault(body: bytes) -> None:
    for status in (200, 404):
        with (
            AnsweringServer(_in_turn(Said(status, body))) as server,
            mainstem.Client(server.url, retries=False) as client,
            pytest.raises(errors.ServerFault),
        ):
            client.health()


def test_nobody_listening_names_the_url() -> None:
    with mainstem.Client("http://127.0.0.1:9", retries=False) as client:
        with pytest.raises(errors.Unreachable, match=r"http://127\.0\.0\.1:9") as refused:
            client.health()
        assert refused.value.url == "http://127.0.0.1:9"


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with mainstem.Client(url, timeout=0.5) as client:
            began = time.monotonic()
            with pytest.raises(errors.Unreachable):
                client.health()
            assert time.monotonic() - began < 20


@pytest.mark.parametrize("url", ["127.0.0.1:4000", "ftp://x", "http://", "http:///", "nonsense"])
def test_what_is_no_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(errors.InvalidInput, match="begins with http"):
        mainstem.Client(url)


def test_the_url_and_the_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with AnsweringServer(_in_turn(Said(200, _HEALTH))) as server:
        monkeypatch.setenv("MAINSTEM_URL", server.url + "/")
        monkeypatch.setenv("MAINSTEM_API_KEY", "from-environment")
        with mainstem.Client() as client:
            client.health()
        with mainstem.Client(server.url, api_key="given") as client:
            client.health()
        assert [asked.headers["authorization"] for asked in server.asked] == [
            "Bearer from-environment",
            "Bearer given",
        ]


def test_keys_and_their_scopes() -> None:
    with throw_away_broker("--api-keys", "all,reader:r,team:rw:a.") as broker:
        with mainstem.Client(broker.url, retries=False) as nobody, pytest.raises(errors.Unauthorized):
            nobody.topics()
        with mainstem.Client(broker.url, api_key="all") as client:
            client.create_topic("a.x")
            client.create_topic("b.x")
            client.commit_offsets("g", "b.x", {0: 0})
            assert [row.group for row in client.groups()] == ["g"]
        with mainstem.Client(broker.url, api_key="reader") as client:
            assert len(client.topics()) == 2
            assert client.group("g").lag == 0
            for refused in (
                lambda: client.produce("a.x", 1),
                lambda: client.produce("a.x", b"1"),
                lambda: client.create_topic("c"),
                lambda: client.reset_group("g", "b.x"),
                lambda: client.delete_group("g"),
            ):
                with pytest.raises(errors.Forbidden):
                    refused()
        with mainstem.Client(broker.url, api_key="team") as client:
            client.produce("a.x", b"1")
            assert [row.topic for row in client.topics()] == ["a.x"]
            assert client.groups() == []
            with pytest.raises(errors.GroupNotFound):
                client.group("g")
            for path in (client.topic, client.topic_settings, client.batches):
                with pytest.raises(errors.Forbidden):
                    path("b.x")


def test_calls_after_close_are_refused() -> None:
    client = mainstem.Client("http://127.0.0.1:9")
    client.close()
    client.close()
    with pytest.raises(errors.Closed):
        client.health()


def test_many_threads_share_a_client(client: mainstem.Client, topic: str) -> None:
    threads = [
        threading.Thread(target=lambda: [client.produce(topic, 1) for _ in range(20)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.topic(topic).count == 160


@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_events_are_whole_however_their_bytes_arrive(step: int) -> None:
    stream = b'retry: 2000\n\n: hb 1\n\nid: x\nevent: record\ndata: {"a":1}\n\nevent: job\ndata:1\ndata: 2\n\nid: y'
    frames = EventParser()
    found = [event for at in range(0, len(stream), step) for event in frames.feed(stream[at : at + step])]
    assert found == [Event("record", b'{"a":1}', "x"), Event("job", b"1\n2", "")]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with cert.pem and key.pem, which signed itself."""
    return make_self_signed(tmp_path_factory.mktemp("tls"))


def test_tls_with_an_authority_of_ones_own(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = str(certificate / "cert.pem"), str(certificate / "key.pem")
    with throw_away_broker("--tls-cert", cert, "--tls-key", key, "--tls-ca", cert) as broker:
        url = broker.url.replace("http:", "https:")
        with mainstem.Client(url, retries=False) as client, pytest.raises(errors.Unreachable):
            client.health()
        context = ssl.create_default_context(cafile=cert)
        context.load_cert_chain(cert, key)
        with mainstem.Client(url, verify=context) as client:
            client.produce("t", 1)
            assert [event.topic for event, _ in zip(client.watch({"t": 0}), range(1), strict=False)] == ["t"]
    with throw_away_broker("--tls-cert", cert, "--tls-key", key) as broker:
        url = broker.url.replace("http:", "https:")
        for verify in (cert, False):
            with mainstem.Client(url, verify=verify, retries=False) as client:
                assert client.health().status == "ok"
        monkeypatch.setenv("SSL_CERT_FILE", cert)
        with mainstem.Client(url, retries=False) as client:
            assert client.health().status == "ok"
    with (
        mainstem.Client(url, verify="no-such-file", retries=False) as client,
        pytest.raises(errors.InvalidInput, match="no-such-file"),
    ):
        client.health()


async def test_a_cancelled_call_leaves_the_client_usable(
    async_client: mainstem.AsyncClient, topic: str
) -> None:
    await async_client.produce(topic, 1)
    waiting = asyncio.create_task(anext(async_client.read(topic, from_seq=1, follow=True)))
    for _ in range(10):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await async_client.topic(topic)).count == 1
