"""Writing, reading and deleting records through the client."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

import mainstem
from mainstem.api.records import CaughtUp, TopicDeleted
from mainstem.client.responses import ConsumerRecord, Gap
from mainstem.errors import InvalidInput, OffsetOutOfRange, RecordsLost, TooLarge, TopicNotFound


@pytest.mark.parametrize(
    "value", [None, True, 17, 2.5, "text", [1, [2]], {"a": {"b": None}}, b"", b"\x00\xff", b"{}"]
)
def test_a_value_reads_back_as_it_was_written(client: mainstem.Client, topic: str, value: object) -> None:
    written = client.produce(topic, value, key="k", node="n", meta={"m": 1})
    assert (written.first_seq, written.last_seq, written.created, written.deduped) == (1, 1, True, False)
    [record] = client.read(topic)
    assert isinstance(record, ConsumerRecord)
    # Bytes that are valid JSON are stored like the JSON value.
    assert record.value == ({} if value == b"{}" else value)
    assert (record.topic, record.seq, record.offset, record.key) == (topic, 1, 0, "k")
    assert (record.node, record.meta) == ("n", {"m": 1})


def test_keys_headers_and_bytes_are_kept_byte_for_byte(client: mainstem.Client, topic: str) -> None:
    client.produce(topic, b"\xffv", key=b"\xfek", headers=[("h", b"\x00"), ("none", None)])
    [record] = client.batches(topic).records()
    assert (record.key, record.value) == (b"\xfek", b"\xffv")
    assert record.headers == (("h", b"\x00"), ("none", None))


def test_many_are_written_as_one(client: mainstem.Client, topic: str) -> None:
    written = client.produce_many(topic, [{"n": n} for n in range(2500)], keys=[str(n) for n in range(2500)])
    assert (written.first_seq, written.last_seq) == (1, 2500)
    records = list(client.read(topic))
    assert [record.value["n"] for record in records if isinstance(record, ConsumerRecord)] == [*range(2500)]
    assert len({record.timestamp_ms for record in records if isinstance(record, ConsumerRecord)}) == 1


@pytest.mark.parametrize(
    ("value", "options", "error"),
    [
        ({"x": "y" * (1 << 20)}, {}, TooLarge),
        ("v", {"key": "k" * 300}, TooLarge),
        ("v", {"key": 7}, InvalidInput),
        (object(), {}, InvalidInput),
        ("v", {"meta": "m" * 20_000}, InvalidInput),
    ],
)
def test_what_cannot_be_written_is_refused_and_makes_nothing(
    client: mainstem.Client, topic: str, value: object, options: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.produce(topic, value, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        client.produce_many(topic, [])
    with pytest.raises(TopicNotFound):
        client.topic(topic)


def test_a_repeated_idempotency_key_writes_once(client: mainstem.Client, topic: str) -> None:
    for value in (1, b"\x00"):
        first = client.produce(topic, value, idempotency_key=f"key-{value!r}")
        again = client.produce(topic, value, idempotency_key=f"key-{value!r}")
        assert (again.first_seq, again.deduped) == (first.first_seq, True)
    assert client.topic(topic).count == 2


def test_a_topic_is_not_made_where_that_is_unwanted(client: mainstem.Client, topic: str) -> None:
    for value in (1, b"\x00"):
        with pytest.raises(TopicNotFound) as refused:
            client.produce(topic, value, create=False)
        assert refused.value.topic == topic


def test_reading_goes_on_after_a_sequence_number(client: mainstem.Client, topic: str) -> None:
    client.produce_many(topic, [*range(10)])
    assert [r.value for r in client.read(topic, from_seq=7) if isinstance(r, ConsumerRecord)] == [7, 8, 9]
    assert list(client.read(topic, from_seq=10)) == []


def test_following_waits_for_what_comes(client: mainstem.Client, topic: str) -> None:
    client.produce(topic, 0)
    following = client.read(topic, follow=True)
    for number in range(5):
        record = next(following)
        assert isinstance(record, ConsumerRecord)
        assert record.value == number
        client.produce(topic, number + 1)
    following.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("on_gap", ["raise", "yield", "skip"])
def test_records_that_a_cap_took_are_told_of(client: mainstem.Client, topic: str, on_gap: str) -> None:
    client.create_topic(topic, cap_records=3)
    client.produce_many(topic, [*range(10)])
    reading = client.read(topic, on_gap=on_gap)  # type: ignore[arg-type]
    if on_gap == "raise":
        with pytest.raises(RecordsLost) as lost:
            next(reading)
        assert (lost.value.start, lost.value.end, lost.value.reason) == (0, 7, "cap")
        return
    first, *rest = reading
    if on_gap == "yield":
        assert first == Gap(topic, 1, 7, "cap", 8, 10)
        first, *rest = rest
    assert [r.value for r in (first, *rest) if isinstance(r, ConsumerRecord)] == [7, 8, 9]


def test_an_unknown_gap_policy_is_refused(client: mainstem.Client, topic: str) -> None:
    with pytest.raises(InvalidInput, match="on_gap must be one of"):
        next(client.read(topic, on_gap="ignore"))  # type: ignore[arg-type]


def test_deleted_records_leave_no_trace(client: mainstem.Client, topic: str) -> None:
    client.produce_many(topic, [*range(6)], keys=["a", "b1", "b2", "a", "c", "a"])
    assert client.delete_records(topic, match="b*").deleted == 2
    assert client.delete_records(topic, before_seq=5, match="a").deleted == 2
    assert [r.value for r in client.read(topic) if isinstance(r, ConsumerRecord)] == [4, 5]
    with pytest.raises(InvalidInput):
        client.delete_records(topic)


def test_a_node_does_not_read_its_own(client: mainstem.Client, topic: str) -> None:
    client.produce(topic, "mine", node="me")
    client.produce(topic, "yours", node="you")
    assert [r.value for r in client.read(topic, node="me") if isinstance(r, ConsumerRecord)] == ["yours"]


def test_partitions_are_written_and_read_apart(client: mainstem.Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    client.produce(topic, "one", partition=1)
    client.produce(topic, b"raw", partition=1)
    assert list(client.read(topic, partition=0)) == []
    found = [r for r in client.read(topic, partition=1) if isinstance(r, ConsumerRecord)]
    assert [(r.value, r.partition) for r in found] == [("one", 1), (b"raw", 1)]


def test_columns_of_a_topic(client: mainstem.Client, topic: str) -> None:
    client.produce_many(topic, [{"n": n} for n in range(3000)], keys=["k"] * 3000)
    table = client.read_arrow(topic)
    assert table.column_names == ["offset", "timestamp", "key", "value", "headers"]
    assert table["offset"].to_pylist() == [*range(3000)]
    assert table["value"][7].as_py() == b'{"n":7}'
    part = client.read_arrow(topic, from_seq=1500, limit=10)
    assert part["offset"].to_pylist() == [*range(1500, 1510)]
    assert list(part.to_pandas()["key"]) == [b"k"] * 10
    assert client.read_arrow(topic, from_seq=3000).num_rows == 0


def test_columns_begin_at_the_oldest_record_unless_told_where(client: mainstem.Client, topic: str) -> None:
    client.produce_many(topic, [*range(10)])
    client.delete_records(topic, before_seq=5)
    assert client.read_arrow(topic)["value"].to_pylist() == [b"4", b"5", b"6", b"7", b"8", b"9"]
    with pytest.raises(OffsetOutOfRange):
        client.read_arrow(topic, from_seq=99)


def test_polars_is_asked_for_only_where_it_is_wanted(
    client: mainstem.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.produce(topic, 1)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InvalidInput, match="pip install polars"):
        client.read_polars(topic)
    handed = SimpleNamespace(from_arrow=lambda table: ("a frame of", table.num_rows))
    monkeypatch.setitem(sys.modules, "polars", handed)  # type: ignore[arg-type]
    assert client.read_polars(topic) == ("a frame of", 1)


def test_batches_are_found_by_time(client: mainstem.Client, topic: str) -> None:
    with client.producer(topic) as producer:
        for time in (1000, 2000, 3000):
            producer.send(b"at %d" % time, timestamp_ms=time)
    page = client.batches(topic, timestamp_ms=1500)
    assert [record.value for record in page.records()] == [b"at 2000", b"at 3000"]
    assert (page.offset, page.next_offset, page.start, page.end, page.at_end) == (1, 3, 0, 3, True)


def test_watching_several_topics(client: mainstem.Client, new_name: Callable[[], str]) -> None:
    old, new = new_name(), new_name()
    client.produce_many(old, [1, 2])
    client.produce(new, "before")
    watching = client.watch({old: 1, new: "tail"})
    events = [next(watching), next(watching), next(watching)]
    assert [event.value for event in events if isinstance(event, ConsumerRecord)] == [2]
    assert {event.topic for event in events if isinstance(event, CaughtUp)} == {old, new}
    client.produce(new, "after", key="k")
    event = next(watching)
    assert isinstance(event, ConsumerRecord)
    assert (event.topic, event.value, event.key) == (new, "after", "k")
    client.delete_topic(old)
    assert next(watching) == TopicDeleted(old)
    client.delete_topic(new)
    assert list(watching) == [TopicDeleted(new)]


def test_a_watch_tells_of_gaps_or_raises(client: mainstem.Client, topic: str) -> None:
    client.create_topic(topic, cap_records=2)
    client.produce_many(topic, [*range(5)])
    watching = client.watch({topic: 0})
    assert next(watching) == Gap(topic, 1, 3, "from_seq_too_old", 4, 5)
    watching.close()  # type: ignore[attr-defined]
    with pytest.raises(RecordsLost):
        next(client.watch({topic: 0}, on_gap="raise"))


def test_watching_what_is_not_there(client: mainstem.Client, topic: str) -> None:
    with pytest.raises(TopicNotFound):
        next(client.watch({topic: 0}))
    with pytest.raises(InvalidInput):
        next(client.watch({}))


async def test_the_asynchronous_client_has_the_same_surface(
    async_client: mainstem.AsyncClient, topic: str
) -> None:
    public = {name for name in dir(mainstem.AsyncClient) if not name.startswith("_")}
    inner = {"pages", "frames"}  # of the command line
    assert {name for name in dir(mainstem.Client) if not name.startswith("_")} == public - inner
    await async_client.produce_many(topic, [1, 2])
    assert [r.value async for r in async_client.read(topic) if isinstance(r, ConsumerRecord)] == [1, 2]
    async with async_client.producer(topic) as producer:
        delivery = await producer.send(3)
        assert (await delivery).seq == 3
    async for event in async_client.watch({topic: 2}):
        assert isinstance(event, ConsumerRecord)
        assert event.value == 3
        break
    for name in public - inner - {"url", "close"}:
        assert "client." in (getattr(mainstem.Client, name).__doc__ or ""), f"{name} has no example"
