"""SQL over topics: what is in Parquet files, what is only in the log, and what a query must not reach."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import mainstem
from mainstem import limits
from mainstem.errors import InvalidInput, TopicNotFound
from mainstem.tables.sql import engine
from mainstem.tables.sql.messages import (
    ParseQuery,
    QueryDone,
    QueryFailed,
    RunQuery,
    framed,
    read_frame,
    replies,
)
from mainstem.tables.sql.parsing import quoted_default
from mainstem.tables.sql.workers import SqlWorker, SqlWorkers
from mainstem.testing.server import ServerProcess
from tests.support.cluster import eventually

from .tabling import Tabling, numbers, tabling

COLUMNS = [{"name": "n", "type": "long"}]
ENVELOPE = ["_partition_id", "_offset", "_timestamp", "_key", "_value", "_headers"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabling]:
    with tabling(tmp_path_factory.mktemp("sql") / "data") as started:
        yield started


def ask(lake: Tabling, query: str, **more: object) -> Any:
    return lake.ask("POST", "/v0/sql", {"query": query, **more})


def rows(lake: Tabling, query: str) -> Any:
    return ask(lake, query)["rows"]


def refused(lake: Tabling, query: str, **more: object) -> tuple[int, str]:
    answer = lake.http.post("/v0/sql", json={"query": query, **more})
    return answer.status_code, answer.json()["error"]["message"]


def test_answers_are_current_wherever_the_records_are(lake: Tabling) -> None:
    lake.topic("orders")
    lake.write("orders", *numbers(0, 5))
    assert rows(lake, "SELECT count(*) FROM orders") == [[5]]
    assert [column["name"] for column in ask(lake, "SELECT * FROM default.orders")["columns"]] == ENVELOPE
    lake.enable("orders", schema=COLUMNS)
    assert rows(lake, "SELECT sum(n), count(*) FROM default.orders") == [[10, 5]]  # only in the log
    lake.work()
    lake.publish()
    lake.write("orders", *numbers(5, 8))
    query = "SELECT sum(n), count(*), max(_offset) FROM orders"
    assert rows(lake, query) == [[28, 8, 7]]  # in a file and in the log
    lake.write("orders", {"n": 100})
    assert rows(lake, query) == [[128, 9, 8]]  # decoded before, and since
    lake.ask("POST", "/v0/topics/orders/delete", {"before_seq": 2})
    lake.work()
    assert rows(lake, "SELECT min(_offset), count(*) FROM orders") == [[1, 8]]
    found = ask(lake, "SELECT * FROM orders ORDER BY _offset LIMIT 1")
    assert [column["name"] for column in found["columns"]] == [*ENVELOPE, "n"]
    assert found["rows"][0][1:2] + found["rows"][0][4:] == [1, '{"n":1}', [], 1]


def test_deleted_records_are_not_found_in_a_file_that_still_has_them(lake: Tabling) -> None:
    lake.topic("holes")
    lake.enable("holes", schema=COLUMNS)
    records = [{"data": value, "tag": f"t{value['n']}"} for value in numbers(0, 10)]
    lake.ask("POST", "/v0/topics/holes", {"records": records})
    lake.work("materialise")
    lake.ask("POST", "/v0/topics/holes/delete", {"match": ["tag", "Eq", "t3"]})
    assert rows(lake, "SELECT list(n ORDER BY n) FROM holes") == [[[0, 1, 2, 4, 5, 6, 7, 8, 9]]]
    assert rows(lake, "SELECT count(*) FROM __rows_0_0, holes WHERE __rows_0_0.n = 3")[0] == [0]


def test_names_of_topics_are_those_of_the_catalog_and_their_own(lake: Tabling) -> None:
    lake.ask("PUT", "/v0/namespaces/acme", {})
    lake.ask("PUT", "/v0/namespaces/acme%2Fshop", {})
    for name in ("acme/a", "acme/shop/b", "with-dash.and.dot"):
        lake.ask("PUT", f"/v0/topics/{name.replace('/', '%2F')}", {"durability": "disk"})
        lake.ask("POST", f"/v0/topics/{name.replace('/', '%2F')}", {"records": [{"data": 1}]})
    for spelled in (
        "acme.a",
        '"acme/a"',
        "acme.shop.b",
        '"acme.shop".b',
        '"with-dash.and.dot"',
        "with_dash_and_dot",
        "default.with_dash_and_dot",
    ):
        assert rows(lake, f"SELECT count(*) FROM {spelled}") == [[1]], spelled
    both = "WITH a AS (FROM acme.a) SELECT count(*) FROM a, acme.shop.b AS b, default.with_dash_and_dot"
    assert rows(lake, both) == [[1]]


def test_the_namespace_default_is_quoted_where_it_is_a_name() -> None:
    query = """SELECT 'default.a', "default.b" /* default.c */ FROM default.d -- default.e"""
    assert quoted_default(query) == query.replace("FROM default.d", 'FROM "default".d')


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM read_parquet('http://127.0.0.1:1/x.parquet')",
        "COPY (SELECT 1) TO 'stolen.csv'",
        "ATTACH 'stolen.db' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "RESET memory_limit",
        "PRAGMA enable_profiling",
        "CREATE TABLE t AS SELECT 1",
        "EXPORT DATABASE 'stolen'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'stolen.csv'",
        "SELECT 1; SELECT 2",
        "SELEC 1",
        "SELECT no_such_column FROM kept",
    ],
)
def test_a_query_only_reads_topics(lake: Tabling, query: str) -> None:
    lake.topic("kept")
    assert refused(lake, query)[0] == 400
    assert rows(lake, "SELECT 1") == [[1]]


@pytest.mark.parametrize("path", [".tmp/x", ".tmp/*", "x", "*", "./.tmp/../x", ".duckdb/x"])
def test_a_query_reads_no_file_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Nor of the directory there that DuckDB would spill to."""
    monkeypatch.chdir(tmp_path)
    for name in ("x", ".tmp/x", ".duckdb/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("secret")
    answer = engine.SqlEngine().answer(RunQuery(f"SELECT content FROM read_text('{path}')", [], 9, "json"))
    assert isinstance(answer, QueryFailed)
    assert "disabled" in answer.message


def test_a_query_has_limits(lake: Tabling) -> None:
    found = ask(lake, "FROM range(100)", limit=7)
    assert (len(found["rows"]), found["truncated"]) == (7, True)
    assert ask(lake, "FROM range(7)", limit=7)["truncated"] is False
    status, text = refused(lake, "SELECT count(*) FROM range(100000) a, range(1000000000) b", timeout_ms=300)
    assert (status, "more than 300 ms" in text) == (408, True)
    assert refused(lake, "SELECT * FROM nothing")[0] == 404
    assert rows(lake, "SELECT 1") == [[1]]


def test_a_query_that_needs_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine.DUCKDB_CONFIG, "memory_limit", "32MB")
    query = "SELECT list(repeat('x', 1000000) || range) FROM range(100)"
    answer = engine.SqlEngine().answer(RunQuery(query, [], 1, "json"))
    assert isinstance(answer, QueryFailed)
    assert (answer.kind, "fewer columns or rows" in answer.message) == ("too_large", True)


