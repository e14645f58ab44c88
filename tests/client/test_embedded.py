"""The log inside a process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import mainstem
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.read import Reads
from mainstem.errors import Closed, DirectoryLocked, InvalidInput, InvalidName, RecordsLost, TooLarge


def test_what_is_appended_is_read_in_order_and_once(tmp_path: Path) -> None:
    with mainstem.open(tmp_path / "log") as log:
        assert log.append("events", b"hello") == 0
        assert log.append_many("events", [b"a", b"b"]) == 1
        assert [log.read_next("events") for _ in range(4)] == [b"hello", b"a", b"b", None]
        assert log.append("events", b"c") == 3
        assert log.read_next("events") == b"c"


def test_a_peek_moves_nothing(tmp_path: Path) -> None:
    with mainstem.open(tmp_path) as log:
        log.append_many("t", [b"1", b"2"])
        assert [log.read_next("t", checkpoint=False) for _ in range(2)] == [b"1", b"1"]
        assert log.read_many("t", checkpoint=False) == [b"1", b"2"]
        assert log.read_next("t") == b"1"
        assert log.read_next("t", checkpoint=False) == b"2"
        assert log.read_many("t") == [b"2"]


def test_read_many_keeps_to_its_bytes_but_never_comes_empty_handed(tmp_path: Path) -> None:
    with mainstem.open(tmp_path) as log:
        log.append_many("t", [b"x" * 10] * 5 + [b"y" * 1000])
        assert [len(log.read_many("t", max_bytes=25)) for _ in range(2)] == [2, 2]
        assert log.read_many("t", max_bytes=25) == [b"x" * 10]
        assert log.read_many("t", max_bytes=25) == [b"y" * 1000]
        assert log.read_many("t", max_bytes=25) == []


def test_read_many_spans_batches(tmp_path: Path) -> None:
    with mainstem.open(tmp_path, sync="never") as log:
        expected = []
        for number in range(300):
            values = [b"%d-%d" % (number, index) for index in range(20)]
            log.append_many("t", values)
            expected += values
        assert log.read_many("t") == expected


def test_counts_and_sizes(tmp_path: Path) -> None:
    with mainstem.open(tmp_path) as log:
        assert (log.count("t"), log.size("t"), log.topics()) == (0, 0, [])
        log.append_many("t", [b"abc", b"", b"de"])
        log.read_next("t")
        assert (log.count("t"), log.size("t"), log.topics()) == (3, 5, ["t"])


def test_empty_values_are_records(tmp_path: Path) -> None:
    with mainstem.open(tmp_path) as log:
        log.append("t", b"")
        assert log.read_next("t") == b""
        assert log.read_next("t") is None


def test_appending_nothing_gives_the_next_offset(tmp_path: Path) -> None:
    with mainstem.open(tmp_path) as log:
        assert log.append_many("t", []) == 0
        log.append("t", b"x")
        assert log.append_many("t", []) == 1
        assert log.count("t") == 1


def test_reading_makes_no_topic(tmp_path: Path) -> None:
    with mainstem.open(tmp_path) as log:
        assert log.read_next("t") is None
        assert log.read_many("t") == []
        assert log.topics() == []


def test_records_and_cursor_are_there_after_a_close(tmp_path: Path) -> None:
    for consistency in ("strict", mainstem.at_least_once(persist_every=100)):
        with mainstem.open(tmp_path, consistency=consistency) as log:
            log.append_many("t", [b"1", b"2", b"3"])
            assert log.read_next("t") == b"1"
        with mainstem.open(tmp_path, consistency=consistency) as log:
            assert log.read_many("t") == [b"2", b"3"]


_CRASH = """
    import os, sys, mainstem
    consistency = mainstem.at_least_once(persist_every=4) if sys.argv[2] == "lazy" else "strict"
    log = mainstem.open(sys.argv[1], consistency=consistency)
    log.append_many("t", [b"%d" % number for number in range(10)])
    for _ in range(6):
        log.read_next("t")
    os._exit(9)
