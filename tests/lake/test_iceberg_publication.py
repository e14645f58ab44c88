from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from mainstem.api.lake import PlanRequest, TableWorkPage
from mainstem.errors import StalePlan
from mainstem.tables.parts.materialise import materialise
from mainstem.tables.planning import LAKE_MERGE_PARTS_MIN
from mainstem.tables.publishing.publisher import Publisher

from .tabling import Tabling, numbers, tabling


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabling]:
    with tabling(tmp_path_factory.mktemp("tables") / "the data") as started:
        yield started


class Killed(BaseException):
    """The publisher ends here, as a process does: nothing in it handles that."""


def killer(at: int, steps: list[str]):  # type: ignore[no-untyped-def]
    """Ends the run at the step of this number."""

    def step(name: str) -> None:
        steps.append(name)
        if len(steps) == at:
            raise Killed

    return step


def test_a_topic_reads_as_a_table_with_nothing_but_a_url(lake: Tabling) -> None:
    lake.topic("orders")
    lake.write("orders", *numbers(0, 10))
    assert lake.enable("orders")["table"] == "default.orders"
    assert lake.values("orders") == []
    lake.work()
    assert lake.publish().commits == 1
    assert lake.values("orders") == numbers(0, 10)
    assert lake.publish().commits == 0
    row = lake.rows("orders")[3]
    assert list(row) == ["_partition_id", "_offset", "_timestamp", "_key", "_value", "_headers"]
    assert (row["_partition_id"], row["_offset"], row["_value"]) == (0, 3, b'{"n":3}')


def test_enabling_backfills_and_status_says_how_far_it_is(lake: Tabling) -> None:
    lake.topic("late")
    lake.write("late", *numbers(0, 5))
    lake.enable("late")
    assert lake.status("late")["lag_records"] == 5
    lake.work()
    lake.publish()
    lake.write("late", *numbers(5, 7))
    status = lake.status("late")
    assert (status["records"], status["files"], status["snapshots"], status["lag_records"]) == (5, 1, 1, 2)
    assert status["partitions"] == [
        {"partition": 0, "end": 7, "materialised_to": 5, "published_to": 5, "lag_records": 2}
    ]


def test_each_snapshot_says_how_far_it_is_and_filters_skip_files(lake: Tabling) -> None:
    lake.topic("far")
    lake.enable("far")
    for start in (0, 10, 20):
        lake.write("far", *numbers(start, start + 10))
        lake.work()
        lake.publish()
    table = lake.table("far")
    summaries = [snapshot.summary for snapshot in table.metadata.snapshots]
    offsets = [json.loads(summary["mainstem.offsets"] or "") for summary in summaries if summary]
    assert offsets == [{"0": 10}, {"0": 20}, {"0": 30}]
    assert table.scan(row_filter="_offset >= 20").to_arrow().num_rows == 10
    assert len(list(table.scan(row_filter="_offset >= 20").plan_files())) == 1
    old = "_timestamp < '2001-01-01T00:00:00+00:00'"
    assert list(table.scan(row_filter=old).plan_files()) == []


