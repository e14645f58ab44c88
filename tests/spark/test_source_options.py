"""Options of the source, without Spark or a broker."""

from __future__ import annotations

import pytest

from mainstem.errors import InvalidInput
from mainstem.spark.source.options import OffsetBound, SourceOptions


def batch(**options: str) -> SourceOptions:
    return SourceOptions.parse({"subscribe": "t", **options}, streaming=False)


def stream(**options: str) -> SourceOptions:
    return SourceOptions.parse({"subscribe": "t", **options}, streaming=True)


def test_defaults_are_those_of_the_kafka_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAINSTEM_URL", raising=False)
    options = batch()
    assert (options.starting, options.ending) == (OffsetBound("earliest"), OffsetBound("latest"))
    assert stream().starting == OffsetBound("latest")
    assert options.url == "http://127.0.0.1:4000"
    assert options.fail_on_data_loss
    assert options.committed_only
    assert not options.headers
    assert options.group == ""


def test_the_url_and_key_come_from_the_environment_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTEM_URL", "http://env:1")
    monkeypatch.setenv("MAINSTEM_API_KEY", "secret")
    assert (batch().url, batch().api_key) == ("http://env:1", "secret")
    assert batch(url="http://given:2", apiKey="other").url == "http://given:2"


def test_names_of_options_are_matched_whatever_their_case() -> None:
    options = SourceOptions.parse({"SUBSCRIBE": "a, b,a", "INCLUDEHEADERS": "True"}, streaming=False)
    assert options.topics == ("a", "b")
    assert options.headers


def test_topics_are_named_by_pattern_by_partition_or_by_path() -> None:
    assert SourceOptions.parse({"subscribePattern": "a.*"}, streaming=False).pattern == "a.*"
    assert SourceOptions.parse({"path": "orders"}, streaming=False).topics == ("orders",)
    assigned = SourceOptions.parse({"assign": '{"a":[1,0,1]}'}, streaming=False)
    assert assigned.assigned == {"a": (0, 1)}


def test_a_time_for_all_beats_times_by_partition_and_those_beat_offsets() -> None:
    offsets, times = '{"t":{"0":-2,"1":7}}', '{"t":{"0":5}}'
    assert batch(startingOffsets=offsets).starting == OffsetBound(
        "offsets", by_partition={"t": {0: -2, 1: 7}}
    )
    both = batch(startingOffsets=offsets, startingOffsetsByTimestamp=times)
    assert both.starting == OffsetBound("times", by_partition={"t": {0: 5}})
    assert batch(startingOffsetsByTimestamp=times, startingTimestamp="9").starting == OffsetBound("time", 9)
    assert batch(endingTimestamp="9").ending == OffsetBound("time", 9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "exactly one of"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "exactly one of"),
        ({"subscribe": " , "}, "subscribe has no topic"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"assign": "a"}, "assign must be JSON"),
        ({"assign": '{"a":[]}'}, "partition numbers from 0 on"),
        ({"assign": '{"a":[-1]}'}, "partition numbers from 0 on"),
        ({"subscribe": "a", "startingOffsets": "middle"}, "startingOffsets must be JSON"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "invalid position -3"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "cannot start at the latest"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-1}}'}, "cannot start at the latest"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"subscribe": "a", "startingTimestamp": "x"}, "whole number"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, "true or false"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "0"}, "1 or more"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "must not be greater"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "a duration such as"),
        ({"subscribe": "a", "isolation": "none"}, "read_committed or read_uncommitted"),
        ({"subscribe": "a", "valueFormat": "xml"}, "raw, json, avro or protobuf"),
        ({"subscribe": "a", "startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "a", "kafka.bootstrap.servers": "x"}, "option url"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        SourceOptions.parse(options, streaming=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(InvalidInput, match="a stream has no end"):
        stream(endingOffsets='{"t":{"0":5}}')


def test_times_have_units() -> None:
    for text, expected in (("500ms", 500), ("2s", 2_000), ("15m", 900_000), ("1h", 3_600_000), ("7", 7)):
        assert stream(maxTriggerDelay=text).max_trigger_delay_ms == expected