def test_a_prepared_worker_has_loaded_what_a_query_needs() -> None:
    """In a process of its own: here other tests have loaded it."""
    program = """
import sys
from mainstem.tables.sql.engine import SqlEngine
from mainstem.tables.sql.messages import Prepare, Prepared
engine = SqlEngine()
assert isinstance(engine.answer(Prepare()), Prepared), engine.answer(Prepare())
print("numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "True"


async def test_a_query_that_comes_while_a_worker_is_prepared_waits_for_that_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[SqlWorker] = []
    start = SqlWorker.start

    async def counted(store_url: str) -> SqlWorker:
        started.append(await start(store_url))
        return started[-1]

    monkeypatch.setattr(SqlWorker, "start", counted)
    workers = SqlWorkers("")
    try:
        workers.prepare()
        async with workers.worker() as worker:
            answer = await worker.ask(
                RunQuery("SELECT 42", [], 1, "json"), asyncio.get_running_loop().time() + 60
            )
        assert isinstance(answer, QueryDone)
        assert started == [worker]
    finally:
        await workers.close()


def test_rows_that_are_large_are_cut_to_the_size_of_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.tables.sql.engine.SQL_RESULT_BYTES_MAX", 100_000)
    answer = engine.SqlEngine().answer(
        RunQuery("SELECT repeat('x', 10000) FROM range(100)", [], 1000, "json")
    )
    assert isinstance(answer, QueryDone)
    assert (answer.truncated, 0 < len(answer.body) <= 110_000) == (True, True)


def test_a_value_that_cannot_be_converted_is_the_querys_fault_wherever_it_is(lake: Tabling) -> None:
    """DuckDB reports it in another way once it has given the first rows."""
    for wrong in (0, 50_000):
        query = f"SELECT CASE WHEN range = {wrong} THEN 'x' ELSE '1' END::INT FROM range(60000)"
        status, text = refused(lake, query, limit=60_000)
        assert (status, "Could not convert string" in text) == (400, True)


def test_no_query_takes_more_memory_than_its_limit(lake: Tabling) -> None:
    """Neither DuckDB nor the result: a list of 30 M numbers fits into DuckDB's share, but not as values of Python."""
    broker = psutil.Process(lake.server.pid)

    def ask_for_numbers(count: int) -> str:
        query = f"SELECT list(range) FROM range({count})"
        return lake.http.post("/v0/sql", json={"query": query}, timeout=60).text

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask_for_numbers, 30_000_000)
        peak = 0
        while not answer.done():
            for child in broker.children():
                with contextlib.suppress(psutil.Error):
                    peak = max(peak, child.memory_info().rss)
            wait([answer], 0.02)
    assert "1024 MiB of memory" in answer.result()
    assert 0 < peak < limits.SQL_MEMORY_BYTES + 300 * limits.MIB  # and what a worker has at its start
    assert json.loads(ask_for_numbers(10))["rows"] == [[list(range(10))]]