def test_partitions_become_one_table(lake: Tabling) -> None:
    bootstrap = str(lake.server.address("kafka"))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("wide", 3, 1)])["wide"].result(30)
    resource = ConfigResource(
        ResourceType.TOPIC,
        "wide",
        incremental_configs=[
            ConfigEntry("mainstem.table", "true", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    day = 86_400_000
    for number in range(30):
        producer.produce(
            "wide",
            b"%d" % number,
            key=b"k",
            partition=number % 3,
            headers=[("h", b"\xff"), ("h", None)],
            timestamp=1_700_000_000_000 + day * (number % 2),
        )
    assert producer.flush(30) == 0
    lake.work()
    lake.publish()
    rows = lake.rows("wide")
    assert [(row["_partition_id"], row["_offset"]) for row in rows] == [
        (p, o) for p in range(3) for o in range(10)
    ]
    assert sorted(int(row["_value"]) for row in rows) == list(range(30))
    assert rows[0]["_headers"] == [{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}]
    days = lake.table("wide").inspect.partitions().to_pylist()
    assert len(days) == 2
    assert sum(each["record_count"] for each in days) == 30


def test_a_range_without_a_record_is_shown_as_nothing(lake: Tabling) -> None:
    bootstrap = str(lake.server.address("kafka"))
    lake.topic("aborted")
    lake.enable("aborted", schema=[{"name": "n", "type": "long"}])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "aborts"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce("aborted", b"no")
    producer.flush(30)
    producer.abort_transaction(30)
    lake.work()
    lake.publish()
    assert lake.values("aborted") == []
    assert lake.status("aborted")["partitions"][0]["published_to"] == 4
    lake.write("aborted", {"n": 1})
    lake.work()
    lake.publish()
    assert lake.values("aborted") == [{"n": 1}]
    assert lake.publish().commits == 0


def test_deleted_records_leave_the_table_by_an_overwrite(lake: Tabling) -> None:
    lake.topic("holes")
    lake.enable("holes")
    for start in (0, 10):
        lake.ask(
            "POST",
            "/v0/topics/holes",
            {"records": [{"data": value, "tag": f"t{value['n']}"} for value in numbers(start, start + 10)]},
        )
        lake.work()
        lake.publish()
    lake.ask("POST", "/v0/topics/holes/delete", {"match": ["tag", "Eq", "t3"]})
    assert lake.work("rewrite") == 1
    lake.publish()
    assert [value["n"] for value in lake.values("holes")] == [0, 1, 2, *range(4, 20)]
    assert lake.operations("holes") == ["append", "append", "overwrite"]
    last = lake.table("holes").current_snapshot()
    assert last is not None
    assert last.summary is not None
    assert (last.summary["total-records"], last.summary["deleted-data-files"]) == ("19", "1")


def test_a_rewrite_that_fills_a_new_column_is_an_overwrite(lake: Tabling) -> None:
    lake.topic("wider")
    lake.enable("wider")
    lake.write("wider", *numbers(0, 3))
    lake.work()
    lake.publish()
    lake.enable("wider", schema=[{"name": "n", "type": "long"}])
    assert lake.work("rewrite") == 1
    lake.publish()
    assert [row["n"] for row in lake.rows("wider")] == [0, 1, 2]
    assert lake.operations("wider") == ["append", "overwrite"]


def test_merged_parts_replace_what_they_were_made_of(lake: Tabling) -> None:
    lake.topic("small")
    lake.enable("small")
    for start in range(LAKE_MERGE_PARTS_MIN):
        lake.write("small", {"n": start})
        lake.work("materialise")
        lake.publish()
    assert lake.work("merge") >= 1
    assert lake.publish().parts >= 1
    assert [value["n"] for value in lake.values("small")] == list(range(LAKE_MERGE_PARTS_MIN))
    assert lake.operations("small")[-1] == "replace"
    assert len(list(lake.table("small").scan().plan_files())) == 1


def test_what_is_shown_is_never_merged_with_what_is_not(lake: Tabling) -> None:
    lake.topic("joined")
    lake.enable("joined")
    count = LAKE_MERGE_PARTS_MIN
    for start in range(count + 2):
        lake.write("joined", {"n": start})
        lake.work("materialise")
        if start == 1:
            lake.publish()
    (merge,) = lake.broker.plan(PlanRequest("tests", ("joined",), ("merge",))).tasks
    assert (merge.sources.base, merge.sources.end) == (2, count + 2)
    made = materialise(merge)
    lake.broker.publish(made)
    lake.publish()
    assert lake.values("joined") == numbers(0, count + 2)
    assert lake.operations("joined") == [
        "append",
        "append",
    ]  # a table that is yet to show parts sees the merged one
    assert lake.publish().commits == 0


def test_a_merge_whose_parts_a_table_began_to_show_meanwhile_is_refused_and_planned_anew(
    lake: Tabling,
) -> None:
    lake.topic("overtaken")
    lake.enable("overtaken")
    count = LAKE_MERGE_PARTS_MIN
    for start in range(count):
        lake.write("overtaken", {"n": start})
        lake.work("materialise")
    (merge,) = lake.broker.plan(PlanRequest("tests", ("overtaken",), ("merge",))).tasks
    made = materialise(merge)
    _show_first_part(lake, "overtaken")
    with pytest.raises(StalePlan, match="published some of these parts"):
        lake.broker.publish(made)
    lake.broker.release(merge.stream, merge.token)
    lake.publish()
    assert lake.work("merge") >= 1
    lake.publish()
    assert lake.values("overtaken") == numbers(0, count)
    assert lake.operations("overtaken") == ["append", "append", "replace"]


def _show_first_part(lake: Tabling, topic: str) -> None:
    """Publish like a publisher that knows only one part."""

    class Brief:
        commit_tables = staticmethod(lake.broker.commit_tables)
        settle_tables = staticmethod(lake.broker.settle_tables)
        told = False

        def tables(self) -> TableWorkPage:
            found = lake.broker.tables() if not self.told else TableWorkPage(())
            self.told = True
            short = []
            for work in found.tables:
                if work.topic == topic:
                    (change,) = work.changes
                    change = msgspec.structs.replace(change, new=change.new[:1])
                    short.append(msgspec.structs.replace(work, changes=(change,)))
            return TableWorkPage(tuple(short))

    assert Publisher(Brief()).run().parts == 1


def test_what_leaves_the_topic_leaves_the_table(lake: Tabling) -> None:
    lake.topic("short")
    lake.enable("short")
    for start in (0, 10, 20):
        lake.write("short", *numbers(start, start + 10))
        lake.work("materialise")
    lake.publish()
    lake.ask("POST", "/v0/topics/short/delete", {"before_seq": 11})
    lake.broker.collect()
    lake.publish()
    assert lake.values("short") == numbers(10, 30)
    assert lake.operations("short") == ["append", "delete"]


def test_a_publisher_killed_anywhere_leaves_neither_gaps_nor_duplicates(lake: Tabling) -> None:
    """Each round holds new parts, and every other one a rewrite as well; it is killed at each step in turn."""
    lake.topic("killed")
    lake.enable("killed")
    written = 0
    expected: list[int] = []
    reached: set[str] = set()
    for at in range(1, 12):
        records = [{"data": {"n": number}, "tag": f"t{number}"} for number in range(written, written + 3)]
        lake.ask("POST", "/v0/topics/killed", {"records": records})
        expected += range(written, written + 3)
        written += 3
        lake.work()
        if at % 2 == 0:
            lake.ask("POST", "/v0/topics/killed/delete", {"match": ["tag", "Eq", f"t{expected.pop(0)}"]})
            lake.work("rewrite")
            lake.broker.collect()  # a part all of whose records are gone is retired
        steps: list[str] = []
        try:
            lake.publish(step=killer((at - 1) % 6 + 1, steps))
        except Killed:
            reached.add(steps[-1])
        lake.publish()
        assert [value["n"] for value in lake.values("killed")] == expected
        assert lake.publish().commits == 0
    assert reached == {"files", "manifests", "commit"}


def test_of_two_publishers_at_once_one_comes_second(lake: Tabling) -> None:
    lake.topic("raced")
    lake.enable("raced")
    lake.write("raced", *numbers(0, 4))
    lake.work()
    others: list[int] = []

    def step(name: str) -> None:
        if name == "manifests" and not others:
            others.append(0)
            others.append(lake.publish().commits)

    first = lake.publish(step=step)
    assert others == [0, 1]
    assert first.refused == 1
    assert lake.values("raced") == numbers(0, 4)
    assert lake.operations("raced") == ["append"]


def test_a_table_outlives_its_server_being_killed(tmp_path: Path) -> None:
    with tabling(tmp_path / "data") as lake:
        lake.topic("kept")
        lake.enable("kept")
        lake.write("kept", *numbers(0, 5))
        lake.work()
        lake.publish()
        lake.restart_killed()
        assert lake.values("kept") == numbers(0, 5)
        lake.write("kept", *numbers(5, 9))
        lake.work()
        steps: list[str] = []
        with pytest.raises(Killed):
            lake.publish(step=killer(2, steps))
        lake.restart_killed()
        lake.publish()
        assert lake.values("kept") == numbers(0, 9)


def test_old_snapshots_go_and_so_do_the_files_only_they_named(
    lake: Tabling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.tables.publishing.snapshots.TABLE_SNAPSHOTS_KEPT", 3)
    lake.topic("busy")
    lake.enable("busy")
    for number in range(8):
        lake.write("busy", {"n": number})
        lake.work("materialise")
        lake.publish(sweep_every=1, grace_ms=-1000)
    table = lake.table("busy")
    assert len(table.metadata.snapshots) == 3
    assert lake.values("busy") == numbers(0, 8)
    for snapshot in table.metadata.snapshots:
        assert table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows > 0
    folder = Path(table.metadata.location.removeprefix("file://")) / "metadata"
    lists = [file for file in folder.iterdir() if file.name.startswith("snap-")]
    assert len(lists) == 3
    assert len(list(folder.glob("*.metadata.json"))) <= 11


def test_manifests_are_joined_before_they_are_many(lake: Tabling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.tables.publishing.snapshots.TABLE_MANIFESTS_PER_TIER", 4)
    lake.topic("many")
    lake.enable("many")
    most = 0
    for number in range(20):
        lake.write("many", {"n": number})
        lake.work("materialise")
        lake.publish()
        table = lake.table("many")
        snapshot = table.current_snapshot()
        assert snapshot is not None
        most = max(most, len(snapshot.manifests(table.io)))
    assert most <= 9
    assert lake.values("many") == numbers(0, 20)


def test_turned_off_and_on_again_the_table_is_made_anew(lake: Tabling) -> None:
    lake.topic("flicker")
    lake.enable("flicker")
    lake.write("flicker", *numbers(0, 3))
    lake.work()
    lake.publish()
    folder = Path(lake.table("flicker").metadata.location.removeprefix("file://"))
    assert lake.ask("DELETE", "/v0/topics/flicker/table")["enabled"] is False
    assert not lake.catalog().table_exists("default.flicker")
    assert [file for file in folder.rglob("*") if file.is_file()] == []
    assert len(lake.ask("POST", "/v0/topics/flicker/diff", {})["records"]) == 3
    lake.enable("flicker")
    lake.publish()
    assert lake.values("flicker") == numbers(0, 3)


def test_a_deleted_topic_takes_its_table_along(lake: Tabling) -> None:
    lake.topic("gone")
    lake.enable("gone", schema=[{"name": "n", "type": "long"}])
    assert {"gone", "gone__errors"} <= {name for _, name in lake.catalog().list_tables("default")}
    lake.ask("DELETE", "/v0/topics/gone")
    assert not {"gone", "gone__errors"} & {name for _, name in lake.catalog().list_tables("default")}


# Columns


def test_declared_columns_are_typed_and_what_does_not_fit_is_an_error(lake: Tabling) -> None:
    lake.topic("typed")
    lake.enable(
        "typed",
        schema=[{"name": "id", "type": "long"}, {"name": "who", "type": "string", "path": "$.user.name"}],
    )
    lake.write("typed", {"id": 1, "user": {"name": "a"}}, {"id": "x"}, {"id": 3}, [4])
    lake.work()
    lake.publish()
    rows = lake.rows("typed")
    assert [(row["id"], row["who"]) for row in rows] == [(1, "a"), (None, None), (3, None), (None, None)]
    assert [json.loads(row["_value"]) for row in rows][1] == {"id": "x"}
    errors = sorted(lake.table("typed__errors").scan().to_arrow().to_pylist(), key=lambda row: row["offset"])
    assert list(errors[0]) == ["topic", "partition", "offset", "timestamp", "reason", "value"]
    assert [(row["topic"], row["partition"], row["offset"], row["value"]) for row in errors] == [
        ("typed", 0, 1, b'{"id":"x"}'),
        ("typed", 0, 3, b"[4]"),
    ]
    assert "int" in errors[0]["reason"]
    assert lake.status("typed")["errors"] == 2


def test_columns_are_added_without_stopping_the_pipe(lake: Tabling) -> None:
    lake.topic("grows")
    lake.enable("grows", schema=[{"name": "a", "type": "int"}])
    lake.write("grows", {"a": 1, "b": "x"})
    lake.work()
    lake.publish()
    lake.enable("grows", schema=[{"name": "a", "type": "long"}, {"name": "b", "type": "string"}])
    lake.write("grows", {"a": 1 << 40, "b": "y"})
    lake.work("materialise")
    lake.publish()
    assert [(row["a"], row["b"]) for row in lake.rows("grows")] == [(1, None), (1 << 40, "y")]
    assert lake.work("rewrite") == 1  # records from before get their columns as well, in time
    lake.publish()
    assert [(row["a"], row["b"]) for row in lake.rows("grows")] == [(1, "x"), (1 << 40, "y")]
    answer = lake.http.put("/v0/topics/grows/table", json={"schema": [{"name": "a", "type": "string"}]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "table_incompatible")


def test_columns_that_are_declared_late_are_filled_for_what_is_there(lake: Tabling) -> None:
    lake.topic("later")
    lake.enable("later")
    lake.write("later", {"n": 1}, {"n": "x"})
    lake.work()
    lake.publish()
    planned = PlanRequest("tests", topics=("later",))
    lake.write("later", {"n": 2})
    (task,) = lake.broker.plan(planned).tasks
    made = materialise(task)  # by who knows nothing of the columns yet
    lake.enable("later", schema=[{"name": "n", "type": "long"}])
    with pytest.raises(StalePlan):
        lake.broker.publish(made)
    lake.work()
    lake.publish()
    assert [row["n"] for row in lake.rows("later")] == [1, None, 2]
    assert lake.status("later")["errors"] == 1


def test_errors_follow_their_records_through_rewrites(lake: Tabling) -> None:
    lake.topic("mended")
    lake.enable("mended", schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    records = [{"data": {"n": "bad"}, "tag": f"t{at}"} for at in range(3)]
    lake.ask("POST", "/v0/topics/mended", {"records": records})
    lake.work()
    lake.publish()
    lake.ask("POST", "/v0/topics/mended/delete", {"match": ["tag", "Eq", "t1"]})
    lake.work("rewrite")
    lake.publish()
    found = lake.table("mended__errors").scan().to_arrow().column("offset").to_pylist()
    assert sorted(found) == [0, 2]
    assert lake.publish().commits == 0


# Names


def test_two_topics_that_would_share_a_name_are_told_so(lake: Tabling) -> None:
    lake.topic("a-b")
    lake.topic("a.b")
    lake.enable("a-b")
    answer = lake.http.put("/v0/topics/a.b/table", json={"enabled": True})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "table_exists")
    assert lake.status("a.b")["enabled"] is False
    lake.topic("a-b__errors")
    answer = lake.http.put("/v0/topics/a-b__errors/table", json={"enabled": True})
    assert answer.status_code == 200


@pytest.mark.parametrize("config", [{"type": "queue"}, {"durability": "ephemeral"}])
def test_what_cannot_be_a_table_is_refused(lake: Tabling, config: dict[str, str]) -> None:
    name = f"not-{'-'.join(config.values())}"
    lake.ask("PUT", f"/v0/topics/{name}", config)
    answer = lake.http.put(f"/v0/topics/{name}/table", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "table_incompatible")


def test_the_publisher_alone_writes_to_a_topics_table(lake: Tabling) -> None:
    lake.topic("owned")
    lake.enable("owned")
    table = lake.table("owned")
    with table.transaction() as change:
        change.set_properties({"owner": "me"})
    assert lake.table("owned").properties["owner"] == "me"
    with pytest.raises(Exception, match="set by the server"), table.transaction() as change:
        change.set_properties({"gc.enabled": "true"})
    with (
        pytest.raises(Exception, match="the table of a topic"),
        lake.table("owned").update_schema() as update,
    ):
        update.delete_column("_value")
    with pytest.raises(Exception, match="disable it at the topic"):
        lake.catalog().drop_table("default.owned")
    with pytest.raises(Exception, match="belongs to a topic and cannot be renamed"):
        lake.catalog().rename_table("default.owned", "default.mine")
    lake.write("owned", *numbers(0, 2))
    lake.work()
    lake.publish()
    assert lake.values("owned") == numbers(0, 2)
