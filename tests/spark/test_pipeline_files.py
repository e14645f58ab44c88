"""Pipelines as they are declared, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem.errors import InvalidInput
from mainstem.spark.pipelines import Pipeline
from mainstem.spark.pipelines.loading import load
from mainstem.spark.pipelines.statements import pipeline_of, statements
from mainstem.spark.source.range_options import bound

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_examples_are_pipelines() -> None:
    for name, outputs in (
        ("sessions.py", ["default.sessions"]),
        ("enriched_orders.sql", ["orders.enriched"]),
        ("features.py", ["features"]),
    ):
        pipeline = load(EXAMPLES / name)
        assert [output.target for output in pipeline.outputs.values()] == outputs


def test_statements_end_at_semicolons_outside_of_quotes_and_comments() -> None:
    text = "a ';' -- no; end\nb; /* ; */ c `;` \"--\" ; ;\n d"
    assert list(statements(text)) == ["a ';'  \nb", 'c `;` "--"', "d"]


def test_sql_declares_sources_views_and_outputs() -> None:
    pipeline = pipeline_of(
        """
        create source clicks;
        CREATE STATIC SOURCE users TOPIC 'the.users' SCHEMA (id string, more struct<a:int>);
        CREATE SOURCE prices TABLE default.prices SNAPSHOT 12;
        CREATE VIEW joined AS SELECT * FROM clicks JOIN users ON true;
        CREATE TOPIC 'out.topic' KEY id MODE update AS SELECT * FROM joined;
        CREATE TABLE default.counts AS SELECT count(*) FROM joined, prices
        """,
        "p",
    )
    clicks, users, prices = pipeline.sources.values()
    assert (clicks.topic, clicks.static, clicks.schema) == ("clicks", False, "")
    assert (users.topic, users.static, users.schema) == ("the.users", True, "id string, more struct<a:int>")
    assert (prices.table, prices.static, prices.snapshot) == ("default.prices", True, 12)
    topic, table = pipeline.outputs.values()
    assert (topic.topic, topic.key, topic.mode) == ("out.topic", "id", "update")
    assert table.table == "default.counts"
    assert pipeline.needed(table.step) == ["clicks", "users", "joined", "prices"] or set(
        pipeline.needed(table.step)
    ) == {"clicks", "users", "joined", "prices"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT 1;", "not a pipeline statement"),
        ("CREATE SOURCE a; CREATE SOURCE a;", "declared twice"),
        ("CREATE SOURCE a;", "has no output"),
        ("CREATE SOURCE a; CREATE VIEW v KEY k AS SELECT 1", "cannot have a KEY"),
        ("CREATE SOURCE a; CREATE TABLE t AS SELECT * FROM a", "needs its namespace"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "p.sql").write_text(text)
    with pytest.raises(InvalidInput, match=said):
        load(tmp_path / "p.sql")


def test_a_python_file_makes_one_pipeline(tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("x = 1")
    with pytest.raises(InvalidInput, match="defines 0 pipelines"):
        load(tmp_path / "none.py")
    with pytest.raises(InvalidInput, match=r"missing\.py does not exist"):
        load(tmp_path / "missing.py")
    (tmp_path / "p.txt").write_text("")
    with pytest.raises(InvalidInput, match="neither Python"):
        load(tmp_path / "p.txt")


def test_steps_are_made_of_what_is_declared_and_never_of_themselves() -> None:
    pipeline = Pipeline("p")
    pipeline.source("a")

    @pipeline.view
    def first(a, second):  # type: ignore[no-untyped-def]
        return a

    @pipeline.to_topic("out")
    def out(first):  # type: ignore[no-untyped-def]
        return first

    with pytest.raises(InvalidInput, match="'second', which is not declared"):
        pipeline.check()

    @pipeline.view
    def second(first):  # type: ignore[no-untyped-def]
        return first

    with pytest.raises(InvalidInput, match="is a dependency cycle"):
        pipeline.check()


def test_sources_are_topics_or_tables() -> None:
    pipeline = Pipeline("p")
    with pytest.raises(InvalidInput, match="not both"):
        pipeline.source("a", topic="t", table="default.t")
    with pytest.raises(InvalidInput, match="only a table has snapshots"):
        pipeline.source("a", snapshot=1)
    with pytest.raises(InvalidInput, match="no table 'a'"):
        pipeline.pin("a", 1)
    with pytest.raises(InvalidInput, match="is not a pipeline name"):
        Pipeline("a/b")


def test_places_are_options_of_the_source() -> None:
    assert bound("starting", None) == {}
    assert bound("starting", ("start", 0)) == {"startingOffsets": "earliest"}
    assert bound("ending", ("@", 5)) == {"endingTimestamp": "5"}
    with pytest.raises(InvalidInput, match="valid for one topic only"):
        bound("starting", ("+", 5))