@pytest.mark.parametrize(
    "value",
    ["DATE 'infinity'", "[DATE 'infinity']", "{'a': [DATE 'infinity']}", "MAP([1], [DATE 'infinity'])"],
)
def test_times_that_python_cannot_represent_have_a_form_in_json(value: str) -> None:
    answer = engine.SqlEngine().answer(RunQuery(f"SELECT {value}", [], 1, "json"))
    assert isinstance(answer, QueryDone)
    assert json.loads(answer.body)["rows"]


def test_values_of_every_kind_have_a_form_in_json(lake: Tabling) -> None:
    query = (
        "SELECT encode('ä'), '\\xFF'::BLOB, 9007199254740993, 'nan'::DOUBLE, 1.5::DECIMAL(9, 2), DATE '2024-02-29', "
        "TIMESTAMPTZ '2024-02-29 01:02:03+00', {'a': [1, NULL]}, NULL"
    )
    found = rows(lake, query)[0]
    assert found == [
        "ä",
        *("/w==", "9007199254740993", "nan", "1.50", "2024-02-29", "2024-02-29T01:02:03+00:00"),
        *({"a": [1, None]}, None),
    ]


def test_the_client_and_the_command_line_answer(lake: Tabling) -> None:
    lake.topic("seen")
    lake.write("seen", *numbers(0, 3))
    with mainstem.Client(lake.url) as client:
        table = client.sql("SELECT _offset AS place FROM seen ORDER BY place").arrow()
        assert table.to_pydict() == {"place": [0, 1, 2]}
        assert client.sql("SELECT count(*) AS c FROM seen").pandas()["c"].tolist() == [3]
        assert client.sql("FROM range(9)", limit=2).truncated
        with pytest.raises(TopicNotFound):
            client.sql("SELECT * FROM nothing")
        with pytest.raises(InvalidInput, match="only queries that read"):
            client.sql("DROP TABLE seen")
    command = [sys.executable, "-m", "mainstem", "sql", "--url", lake.url, "--json"]
    told = subprocess.run(
        [*command, "SELECT count(*) AS c FROM seen"], capture_output=True, text=True, check=True
    )
    assert json.loads(told.stdout) == {"c": 3}


def test_a_query_reads_only_what_its_sender_may_read(tmp_path: Path) -> None:
    keys = "boss,reader:r:open."
    with ServerProcess(tmp_path / "data", "--text", "off", "--kafka", "off", "--api-keys", keys) as server:
        url = f"http://{server.address('http')}"
        boss = {"authorization": "Bearer boss"}
        reader = {"authorization": "Bearer reader"}
        with httpx.Client(base_url=url, timeout=60) as http:
            for topic in ("open.one", "closed.two"):
                http.put(f"/v0/topics/{topic}", json={}, headers=boss).raise_for_status()

            def status(query: str, headers: dict[str, str]) -> int:
                return http.post("/v0/sql", json={"query": query}, headers=headers).status_code

            both = 'SELECT count(*) FROM "open.one", "closed.two"'
            assert status(both, boss) == 200
            assert status('FROM "open.one"', reader) == 200
            assert status(both, reader) == 403
            assert status("FROM closed_two", reader) == 403
            assert status("WITH x AS (FROM default.closed_two) FROM x", reader) == 403
            hidden, missing = (
                http.post("/v0/sql", json={"query": f"FROM {name}"}, headers=reader)
                for name in ("closed_two", "closed_six")
            )
            assert (hidden.status_code, missing.status_code) == (403, 403)
            # Nothing tells that there is a topic, nor its real name.
            assert hidden.text.replace("closed_two", "closed_six") == missing.text
            assert status("SELECT * FROM query('FROM closed_two')", reader) == 400
            assert status("SELECT 1", {}) == 401
        server.terminate()


