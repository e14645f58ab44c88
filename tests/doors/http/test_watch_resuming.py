"""Resuming a watch session, reading it slowly, and its end."""

from __future__ import annotations

import base64

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainstem.doors.http.live.watch import _resume_at

from .conftest import Api, code
from .watching import EventStream, event_id, numbers, session, watch

# Resuming


async def test_a_session_resumes_where_it_stopped(api: Api) -> None:
    await api.write("a", 1, 2)
    url = (await session(api, "a"))["stream_url"]
    async with EventStream(api.context, url) as stream:
        await stream.events(2)
    await api.write("a", 3)
    async with EventStream(api.context, url) as stream:
        record, caught_up = await stream.events(2)
        assert (numbers(record), caught_up.name) == ([3], "caught-up")


async def test_a_session_resumes_after_a_shared_page(api: Api) -> None:
    await api.write("a", 1)
    url = (await session(api, "a"))["stream_url"]
    async with EventStream(api.context, url) as stream, EventStream(api.context, url) as other:
        for each in (stream, other):
            await each.until("caught-up")
        await api.write("a", 2)
        for each in (stream, other):
            (record,) = await each.events(1)
            assert (numbers(record), record.cursors) == ([2], {"a": 2})
    await api.write("a", 3)
    async with EventStream(api.context, url) as stream:
        record, caught_up = await stream.events(2)
        assert (numbers(record), caught_up.name) == ([3], "caught-up")


async def test_an_event_id_rewinds_and_never_goes_ahead(api: Api) -> None:
    await api.write("a", 1, 2, 3)
    await api.write("b", 1, 2, 3)
    url = (await session(api, "a", "b"))["stream_url"]
    async with EventStream(api.context, url) as stream:
        await stream.events(4)
    resumed = event_id({"a": 1, "b": 99, "unknown": 0})
    async with EventStream(api.context, url, last_event_id=resumed) as stream:
        events = await stream.events(3)
        records = [event for event in events if event.name == "record"]
        assert [(event.data["topic"], numbers(event)) for event in records] == [("a", [2, 3])]


@pytest.mark.parametrize(
    "event_id",
    [
        "",
        "!!!",
        "bm90IGpzb24",
        base64.urlsafe_b64encode(b'{"a":-1}').decode(),
        base64.urlsafe_b64encode(b'{"a":"0"}').decode(),
        base64.urlsafe_b64encode(b'["a"]').decode(),
        base64.urlsafe_b64encode(b'{"a":0.5}').decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
        base64.urlsafe_b64encode(b"[" * 5000).decode(),
        "A" * 60_000,
    ],
)
async def test_an_event_id_that_cannot_be_read_is_ignored(api: Api, event_id: str) -> None:
    await api.write("a", 1, 2)
    url = (await session(api, topics={"a": {"from_seq": 1}}))["stream_url"]
    async with EventStream(api.context, url, last_event_id=event_id) as stream:
        assert numbers((await stream.events(2))[0]) == [2]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(lambda text: text.encode())))
def test_no_event_id_causes_an_error(raw: bytes) -> None:
    for given_id in (raw, base64.urlsafe_b64encode(raw), base64.urlsafe_b64encode(raw).rstrip(b"=")):
        cursors = _resume_at(given_id)
        assert all(isinstance(name, str) and cursor >= 0 for name, cursor in cursors.items())


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=20), st.integers(0, 2**63), max_size=5))
def test_every_map_of_cursors_round_trips(cursors: dict[str, int]) -> None:
    assert _resume_at(event_id(cursors).encode()) == cursors


async def test_two_connections_of_a_session_each_get_everything(api: Api) -> None:
    await api.put("a")
    url = (await session(api, "a"))["stream_url"]
    async with EventStream(api.context, url) as one, EventStream(api.context, url) as two:
        await one.events(1), await two.events(1)
        await api.write("a", 1)
        assert numbers((await one.events(1))[0]) == numbers((await two.events(1))[0]) == [1]


# Slow readers, and the end


async def test_a_reader_that_stops_delays_nobody_and_costs_one_frame(api: Api) -> None:
    await api.put("a")
    async with await watch(api, "a", limit=10) as slow, await watch(api, "a", limit=10) as fast:
        await slow.events(1), await fast.events(1)
        slow.reading.clear()
        got: list[int] = []
        for number in range(50):
            await api.write("a", number)
            while len(got) <= number:
                got += numbers((await fast.events(1))[0])
        assert got == list(range(1, 51))
        assert slow.blocked == 1
        slow.reading.set()
        late: list[int] = []
        while len(late) < 50:
            late += [
                seq for event in await slow.events(1) if event.name == "record" for seq in numbers(event)
            ]
        assert late == list(range(1, 51))


async def test_shutdown_is_announced_before_the_stream_ends(api: Api) -> None:
    await api.put("a")
    async with await watch(api, "a") as stream:
        await stream.events(1)
        api.context.stopping.set()
        await api.context.live.shut_down()
        (event,) = await stream.events(1)
        assert (event.name, event.data["code"]) == ("error", "server_shutting_down")
        await stream.ended()
        assert stream.complete
    url = (await session(api, "a"))["stream_url"]
    assert code(await api.ask("GET", url)) == (503, "shutting_down")


async def test_ended_streams_leave_nothing_behind(api: Api) -> None:
    await api.put("a")
    for _ in range(3):
        async with await watch(api, "a") as stream:
            await stream.events(1)
    assert api.context.streams == 0
    assert api.broker.watching.places == 0
    assert not api.context.live.open
