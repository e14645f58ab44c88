"""Producing and consuming from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mainstem

from .conftest import Shell


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    shell: Shell = request.getfixturevalue("either" if "either" in request.fixturenames else "shell")
    assert shell("topic", "create", "t").code == 0
    return "t"


def test_values_from_arguments(either: Shell, topic: str) -> None:
    outcome = either("produce", topic, "one", "two words", "")
    assert (outcome.code, outcome.out, outcome.err) == (0, b"", "3 records appended to t\n")
    assert either("consume", topic).out == b"one\ntwo words\n\n"


def test_lines_from_standard_input(either: Shell, topic: str) -> None:
    assert either("produce", topic, stdin=b"one\n\ntwo\r\nlast without end").code == 0
    assert either("consume", topic, "-f", "%o=%s;").out == b"0=one;1=;2=two\r;3=last without end;"


def test_nothing_in_means_nothing_appended(either: Shell, topic: str) -> None:
    assert either("produce", topic, stdin=b"").err == "0 records appended to t\n"


def test_many_lines_come_out_as_they_went_in(either: Shell, topic: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(50_000))
    assert either("produce", topic, stdin=lines).err == "50,000 records appended to t\n"
    assert either("consume", topic).out == lines


def test_keys_by_delimiter_or_for_all(either: Shell, topic: str) -> None:
    either("produce", topic, "-K", ": ", stdin=b"a: 1\nb: 2: 3\n: 4\n")
    either("produce", topic, "-k", "all", "5")
    assert either("consume", topic, "-f", r"%k|%s\n").out == b"a|1\nb|2: 3\n|4\nall|5\n"
    wrong = either("produce", topic, "-K", ":", stdin=b"x:1\ny\nz:3\n")
    assert wrong.code == 1
    assert (
        wrong.err
        == "error: line 2: the key delimiter ':' is missing; the 1 records before it were appended\n"
    )
    assert either("consume", topic, "-o", "4", "-f", "%s").out == b"1"


def test_json_lines_go_there_and_back(either: Shell, topic: str) -> None:
    lines = [
        {"value": "text", "key": "k", "timestamp_ms": 1234},
        {"value": None, "key": None, "timestamp_ms": 5},
        {"value_base64": "/wA=", "key_base64": "/w==", "timestamp_ms": 6},
        {
            "value": "h",
            "key": None,
            "timestamp_ms": 7,
            "headers": [
                {"key": "a", "value": "1"},
                {"key": "b", "value_base64": "/w=="},
                {"key": "c", "value": None},
            ],
        },
    ]
    stdin = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    assert either("produce", topic, "--json", stdin=stdin).code == 0
    out = either("consume", topic, "--json").out
    found = [json.loads(line) for line in out.splitlines()]
    assert [
        {key: value for key, value in line.items() if key not in ("topic", "partition", "offset")}
        for line in found
    ] == lines
    assert [line["offset"] for line in found] == [0, 1, 2, 3]
    either("topic", "create", "copy")
    either("produce", "copy", "--json", stdin=out)
    assert either("consume", "copy", "--json").out == out.replace(b'"t"', b'"copy"')


def test_a_json_value_stays_json(either: Shell, topic: str) -> None:
    either("produce", topic, "--json", stdin=b'{"value": {"a": [1, 2.50]}}\n{"value": 17}\n')
    assert either("consume", topic).out == b'{"a": [1, 2.50]}\n17\n'


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b'{"key": "a"}', b'{"value": "x", "key": 5}', b'{"value_base64": "%"}', b"\xff"]
)
def test_a_line_that_is_no_record_is_named(either: Shell, topic: str, line: bytes) -> None:
    outcome = either("produce", topic, "--json", stdin=b'{"value": "good"}\n' + line + b"\n")
    assert outcome.code == 1
    assert outcome.err.startswith("error: line 2: ")
    assert either("consume", topic).out == b"good\n"


def test_produce_can_create_the_topic_and_the_log(shell: Shell) -> None:
    assert shell("produce", "new", "x", "--create", "--data-dir", "fresh").code == 0
    assert shell("consume", "new", "--data-dir", "fresh").out == b"x\n"


def test_batches_keep_to_the_limit_of_the_topic(either: Shell) -> None:
    either("topic", "create", "t", "-c", "max.message.bytes=1000")
    lines = b"".join(b"%d" % number * 50 + b"\n" for number in range(10, 60))
    assert either("produce", "t", stdin=lines).code == 0
    assert either("consume", "t").out == lines
    outcome = either("produce", "t", "x" * 2000)
    assert outcome.code == 1
    assert "max.message.bytes" in outcome.err


def test_keyed_records_keep_to_their_partition(either: Shell) -> None:
    either("topic", "create", "t", "-p", "4")
    either(
        "produce", "t", "-K", "=", stdin=b"".join(b"k%d=%d\n" % (number % 7, number) for number in range(70))
    )
    rows = [line.split() for line in either("consume", "t", "-f", r"%p %k %s\n").text.splitlines()]
    assert len(rows) == 70
    assert len({(partition, key) for partition, key, _ in rows}) == 7
    for key in {key for _, key, _ in rows}:
        values = [int(value) for _, found, value in rows if found == key]
        assert values == sorted(values)
    either("produce", "t", "-p", "3", "here")
    assert b"here" in either("consume", "t", "-p", "3").out
    wrong = either("produce", "t", "-p", "4", "nowhere")
    assert (wrong.code, wrong.err) == (1, "error: topic 't' has partitions 0 to 3, not 4\n")


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("start", "0123456789"),
        ("end", ""),
        ("7", "789"),
        ("10", ""),
        ("-3", "789"),
        ("-99", "0123456789"),
        ("@1005", "56789"),
        ("@1970-01-01T00:00:01.007Z", "789"),
        ("@1970-01-01T01:00:01.008+01:00", "89"),
        ("@1970-01-01T00:00:01.009", "9"),
        ("@99999999", ""),
    ],
)
def test_where_to_start(either: Shell, topic: str, place: str, expected: str) -> None:
    lines = "".join(f'{{"value": "{number}", "timestamp_ms": {1000 + number}}}\n' for number in range(10))
    either("produce", topic, "--json", stdin=lines.encode())
    assert either("consume", topic, "-o", place, "-f", "%s", "-e").text == expected


def test_an_offset_out_of_range_is_an_error(either: Shell, topic: str) -> None:
    outcome = either("consume", topic, "-o", "5")
    assert (outcome.code, outcome.err) == (1, "error: offset 5 is outside [0, 0]\n")


def test_how_many(either: Shell) -> None:
    either("topic", "create", "t", "-p", "2")
    either("produce", "t", "-p", "0", "a", "b")
    either("produce", "t", "-p", "1", "c", "d")
    assert either("consume", "t", "-n", "3", "-f", "%s").out == b"abc"
    assert either("consume", "t", "-n", "0").out == b""
    assert either("consume", "t", "-p", "1", "-f", "%s").out == b"cd"


def test_every_field_and_escape_of_a_format(either: Shell, topic: str) -> None:
    line = b'{"value": "v", "key": "k", "timestamp_ms": 9, "headers": '
    line += b'[{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]}'
    either("produce", topic, "--json", stdin=line)
    outcome = either("consume", topic, "-f", r"%t %p %o %k %s %T %h 100%%\t\r\0\\\n")
    assert outcome.out == b"t 0 0 k v 9 a=1,b=2 100%\t\r\0\\\n"


def test_a_group_goes_on_where_it_stood(either: Shell, topic: str) -> None:
    either("produce", topic, *"abcdef")
    assert either("consume", topic, "--group", "g", "-n", "2", "-f", "%s").out == b"ab"
    assert either("consume", topic, "--group", "g", "-n", "1", "-f", "%s").out == b"c"
    assert either("consume", topic, "--group", "other", "-n", "1", "-f", "%s").out == b"a"
    assert either("consume", topic, "--group", "g", "-f", "%s").out == b"def"
    assert either("consume", topic, "--group", "g").out == b""
    assert either("consume", topic, "--group", "g", "-o", "4", "-f", "%s").out == b"ef"


def test_a_reader_that_stops_early_ends_it_quietly(shell: Shell, topic: str, tmp_path: Path) -> None:
    shell("produce", topic, stdin=b"0123456789\n" * 100_000)
    consume = subprocess.Popen(
        [sys.executable, "-m", "mainstem", "consume", "--data-dir", "data", topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert consume.stdout is not None
    assert consume.stderr is not None
    assert consume.stdout.readline() == b"0123456789\n"
    consume.stdout.close()
    assert consume.stderr.read() == b""
    consume.stderr.close()
    assert consume.wait(60) == 0


def test_lines_are_appended_as_they_arrive(shell: Shell, topic: str, tmp_path: Path) -> None:
    produce = subprocess.Popen(
        [sys.executable, "-m", "mainstem", "produce", "--data-dir", "data", topic, "-K", ":"],
        stdin=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert produce.stdin is not None
    produce.stdin.write(b"a:1\nb:")
    produce.stdin.flush()
    produce.stdin.write(b"2\n")
    produce.stdin.close()
    assert produce.wait(60) == 0
    assert shell("consume", topic, "-f", "%k%s ").out == b"a1 b2 "


def test_a_directory_in_use_is_said_to_be(shell: Shell, topic: str, tmp_path: Path) -> None:
    with mainstem.open(tmp_path / "data"):
        outcome = shell("consume", topic)
    assert outcome.code == 1
    assert "in use by process" in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_terminal_sees_progress_and_a_pipe_does_not(shell: Shell, topic: str, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "mainstem", "produce", "--data-dir", "data", topic],
        input=b"line\n" * 20_000,
        stderr=theirs,
        cwd=tmp_path,
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "\r20,000 records" in shown
    assert shown.endswith("20,000 records appended to t\r\n")


def test_a_file_shows_how_far_it_is(shell: Shell, topic: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"line\n" * 200_000)
    ours, theirs = os.openpty()
    with open(tmp_path / "lines", "rb") as lines:
        produce = subprocess.Popen(
            [sys.executable, "-m", "mainstem", "produce", "--data-dir", "data", topic],
            stdin=lines,
            stderr=theirs,
            cwd=tmp_path,
        )
    os.close(theirs)
    shown = b""
    while b"appended to t" not in shown:
        shown += os.read(ours, 65_536)
    assert produce.wait(60) == 0
    os.close(ours)
    assert b"appending" in shown
    assert b"100%" in shown
    assert b"200,000 records appended to t" in shown