def test_a_query_stops_when_its_sender_leaves(lake: Tabling) -> None:
    endless = "SELECT count(*) FROM range(100000) a, range(1000000000) b"
    body = {"query": endless, "timeout_ms": 60_000}
    for _ in range(4):  # more than there are workers: one that went on would block those after it
        with pytest.raises(httpx.ReadTimeout):
            lake.http.post("/v0/sql", json=body, timeout=httpx.Timeout(30, read=0.3))
    assert rows(lake, "SELECT 1") == [[1]]


def test_decimals_lists_and_structs_are_the_same_in_every_reader(lake: Tabling) -> None:
    lake.topic("nested")
    kinds = {"price": "decimal(9, 2)", "tags": "list<string>", "place": "struct<x: int, y: list<long>>"}
    lake.enable("nested", schema=[{"name": name, "type": kind} for name, kind in kinds.items()])
    lake.write(
        "nested", {"price": -1.5, "tags": ["a", "b"], "place": {"x": 1, "y": [2, 3]}}, {"price": "300.25"}
    )
    query = "SELECT price, tags, place.x, place.y FROM nested ORDER BY price"
    expected = [["-1.50", ["a", "b"], 1, [2, 3]], ["300.25", None, None, None]]
    assert rows(lake, query) == expected  # from the log
    lake.work()
    lake.publish()
    assert rows(lake, query) == expected  # from the file
    found = (
        lake.table("nested")
        .scan(row_filter="price < 0", selected_fields=("price", "tags", "place"))
        .to_arrow()
    )
    assert found.to_pylist() == [
        {"price": Decimal("-1.50"), "tags": ["a", "b"], "place": {"x": 1, "y": [2, 3]}}
    ]
    assert not lake.table("nested").scan(row_filter="price > 301").to_arrow().num_rows
    lake.enable(
        "nested",
        schema=[*({"name": n, "type": k} for n, k in kinds.items()), {"name": "l", "type": "list<int>"}],
    )
    lake.work("rewrite")
    lake.publish()
    assert lake.operations("nested") == ["append", "overwrite"]


def test_a_worker_is_ready_before_the_first_query_of_the_console(tmp_path: Path) -> None:
    with tabling(tmp_path / "data", "--text", "off", "--kafka", "off") as started:
        started.topic("t")
        started.http.get("/")  # as programs that check whether the server is there
        for _ in range(2):
            assert started.http.get("/", headers={"sec-fetch-mode": "navigate"}).status_code == 200
        eventually(lambda: _workers_started(started), bool)
        assert started.ask("POST", "/v0/sql", {"query": "SELECT count(*) FROM t"})["rows"] == [[0]]
        assert _workers_started(started) == 1


def _workers_started(lake: Tabling) -> int:
    return sum(line.get("event") == "worker started" for line in list(lake.server.lines))


def test_a_worker_ends_only_once_its_query_is_answered() -> None:
    # A worker that has used up its memory at every request.
    program = (
        "from mainstem.tables.sql import memory, worker\nmemory.MemoryBound.spent = True\nworker.main()\n"
    )
    query = "SELECT 1 AS one"
    requests = (ParseQuery(query), RunQuery(query, [], 10, "json"), ParseQuery(query))
    sent = b"".join(framed(each) for each in requests)
    done = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, timeout=60)
    stream = io.BytesIO(done.stdout)
    answers = [replies.decode(frame) for frame in iter(lambda: read_frame(stream), None)]
    assert [(type(each.answer).__name__, each.last) for each in answers] == [
        ("QueryParsed", False),
        ("QueryDone", True),
    ]


def test_a_lower_bound_of_the_machine_stays() -> None:
    program = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (900 << 20, 900 << 20))\n"
        "from mainstem.tables.sql.memory import MemoryBound\n"
        "MemoryBound()\n"
        "print(resource.getrlimit(resource.RLIMIT_DATA))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == (str((900 << 20, 900 << 20)), "")
