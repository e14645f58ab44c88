"""The store in a bucket: retries within a budget, errors that say what to do, URLs that keep their secrets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore import exceptions
from obstore.store import MemoryStore

from mainstem.errors import InvalidConfig, NotFound, StoreRefused, StoreUnreachable
from mainstem.ports.objectstore import bucket as bucket_module
from mainstem.ports.objectstore.bucket import BucketObjectStore, Retries, RetryBudget, coalesced
from mainstem.ports.objectstore.failures import explained
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.ports.objectstore.open import open_store, redacted_url
from mainstem.testing.ports import kept_ports
from tests.support.clock import ManualClock
from tests.support.s3 import S3Server


class SameToken:
    def __init__(self, byte: int) -> None:
        self._byte = byte

    def token(self, size: int) -> bytes:
        return bytes([self._byte]) * size


def retries(
    pauses: list[float], *, attempts: int = 5, trying_s: float = 100.0, jitter: int = 0
) -> tuple[Retries, ManualClock]:
    clock = ManualClock()

    async def wait(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(int(seconds * 1000))

    budget = RetryBudget(attempts=attempts, trying_s=trying_s, backoff_s=1.0, backoff_max_s=4.0)
    return Retries(budget, clock, SameToken(jitter), wait), clock


def failing(times: int, answer: str = "answer") -> Callable[[], Awaitable[str]]:
    left = times

    async def call() -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            raise StoreUnreachable("down")
        return answer

    return call


async def test_a_request_is_tried_again_after_pauses_that_double() -> None:
    pauses: list[float] = []
    assert await retries(pauses)[0].run(failing(4)) == "answer"
    assert pauses == [1.0, 2.0, 4.0, 4.0]


async def test_pauses_are_shortened_at_random_by_up_to_half() -> None:
    pauses: list[float] = []
    assert await retries(pauses, jitter=255)[0].run(failing(1)) == "answer"
    assert pauses == [pytest.approx(0.5)]


async def test_the_number_of_attempts_is_bounded() -> None:
    pauses: list[float] = []
    with pytest.raises(StoreUnreachable):
        await retries(pauses)[0].run(failing(5))
    assert len(pauses) == 4


async def test_the_time_spent_trying_is_bounded() -> None:
    pauses: list[float] = []
    with pytest.raises(StoreUnreachable):
        await retries(pauses, trying_s=3.5)[0].run(failing(50))
    assert pauses == [1.0, 2.0]


async def test_what_will_not_change_is_not_tried_again() -> None:
    pauses: list[float] = []

    async def call() -> None:
        raise StoreRefused("no")

    with pytest.raises(StoreRefused):
        await retries(pauses)[0].run(call)
    assert pauses == []


@settings(max_examples=100, deadline=None)
@given(
    ranges=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)), max_size=12),
    gap=st.integers(0, 30),
    size=st.integers(1, 120),
)
def test_every_range_lies_in_the_one_request_that_answers_it(
    ranges: list[tuple[int, int]], gap: int, size: int
) -> None:
    spans = coalesced(ranges, gap=gap, size=size)
    answered = [number for span in spans for number in span.answers]
    assert sorted(answered) == [number for number, (_, length) in enumerate(ranges) if length]
    for span in spans:
        assert span.end - span.start <= max(size, *(ranges[number][1] for number in span.answers))
        for number in span.answers:
            start, length = ranges[number]
            assert span.start <= start
            assert start + length <= span.end


def test_close_ranges_are_one_request_and_far_ones_are_not() -> None:
    assert len(coalesced([(0, 10), (15, 10), (100, 10)], gap=5, size=1000)) == 2
    assert coalesced([], gap=5, size=10) == coalesced([(3, 0)], gap=5, size=10) == []


async def test_ranges_of_a_real_object_take_few_requests(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await new_store(s3_server)
    content = os.urandom(3_000_000)
    await store.put("key", content)
    requests = 0
    fetch = bucket_module.obstore.get_range_async

    async def counted(*args: Any, **named: Any) -> Any:
        nonlocal requests
        requests += 1
        return await fetch(*args, **named)

    monkeypatch.setattr(bucket_module.obstore, "get_range_async", counted)
    asked = [(n * 100_000, 1000) for n in range(20)] + [(2_999_990, 100), (5_000_000, 5)]
    assert await store.get_ranges("key", asked) == [content[start : start + size] for start, size in asked]
    assert requests == 3


async def test_requests_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = BucketObjectStore(MemoryStore(), "s3://bounded", requests_max=3)
    running = most = 0
    put = bucket_module.obstore.put_async

    async def counted(*args: Any, **named: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await put(*args, **named)
        finally:
            running -= 1

    monkeypatch.setattr(bucket_module.obstore, "put_async", counted)
    await asyncio.gather(*(bounded.put(f"key{n}", b"x") for n in range(20)))
    assert most == 3


async def new_store(server: S3Server, **options: str) -> BucketObjectStore:
    await asyncio.to_thread(server.make_bucket, "store-tests")
    url = server.url("store-tests", os.urandom(4).hex(), **options)
    store = open_store(url, retries=retries([], attempts=2)[0])
    assert isinstance(store, BucketObjectStore)
    return store


async def test_wrong_credentials_are_named_and_not_shown(s3_server: S3Server) -> None:
    store = await new_store(s3_server, secret_access_key="very-secret-guess")
    with pytest.raises(
        StoreRefused, match=r"s3://store-.*/some/key.*SignatureDoesNotMatch.*credentials"
    ) as raised:
        await store.put("some/key", b"x")
    assert "very-secret-guess" not in repr(raised.value)
    assert raised.value.__cause__ is raised.value.__context__ is None  # nor in what a traceback would print
    with pytest.raises(StoreRefused, match="credentials"):
        await store.get("some/key")
    with pytest.raises(StoreRefused, match="credentials"):
        _ = [one async for one in store.list()]


async def test_credentials_come_from_the_environment(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(s3_server.make_bucket, "from-environment")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_access_key)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    store = open_store(f"s3://from-environment/here?endpoint={s3_server.endpoint}")
    await store.put("key", b"content")
    assert await store.get("key") == b"content"


async def test_a_missing_bucket_is_named(s3_server: S3Server) -> None:
    store = open_store(s3_server.url("no-such-bucket-here"))
    for call in (store.get("key"), store.get_ranges("key", [(0, 1)]), store.delete("key")):
        with pytest.raises(StoreRefused, match=r"s3://no-such-bucket-here.*the bucket does not exist"):
            await call
    with pytest.raises(StoreRefused, match="the bucket does not exist"):
        _ = [one async for one in store.list()]


async def test_an_endpoint_that_does_not_answer_is_named() -> None:
    (port,) = kept_ports(1)
    pauses: list[float] = []
    url = f"s3://bucket?endpoint=http://127.0.0.1:{port}&access_key_id=a&secret_access_key=b"
    store = open_store(url, retries=retries(pauses, attempts=3)[0])
    with pytest.raises(StoreUnreachable, match=r"s3://bucket/key: no connection.*endpoint"):
        await store.put("key", b"x")
    assert len(pauses) == 2


async def test_a_put_if_absent_whose_answer_was_lost_is_settled_by_reading(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await new_store(s3_server)
    put = bucket_module.obstore.put_async
    lost = 0

    async def lose_first(*args: Any, **named: Any) -> Any:
        nonlocal lost
        answer = await put(*args, **named)
        lost += 1
        if lost % 2:
            raise exceptions.GenericError("HTTP error: TimedOut")
        return answer

    monkeypatch.setattr(bucket_module.obstore, "put_async", lose_first)
    assert await store.put("ours", b"ours", if_absent=True)
    monkeypatch.setattr(bucket_module.obstore, "put_async", put)
    await store.put("theirs", b"theirs")

    async def fail_first(*args: Any, **named: Any) -> Any:
        nonlocal lost
        lost += 1
        if lost == 2:
            raise exceptions.GenericError("HTTP error: TimedOut")
        return await put(*args, **named)

    lost = 1
    monkeypatch.setattr(bucket_module.obstore, "put_async", fail_first)
    assert not await store.put("theirs", b"ours", if_absent=True)
    assert await store.get("theirs") == b"theirs"


async def test_two_replacing_puts_that_meet_in_the_store_are_tried_again(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await new_store(s3_server)
    put = bucket_module.obstore.put_async
    met = 0

    async def meet_once(*args: Any, **named: Any) -> Any:
        nonlocal met
        met += 1
        if met == 1:
            raise exceptions.AlreadyExistsError("status code: 409 <Code>ConditionalRequestConflict</Code>")
        return await put(*args, **named)

    monkeypatch.setattr(bucket_module.obstore, "put_async", meet_once)
    assert await store.put("key", b"content")
    assert (met, await store.get("key")) == (2, b"content")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            exceptions.GenericError("status code: 503 Slow Down <Code>SlowDown</Code>"),
            StoreUnreachable,
            "503 SlowDown",
        ),
        (exceptions.GenericError("status code: 429 Too Many"), StoreUnreachable, "429"),
        (exceptions.GenericError("status code: 400 <Code>InvalidRequest</Code>"), StoreRefused, "400"),
        (exceptions.GenericError("status code: 400 <Code>RequestTimeout</Code>"), StoreUnreachable, "400"),
        (exceptions.GenericError("status code: 400 <Code>ExpiredToken</Code>"), StoreRefused, "credentials"),
        (
            exceptions.PermissionDeniedError("status code: 403 <Code>RequestTimeTooSkewed</Code>"),
            StoreRefused,
            "clock",
        ),
        (exceptions.GenericError("kind: Timeout TimedOut"), StoreUnreachable, "no answer in time"),
        (
            exceptions.GenericError("http://169.254.169.254/latest/api/token timed"),
            StoreRefused,
            "no credentials",
        ),
        (exceptions.UnauthenticatedError("who"), StoreRefused, "credentials"),
        (exceptions.GenericError("failed for key k: no (code: AccessDenied)"), StoreRefused, "credentials"),
        (exceptions.GenericError("failed for key k: later (code: SlowDown)"), StoreUnreachable, "SlowDown"),
        (exceptions.GenericError("failed for key k: no (code: InvalidTag)"), StoreRefused, "InvalidTag"),
        (FileNotFoundError("no"), NotFound, "no object name"),
    ],
)
def test_errors_of_the_library_become_ones_to_act_on(
    error: Exception, kind: type[Exception], words: str
) -> None:
    found = explained(error, "name")
    assert isinstance(found, kind)
    assert words in str(found)


def test_a_signed_url_in_the_librarys_error_is_not_passed_on() -> None:
    error = exceptions.GenericError(
        "Error performing GET https://a.blob/x?sig=SECRET - status code: 500 oops"
    )
    assert "SECRET" not in str(explained(error, "az://c/x"))


def test_secrets_are_left_out_of_a_shown_url() -> None:
    url = "s3://user:pw@bucket/pre?endpoint=http://h:1&secret_access_key=S1&access_key_id=S2&session_token=S3"
    assert redacted_url(url) == (
        "s3://bucket/pre?endpoint=http://h:1&secret_access_key=***&access_key_id=***&session_token=***"
    )


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///key",
        "s3://user:pw@bucket",
        "ftp://host/path",
        "s3://bucket?no_such=1",
        "s3://bucket?endpoint=",
        "s3://bucket?endpoint=a&endpoint=b",
        "s3://bucket?skip_signature=maybe",
        "gs://bucket?skip_signature=true",
        "file://host/path",
        "file:",
        "",
    ],
)
def test_urls_that_name_no_store_are_refused(url: str) -> None:
    with pytest.raises(InvalidConfig):
        open_store(url)


def test_an_unknown_option_does_not_give_its_value_away() -> None:
    with pytest.raises(InvalidConfig) as raised:
        open_store("s3://bucket?secret_acess_key=hunter2")
    assert "hunter2" not in str(raised.value)
    assert "secret_access_key" in str(raised.value)


async def test_a_file_url_and_a_path_are_local_folders(tmp_path: Path) -> None:
    spaced = tmp_path / "with space"
    for url in (f"file://{tmp_path}/with%20space", str(spaced)):
        store = open_store(url)
        assert isinstance(store, LocalObjectStore)
        await store.put("key", url.encode())
        assert (spaced / "key").read_bytes() == url.encode()


@pytest.mark.parametrize(
    "url", ["gs://bucket/pre?endpoint=http://127.0.0.1:1", "az://box/pre?account_name=a&account_key=a2V5"]
)
def test_other_vendors_buckets_open_by_url(url: str) -> None:
    store = open_store(url)
    assert isinstance(store, BucketObjectStore)
    assert store.name == url.partition("?")[0]
