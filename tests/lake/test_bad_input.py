"""One topic in trouble: it is named, with what is wrong, and the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner

from mainstem.api.lake import LakeStatus
from mainstem.cli.lake import lake as lake_command
from mainstem.spark.driver.driver import Driver, DriverOptions
from mainstem.spark.driver.status import LAKE_FAILURES_REPORTED_MAX, DriverStatus
from mainstem.tables.file_io import StoreIO
from mainstem.tables.parts.outputs import LocalOutputs
from mainstem.tables.publishing import publisher as outbox
from mainstem.tables.publishing.backoff import LAKE_RETRY_S, Backoff
from mainstem.tables.publishing.publisher import publish_tables
from tests.support.driver import done_here

from .tabling import Tabling, numbers, tabling


class Told:
    """What a driver says, for tests to look at."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def event(self, name: str, **fields: object) -> None:
        self.events.append((name, fields))

    def status(self, status: LakeStatus) -> None: ...

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabling]:
    with tabling(tmp_path_factory.mktemp("bad") / "data") as started:
        yield started


def a_pair(lake: Tabling, name: str) -> tuple[str, str]:
    """Two topics with tables and records: one that will be hurt, and one that will not."""
    pair = (f"{name}_hurt", f"{name}_sound")
    for topic in pair:
        lake.topic(topic)
        lake.enable(topic)
        lake.write(topic, *numbers(0, 5))
    return pair


def one_pass(lake: Tabling, *topics: str) -> DriverStatus:
    """As `mainstem lake run --once` does; the table of every topic follows."""
    options = DriverOptions(holder="tests", topics=topics)
    return Driver(lake.broker, done_here, options, Told(), publish_tables=publish_tables).run_once()


def only_failure(driver_status: DriverStatus) -> tuple[str, str]:
    (failure,) = driver_status.failing()
    return failure.topic, failure.error


def files_of(lake: Tabling, topic: str) -> list[Path]:
    return sorted((lake.data_dir / "objects" / "parts" / id_of(lake, topic)).rglob("*.parquet"))


def id_of(lake: Tabling, topic: str) -> str:
    topics = lake.ask("GET", "/v0/lake/status")["topics"]
    return next(one["topic_id"] for one in topics if one["topic"] == topic)


@pytest.mark.parametrize("buffering", [0, 1 << 16], ids=["at once", "when it is sealed"])
def test_a_disk_that_is_full_fails_the_topic_and_leaves_no_file(
    lake: Tabling, monkeypatch: pytest.MonkeyPatch, buffering: int
) -> None:
    hurt, sound = a_pair(lake, f"full_{buffering}")
    create = LocalOutputs.create
    topic_id = id_of(lake, hurt)

    def full(outputs: LocalOutputs, key: str) -> IO[bytes]:
        if topic_id not in key:
            return create(outputs, key)
        create(outputs, key).close()  # there is room for its name
        return open("/dev/full", "wb", buffering=buffering)  # which takes nothing

    with monkeypatch.context() as crowded:
        crowded.setattr(LocalOutputs, "create", full)
        failed = one_pass(lake, hurt, sound)
    topic, error = only_failure(failed)
    assert topic == hurt
    assert "No space left on device" in error
    assert files_of(lake, hurt) == []
    assert lake.values(sound) == numbers(0, 5)
    assert one_pass(lake, hurt, sound).failing() == ()  # there is room again
    assert lake.values(hurt) == numbers(0, 5)