"""


@pytest.mark.parametrize(("consistency", "next_value"), [("strict", b"6"), ("lazy", b"4")])
def test_after_a_crash_strict_goes_on_and_at_least_once_repeats_a_few(
    tmp_path: Path, consistency: str, next_value: bytes
) -> None:
    script = [sys.executable, "-c", textwrap.dedent(_CRASH), str(tmp_path), consistency]
    assert subprocess.run(script, check=False).returncode == 9
    with mainstem.open(tmp_path) as log:
        assert log.count("t") == 10
        assert log.read_next("t") == next_value


def test_a_key_is_a_log_of_its_own(tmp_path: Path) -> None:
    with (
        mainstem.open(tmp_path) as plain,
        mainstem.open(tmp_path, key="a") as one,
        mainstem.open(tmp_path, key="b") as two,
    ):
        for log, value in ((plain, b"plain"), (one, b"one"), (two, b"two")):
            log.append("t", value)
        assert [log.read_next("t") for log in (plain, one, two)] == [b"plain", b"one", b"two"]
    with mainstem.open(tmp_path, key="a") as one:
        assert one.count("t") == 1
    with mainstem.open(tmp_path) as plain:
        assert plain.count("t") == 1


@pytest.mark.parametrize("key", ["", "..", "a/b", "/etc", ".hidden", "x" * 129, "é"])
def test_a_key_that_is_no_name_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidName, match="a key has"):
        mainstem.open(tmp_path, key=key)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sync", ["each", mainstem.every_ms(5), "never"])
def test_every_way_to_sync_keeps_the_records(tmp_path: Path, sync: object) -> None:
    with mainstem.open(tmp_path, sync=sync) as log:
        for number in range(50):
            log.append("t", b"%d" % number)
    with mainstem.open(tmp_path, sync=sync) as log:
        assert log.read_many("t") == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize(
    "options",
    [{"sync": "always"}, {"sync": 5}, {"consistency": "eventual"}, {"consistency": 3}],
)
def test_an_option_that_is_none_is_refused(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="must be"):
        mainstem.open(tmp_path, **options)


def test_options_take_sane_numbers() -> None:
    for make in (mainstem.at_least_once, mainstem.every_ms):
        with pytest.raises(InvalidInput, match="must be 1 or more"):
            make(0)


def test_use_after_close_says_so(tmp_path: Path) -> None:
    log = mainstem.open(tmp_path)
    log.append_many("t", [b"1", b"2"])
    log.read_next("t")
    log.close()
    log.close()
    for use in (
        lambda: log.append("t", b"x"),
        lambda: log.append_many("t", [b"x"]),
        lambda: log.read_next("t"),
        lambda: log.read_many("t"),
        lambda: log.count("t"),
        lambda: log.size("t"),
    ):
        with pytest.raises(Closed, match=r"this log is closed: open it again with mainstem\.open"):
            use()


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    with mainstem.open(tmp_path), pytest.raises(DirectoryLocked, match="in use by process"):
        mainstem.open(tmp_path)
    mainstem.open(tmp_path).close()


def test_errors_are_raised_where_the_call_was_made(tmp_path: Path) -> None:
    with mainstem.open(tmp_path) as log:
        with pytest.raises(InvalidName):
            log.append("no//name", b"x")
        with pytest.raises(InvalidInput, match="records are bytes, not str"):
            log.append("t", "text")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="not int"):
            log.append_many("t", [b"x", 5])  # type: ignore[list-item]
        with pytest.raises(InvalidInput, match="max_bytes must be 1 or more"):
            log.read_many("t", max_bytes=0)
        assert log.topics() == []


def test_what_is_too_large_is_refused_whole(tmp_path: Path) -> None:
    with mainstem.open(tmp_path, sync="never") as log:
        log.append("t", b"before")
        with pytest.raises(TooLarge):
            log.append_many("t", [b"x" * (33 << 20)] * 2)
        assert log.count("t") == 1
        log.append_many("t", [b"x" * (1 << 20)] * 3)
        assert [len(value) for value in log.read_many("t", max_bytes=1 << 30)] == [6, *[1 << 20] * 3]


def test_bytes_like_values_are_copied(tmp_path: Path) -> None:
    with mainstem.open(tmp_path) as log:
        buffer = bytearray(b"abc")
        log.append_many("t", [buffer, memoryview(b"xdefx")[1:4]])
        buffer[:] = b"zzz"
        assert log.read_many("t") == [b"abc", b"def"]


def test_threads_lose_and_repeat_nothing(tmp_path: Path) -> None:
    appended: list[list[int]] = [[] for _ in range(4)]
    read: list[list[bytes]] = [[] for _ in range(4)]

    def work(number: int) -> None:
        for index in range(100):
            appended[number].append(log.append("t", b"%d-%d" % (number, index)))
            if (value := log.read_next("t")) is not None:
                read[number].append(value)

    with mainstem.open(tmp_path, sync="never", consistency=mainstem.at_least_once(50)) as log:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rest = log.read_many("t")
    assert sorted(offset for offsets in appended for offset in offsets) == list(range(400))
    found = [value for values in [*read, rest] for value in values]
    assert sorted(found) == sorted(b"%d-%d" % (number, index) for number in range(4) for index in range(100))


def test_a_close_beside_running_calls_answers_every_one(tmp_path: Path) -> None:
    log = mainstem.open(tmp_path, sync="never")
    acknowledged: list[int] = []
    started = threading.Event()

    def work() -> None:
        while True:
            try:
                acknowledged.append(log.append("t", b"x"))
            except Closed:
                return
            started.set()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    started.wait()
    log.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    with mainstem.open(tmp_path) as again:
        assert again.count("t") >= len(acknowledged)
        assert max(acknowledged) < again.count("t")


async def trim(data_dir: Path, topic: str, offset: int) -> None:
    broker = await Broker.open(BrokerOptions(data_dir))
    await broker.trim(topic, offset)
    await broker.close()


def test_a_reader_behind_retention_goes_on_at_the_oldest_record(tmp_path: Path) -> None:
    with mainstem.open(tmp_path) as log:
        log.append_many("t", [b"1", b"2"])
        assert log.read_next("t") == b"1"
        log.append_many("t", [b"3", b"4"])
    asyncio.run(trim(tmp_path, "t", 3))
    with mainstem.open(tmp_path) as log:
        assert log.read_next("t") == b"4"
        assert log.read_next("t") is None


def test_a_loss_is_told_once_and_reading_goes_on_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mainstem.open(tmp_path) as log:
        for value in (b"0", b"1", b"2", b"3"):
            log.append("t", value)
        real = Broker.read

        async def damaged(broker: Broker, topic: str, offset: int, **options: Any) -> Any:
            if offset in (1, 2):
                raise RecordsLost(offset, 3, "damaged")
            return [
                record
                for record in await real(broker, topic, offset, **options)
                if offset or record.offset < 1
            ]

        monkeypatch.setattr(Broker, "read", damaged)
        monkeypatch.setattr(Reads, "values_now", lambda *_, **__: None)  # not in memory
        assert log.read_many("t") == [b"0"]
        with pytest.raises(RecordsLost):
            log.read_next("t", checkpoint=False)
        with pytest.raises(RecordsLost, match=r"\[1, 3\)"):
            log.read_next("t")
        assert log.read_next("t") == b"3"


def test_the_text_door_and_the_embedded_log_share_their_place(tmp_path: Path) -> None:
    from mainstem.testing.server import ServerProcess
    from tests.support.text import TextClient

    with mainstem.open(tmp_path / "log") as log:
        log.append_many("t", [b"1", b"2", b"3"])
        assert log.read_next("t") == b"1"
    with ServerProcess(tmp_path / "log") as server:
        with TextClient(server.address("text")) as client:
            assert client.ask("GET t") == "OK 2"
        assert server.terminate() == 0
    with mainstem.open(tmp_path / "log") as log:
        assert log.read_next("t") == b"3"
