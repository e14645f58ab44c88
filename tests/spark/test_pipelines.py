"""Pipelines at work, the examples among them."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mainstem.errors import InvalidInput, MainstemError
from mainstem.spark.pipelines import Pipeline
from mainstem.spark.pipelines.loading import load
from mainstem.spark.pipelines.query_progress import QueryLines, watch
from mainstem.spark.pipelines.reporting import PipelineReporter
from mainstem.spark.pipelines.running import PipelineRun, PipelineSettings
from mainstem.spark.pipelines.tables import TableSink, open_catalog, table_frame
from mainstem.spark.pipelines.views import TopicViews
from mainstem.spark.source.range_options import bound, topic_bound
from tests.support.driver import lake_pass

from .conftest import TIME_MS, Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_once(spark: SparkSession, pipeline: Pipeline, settings: PipelineSettings) -> list[dict[str, Any]]:
    """Run all that is there, and give back the lines it wrote."""
    out = io.StringIO()
    with PipelineReporter.connected(
        pipeline, settings.url, "", label=settings.label, on_refusal=pytest.fail
    ) as reporter:
        queries = PipelineRun(spark, pipeline, settings).start(once=True)
        watch(queries, threading.Event(), QueryLines(out), reporter)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def reported(broker: Broker, name: str) -> tuple[str, str, dict[str, tuple[int, int, int | None]]]:
    """What the broker shows of a pipeline: its state, its error, and rows in, rows out and lag of each output."""
    (found,) = [one for one in broker.ask("GET", "/v0/pipelines")["pipelines"] if one["pipeline"] == name]
    outputs = {one["output"]: (one["rows_in"], one["rows_out"], one["behind"]) for one in found["outputs"]}
    return found["state"], found["error"], outputs


def rows(broker: Broker, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = open_catalog(broker.url).load_table(table).scan().to_arrow().to_pylist()
    return found


def jsons(*values: object) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def test_clicks_become_sessions_in_a_table(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create("clicks")
    at = "2024-05-01T{}:00Z".format
    first = [("ada", "10:00"), ("ada", "10:20"), ("bob", "10:05"), ("ada", "12:00"), ("late", "23:00")]
    broker.write("clicks", *jsons(*({"user": user, "at": at(time), "page": "/"} for user, time in first)))
    pipeline = load(EXAMPLES / "sessions.py")
    settings = PipelineSettings(broker.url, tmp_path)
    lines = run_once(spark, pipeline, settings)
    assert lines[0]["output"] == "sessions:sessions"
    assert lines[0]["rows"] == 5

    def sessions() -> list[tuple[str, str, int]]:
        found = rows(broker, "default.sessions")
        return sorted((row["user"], row["first"].strftime("%H:%M"), row["clicks"]) for row in found)

    assert sessions() == [("ada", "10:00", 2), ("ada", "12:00", 1), ("bob", "10:05", 1)]
    run_once(spark, pipeline, settings)
    assert len(sessions()) == 3  # nothing new, nothing twice


def test_counts_by_key_are_updated_once_a_batch(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    from pyspark.sql.functions import count

    broker.create("votes")
    broker.create("votes.counted")
    pipeline = Pipeline("votes")
    pipeline.source("votes", schema="name string")

    @pipeline.to_topic("votes.counted", key="name", mode="update")
    def counted(votes: DataFrame) -> DataFrame:
        return votes.groupBy("name").agg(count("*").alias("n"))

    settings = PipelineSettings(broker.url, tmp_path)
    for names in ("ada", "bob", "ada"), ("ada",):
        broker.write("votes", *jsons(*({"name": name} for name in names)))
        run_once(spark, pipeline, settings)
    commits = PipelineRun(spark, pipeline, settings).checkpoint(pipeline.outputs["counted"]) / "commits"
    (commits / "1").unlink()  # as if the driver had died right after the sink's commit
    (commits / ".1.crc").unlink()
    run_once(spark, pipeline, settings)
    found = [(value["name"], value["n"]) for value in broker.values("votes.counted")]
    assert sorted(found[:2]) == [("ada", 2), ("bob", 1)]
    assert found[2:] == [("ada", 3)]


def test_orders_are_joined_with_customers_and_go_on_after_a_restart(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create("orders")
    broker.create("customers")
    customers = [{"id": "c1", "name": "old"}, {"id": "c1", "name": "Ada"}, {"id": "c2", "name": "Bob"}]
    broker.write("customers", *jsons(*customers))
    order = lambda id, customer: {"id": id, "customer": customer, "amount": 1.5}  # noqa: E731
    broker.write("orders", *jsons(order(1, "c1"), order(2, "c2")))
    pipeline = load(EXAMPLES / "enriched_orders.sql")
    run_once(spark, pipeline, PipelineSettings(broker.url, tmp_path))
    broker.write("orders", *jsons(order(3, "c9")))
    assert reported(broker, pipeline.name) == ("done", "", {"topic:orders.enriched": (2, 2, 1)})
    run_once(spark, pipeline, PipelineSettings(broker.url, tmp_path))
    assert reported(broker, pipeline.name)[2]["topic:orders.enriched"][2] == 0
    found = sorted(broker.values("orders.enriched"), key=lambda value: value["id"])
    assert [(value["id"], value.get("name")) for value in found] == [(1, "Ada"), (2, "Bob"), (3, None)]
    again = PipelineSettings(
        broker.url, tmp_path, begin=bound("starting", ("start", 0)), label="from-start-0"
    )
    run_once(spark, pipeline, again)
    assert len(broker.values("orders.enriched")) == 6
    assert reported(broker, f"{pipeline.name} from-start-0")[0] == "done", "it has a report of its own"
    bounds = {"startingOffsets": '{"orders":{"0":1}}'}
    done = PipelineRun(spark, pipeline, PipelineSettings(broker.url, tmp_path)).replay(
        "orders", bounds, "again."
    )
    assert done == {"topic:orders.enriched": 2}
    assert sorted(value["id"] for value in broker.values("again.orders.enriched")) == [2, 3]


def test_features_are_computed_again_as_of_a_snapshot(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    def purchases(*amounts: float) -> pa.Table:
        return pa.table({"customer": ["c1"] * len(amounts), "amount": list(amounts)})

    catalog = open_catalog(broker.url)
    catalog.create_namespace_if_not_exists("default")
    table = catalog.create_table(
        "default.purchases",
        purchases().schema.set(0, pa.field("customer", pa.string())).set(1, pa.field("amount", pa.float64())),
    )
    table.append(purchases(10.0, 20.0))
    trained_on = table.current_snapshot()
    assert trained_on is not None
    table.append(purchases(60.0))
    pipeline = load(EXAMPLES / "features.py")
    run_once(spark, pipeline, PipelineSettings(broker.url, tmp_path))
    pipeline.pin("purchases", trained_on.snapshot_id)
    run_once(spark, pipeline, PipelineSettings(broker.url, tmp_path))
    assert [(value["bought"], value["mean"]) for value in broker.values("features")] == [(3, 30.0), (2, 15.0)]
    with pytest.raises(InvalidInput, match="can only run once"):
        PipelineRun(spark, pipeline, PipelineSettings(broker.url, tmp_path)).start()
    pipeline.pin("purchases", 1)
    with pytest.raises(InvalidInput, match="no snapshot 1"):
        run_once(spark, pipeline, PipelineSettings(broker.url, tmp_path))


def test_a_batch_is_added_to_a_table_once(broker: Broker) -> None:
    sink = TableSink(open_catalog(broker.url), "default.sink_once")
    batch = pa.table({"n": [1, 2]})
    assert sink.add(batch, "q", 0)
    assert not sink.add(batch, "q", 0)
    assert sink.add(batch, "other", 0)
    assert sink.add(batch.slice(0, 0), "q", 1)
    assert not sink.add(batch, "q", 1)
    assert len(rows(broker, "default.sink_once")) == 4


def test_an_output_that_fails_says_why(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create(topic)
    broker.write(topic, b"{}")
    pipeline = Pipeline("failing")
    pipeline.source("a", topic=topic)

    @pipeline.to_topic(f"{topic}.out", options={"createTopics": "false"})
    def out(a):  # type: ignore[no-untyped-def]
        return a.select("value")

    with pytest.raises(MainstemError, match=f"output failing:out failed: .*{topic}.out"):
        run_once(spark, pipeline, PipelineSettings(broker.url, tmp_path))
    state, error, _ = reported(broker, "failing")
    assert state == "failed"
    assert f"{topic}.out" in error


def test_topics_and_tables_are_names_in_sql(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create(topic)
    broker.write(topic, *jsons({"id": 1, "of": "a"}, {"id": 2, "of": "b"}))
    TableSink(open_catalog(broker.url), "default.names").add(pa.table({"of": ["a"], "name": ["Ada"]}), "q", 0)
    views = TopicViews(spark, broker.url, schemas={topic: "id long, of string"})
    text = f"select t.id, n.name from `{topic}` t left join default.names n on t.of = n.of order by id"
    assert [tuple(row) for row in views.query(text).collect()] == [(1, "Ada"), (2, None)]
    plain = TopicViews(spark, broker.url)
    assert spark.catalog.dropTempView(topic)
    (row,) = plain.query(f"select count(*), max(offset) from `{topic}`").collect()
    assert tuple(row) == (2, 1)
    for query, said in (
        ("select * from nowhere", "topic 'nowhere' does not exist"),
        ("select * from default.nowhere", "table 'default.nowhere' does not exist"),
        ("selekt 1", "invalid SQL"),
        (f"select nothing from `{topic}`", "nothing"),
    ):
        with pytest.raises(InvalidInput, match=said):
            plain.query(query)


def test_the_table_of_a_topic_is_read_from_its_files(spark: SparkSession, broker: Broker) -> None:
    topic = "files_of_a_table"
    broker.create(topic)
    for columns in ([], [{"name": "n", "type": "int"}], [{"name": "n", "type": "long"}]):
        broker.ask("PUT", f"/v0/topics/{topic}/table", {"enabled": True, "schema": columns or None})
        broker.write(topic, *jsons({"n": 1}, {"n": 2}), keys=[b"k", None], headers=[(("h", b"v"),), ()])
        lake_pass(broker.url)
    frame = TopicViews(spark, broker.url).query(f"select * from default.{topic} order by _offset")
    assert frame.inputFiles()  # or all of it went through this process
    table = open_catalog(broker.url).load_table(f"default.{topic}")
    expected = table.scan().to_arrow().sort_by("_offset")
    found = frame.toArrow()
    assert found.to_pylist() == expected.to_pylist()
    assert found.column_names == expected.column_names
    assert [row["n"] for row in found.to_pylist()] == [1, 2] * 3
    first = table.metadata.snapshots[0].snapshot_id
    assert table_frame(spark, open_catalog(broker.url), f"default.{topic}", first).count() == 2


def test_stretches_of_a_topic_are_cut_to_what_is_there(broker: Broker, topic: str) -> None:
    from mainstem.client.broker import BrokerClient

    broker.create(topic, 2)
    broker.write(topic, *[b"x"] * 5)
    with BrokerClient(broker.url) as remote:
        assert topic_bound(remote, topic, "starting", ("+", 3)) == {
            "startingOffsets": f'{{"{topic}":{{"0":3,"1":0}}}}'
        }
        assert topic_bound(remote, topic, "ending", ("-", 2)) == {
            "endingOffsets": f'{{"{topic}":{{"0":3,"1":0}}}}'
        }
        assert topic_bound(remote, topic, "ending", ("@", TIME_MS)) == {"endingTimestamp": str(TIME_MS)}