def test_a_disk_that_is_full_when_a_table_is_published_fails_that_table_alone(
    lake: Tabling, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurt, sound = a_pair(lake, "crowded")
    put = StoreIO.put

    def full(files: StoreIO, location: str, data: bytes) -> None:
        if hurt in location:
            raise OSError(28, "No space left on device")
        put(files, location, data)

    with monkeypatch.context() as crowded:
        crowded.setattr(StoreIO, "put", full)
        topic, error = only_failure(one_pass(lake, hurt, sound))
    assert topic == hurt
    assert f"table {hurt!r}" in error
    assert "No space left on device" in error
    assert lake.values(sound) == numbers(0, 5)
    assert lake.table(hurt).current_snapshot() is None
    assert one_pass(lake, hurt, sound).failing() == ()
    assert lake.values(hurt) == numbers(0, 5)
    assert lake.operations(hurt) == ["append"]


def named_while_it_is_gone(lake: Tabling, file: Path, hurt: str, sound: str) -> None:
    """Without the file its topic fails and says so, the other goes on; with it again nothing is missing."""
    saved = file.read_bytes()
    file.unlink()
    topic, error = only_failure(one_pass(lake, hurt, sound))
    assert topic == hurt
    assert file.name in error
    assert lake.values(sound) == numbers(0, 5)
    file.write_bytes(saved)
    assert one_pass(lake, hurt, sound).failing() == ()
    assert lake.values(hurt) == numbers(0, 5)


def test_a_file_that_is_gone_before_its_table_shows_it_is_named(lake: Tabling) -> None:
    hurt, sound = a_pair(lake, "gone")
    lake.work("materialise")
    (file,) = files_of(lake, hurt)
    named_while_it_is_gone(lake, file, hurt, sound)


def test_a_file_that_is_gone_before_it_is_rewritten_is_named(lake: Tabling) -> None:
    hurt, sound = a_pair(lake, "lost")
    one_pass(lake, hurt, sound)
    for topic in (hurt, sound):
        lake.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": {"n": 5}, "tag": "x"}]})
    one_pass(lake, hurt, sound)
    for topic in (hurt, sound):
        lake.ask("POST", f"/v0/topics/{topic}/delete", {"match": "x"})
    file = files_of(lake, hurt)[-1]
    named_while_it_is_gone(lake, file, hurt, sound)


def test_a_commit_that_somebody_else_overtook_is_made_again_and_the_others_do_not_wait(lake: Tabling) -> None:
    hurt, sound = a_pair(lake, "overtaken")
    lake.work("materialise")

    class Overtaken:
        """A broker that lets another publisher commit first, once."""

        settle_tables = staticmethod(lake.broker.settle_tables)
        tables = staticmethod(lake.broker.tables)
        overtaken = 0

        def commit_tables(self, commits: Any) -> list[Any]:
            names = [commit.name for commit in commits]
            if hurt in names and not self.overtaken:
                self.overtaken += 1
                lake.publish()
            return lake.broker.commit_tables(commits)

    broker: Any = Overtaken()
    done = publish_tables(broker)
    assert broker.overtaken == 1
    assert done.problems == {}
    for topic in (hurt, sound):
        assert lake.values(topic) == numbers(0, 5)
        assert lake.operations(topic) == ["append"]


def test_values_that_do_not_decode_are_errors_of_their_topic_alone(lake: Tabling) -> None:
    hurt, sound = a_pair(lake, "odd")
    columns = [{"name": "n", "type": "long"}]
    for topic in (hurt, sound):
        lake.enable(topic, schema=columns)
    lake.http.post(
        f"/v0/topics/{hurt}", json={"records": [{"data": {"n": "no number"}}, {"data": "text"}]}
    ).raise_for_status()
    assert one_pass(lake, hurt, sound).failing() == ()
    assert [row["n"] for row in lake.rows(hurt)] == [0, 1, 2, 3, 4, None, None]
    assert [row["n"] for row in lake.rows(sound)] == [0, 1, 2, 3, 4]
    errors = lake.table(f"{hurt}__errors").scan().to_arrow().to_pylist()
    assert [(row["topic"], row["offset"]) for row in sorted(errors, key=lambda row: row["offset"])] == [
        (hurt, 5),
        (hurt, 6),
    ]
    assert all(row["reason"] for row in errors)
    assert lake.table(f"{sound}__errors").scan().to_arrow().num_rows == 0


class Poison:
    """Makes the data files of one topic raise what nobody foresaw, for as long as it is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topic_id: str) -> None:
        self.there = True
        self.met = 0
        self._topic_id = topic_id
        self._data_file = outbox.data_file
        monkeypatch.setattr(outbox, "data_file", self)

    def __call__(self, footer: Any, kind: Any, schema: Any, location: str, size: int, day: int) -> Any:
        if self.there and self._topic_id in location:
            self.met += 1
            raise OverflowError("date value out of range")
        return self._data_file(footer, kind, schema, location, size, day)


def problems(lake: Tabling) -> set[str]:
    """Topics with a problem, which all that shows problems agrees on."""
    topics = [topic["topic"] for topic in lake.ask("GET", "/v0/lake/status")["topics"]]
    by_table = {topic for topic in topics if lake.status(topic)["problem"]}
    status = lake.ask("GET", "/v0/lake/status")
    assert {topic["topic"] for topic in status["topics"] if topic["problem"]} == by_table
    shown = CliRunner().invoke(lake_command, ["status", "--url", lake.url]).output
    metrics = lake.http.get("/v0/metrics").text
    for topic in topics:
        assert (f'mainstem_lake_topic_problem{{topic="{topic}"}} 1' in metrics) == (topic in by_table)
        assert (f"  {topic}: table" in shown) == (topic in by_table)
    return by_table


def test_any_exception_is_a_problem_of_its_topic_that_everybody_sees_until_its_cause_is_gone(
    lake: Tabling, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = a_pair(lake, "any")
    hurt = "any_poisoned"
    topics = sorted((first, hurt, last))
    assert topics[1] == hurt  # one of the others comes before it, one after it
    lake.topic(hurt)
    lake.enable(hurt)
    lake.write(hurt, *numbers(0, 5))
    now = 0.0
    options = DriverOptions(holder="tests", topics=tuple(topics))
    publish = partial(publish_tables, backoff=Backoff(lambda: now))
    driver = Driver(lake.broker, done_here, options, Told(), publish_tables=publish)
    poison = Poison(monkeypatch, id_of(lake, hurt))

    driver_status = driver.run_once()
    assert only_failure(driver_status) == (hurt, f"table {hurt!r}: OverflowError: date value out of range")
    assert driver_status.tables_error == ""
    for sound in (first, last):
        assert lake.values(sound) == numbers(0, 5)
    assert lake.values(hurt) == []
    assert problems(lake) == {hurt}
    assert lake.status(hurt)["problem"] == only_failure(driver_status)[1]
    assert poison.met == 1

    lake.write(last, *numbers(5, 7))
    now += LAKE_RETRY_S - 1
    assert only_failure(driver.run_once())[0] == hurt
    assert poison.met == 1  # it is not tried yet
    assert lake.values(last) == numbers(0, 7)
    assert problems(lake) == {hurt}
    now += 1
    (failure,) = driver.run_once().failing()
    assert (poison.met, failure.failures) == (2, 2)

    poison.there = False
    now += LAKE_RETRY_S  # a second failure is waited for twice as long
    assert driver.run_once().failing() != ()
    now += LAKE_RETRY_S
    assert driver.run_once().failing() == ()
    assert lake.values(hurt) == numbers(0, 5)
    assert lake.operations(hurt) == ["append"]
    assert problems(lake) == set()


def test_a_manifest_that_is_gone_is_a_problem_and_not_a_lost_race(lake: Tabling) -> None:
    hurt, sound = a_pair(lake, "manifest")
    one_pass(lake, hurt, sound)
    snapshot = lake.table(hurt).current_snapshot()
    assert snapshot is not None
    manifests = Path(snapshot.manifest_list.removeprefix("file://"))
    saved = manifests.read_bytes()
    manifests.unlink()
    for topic in (hurt, sound):
        lake.write(topic, *numbers(5, 6))
    topic, error = only_failure(one_pass(lake, hurt, sound))
    assert topic == hurt
    assert manifests.name in error
    assert lake.values(sound) == numbers(0, 6)
    manifests.write_bytes(saved)
    assert one_pass(lake, hurt, sound).failing() == ()
    assert lake.values(hurt) == numbers(0, 6)


def test_a_report_that_names_very_many_topics_is_still_kept(lake: Tabling) -> None:
    driver_status = DriverStatus()
    names = [f"{number:03}" + "n" * 240 for number in range(500)]
    driver_status.tables_behind(dict.fromkeys(names, "\0" * 5_000))
    lake.broker.report(driver_status.report("many", "idle", 0))
    reports = [driver["report"] for driver in lake.ask("GET", "/v0/lake/status")["drivers"]]
    (kept,) = [report for report in reports if report["holder"] == "many"]
    assert len(kept["failing"]) == LAKE_FAILURES_REPORTED_MAX
    lake.broker.report(DriverStatus().report("many", "idle", 0))
