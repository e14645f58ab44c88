"""Users' own tables, through PyIceberg."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.types import DoubleType

from mainstem.testing.server import ServerProcess

from .tabling import Tabling, numbers, tabling

SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string())])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabling]:
    with tabling(tmp_path_factory.mktemp("catalog") / "data") as started:
        yield started


def rows(*numbers: int) -> pa.Table:
    return pa.table({"x": list(numbers), "s": [str(number) for number in numbers]}, schema=SCHEMA)


def test_a_table_is_written_evolved_and_read(lake: Tabling) -> None:
    catalog = lake.catalog()
    catalog.create_namespace("mine", {"owner": "me"})
    table = catalog.create_table("mine.t", SCHEMA)
    table.append(rows(1, 2))
    with table.update_schema() as update:
        update.add_column("z", DoubleType())
    table.append(pa.table({"x": [3], "s": ["3"], "z": [0.5]}))
    table.delete("x = 1")
    found = lake.catalog().load_table("mine.t").scan().to_arrow().sort_by("x").to_pylist()
    assert found == [{"x": 2, "s": "2", "z": None}, {"x": 3, "s": "3", "z": 0.5}]
    properties = catalog.load_namespace_properties("mine")
    assert properties.pop("location").endswith("/objects/tables/mine")  # where Trino creates tables
    assert properties == {"owner": "me"}


def test_errors_are_the_ones_clients_know(lake: Tabling) -> None:
    catalog = lake.catalog()
    catalog.create_namespace("errs")
    catalog.create_table("errs.t", SCHEMA)
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace("errs")
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace("errs")
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables("nowhere")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("errs.none")
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("errs.t", SCHEMA)
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table("nowhere.t", SCHEMA)
    catalog.drop_table("errs.t")
    catalog.drop_namespace("errs")
    assert not catalog.namespace_exists("errs")


def test_a_table_created_in_a_transaction_is_there_with_its_rows(lake: Tabling) -> None:
    catalog = lake.catalog()
    with catalog.create_table_transaction("default.staged", SCHEMA) as change:
        change.append(rows(7))
        assert not lake.catalog().table_exists("default.staged")
    assert lake.catalog().load_table("default.staged").scan().to_arrow().column("x").to_pylist() == [7]


def test_a_table_moves_leaves_and_is_taken_in_again(lake: Tabling) -> None:
    catalog = lake.catalog()
    table = catalog.create_table("default.first", SCHEMA)
    table.append(rows(1))
    catalog.rename_table("default.first", "default.second")
    location = catalog.load_table("default.second").metadata_location
    catalog.drop_table("default.second")
    assert not catalog.table_exists("default.second")
    assert catalog.register_table("default.third", location).scan().count() == 1
    folder = Path(catalog.load_table("default.third").location().removeprefix("file://"))
    catalog.purge_table("default.third")
    assert [file for file in folder.rglob("*") if file.is_file()] == []


def test_writers_side_by_side_lose_no_rows(lake: Tabling) -> None:
    lake.catalog().create_table("default.shared", SCHEMA, properties={"commit.retry.num-retries": "50"})
    failures: list[BaseException] = []

    def write(start: int) -> None:
        try:
            table = lake.catalog().load_table("default.shared")
            for number in range(start, start + 5):
                table.append(rows(number))
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    found = lake.catalog().load_table("default.shared").scan().to_arrow().column("x").to_pylist()
    assert sorted(found) == [start + number for start in (0, 100, 200) for number in range(5)]


def test_of_two_schema_changes_from_one_state_the_second_fails(lake: Tabling) -> None:
    lake.catalog().create_table("default.torn", SCHEMA, properties={"commit.retry.num-retries": "0"})
    one, other = (lake.catalog().load_table("default.torn") for _ in range(2))
    with one.update_schema() as update:
        update.add_column("a", DoubleType())
    with pytest.raises(CommitFailedException), other.update_schema() as update:
        update.add_column("b", DoubleType())


def test_tables_outlive_their_server_being_killed(tmp_path: Path) -> None:
    with tabling(tmp_path / "data") as lake:
        table = lake.catalog().create_table("default.kept", SCHEMA)
        for number in range(3):
            table.append(rows(number))
        lake.restart_killed()
        table = lake.catalog().load_table("default.kept")
        table.append(rows(3))
        assert sorted(table.scan().to_arrow().column("x").to_pylist()) == [0, 1, 2, 3]


def test_a_key_is_a_bearer_token(tmp_path: Path) -> None:
    keys = {"MAINSTEM_API_KEYS": "boss,reader:read"}
    with ServerProcess(tmp_path / "data", "--text", "off", "--kafka", "off", env=keys) as server:
        uri = f"http://{server.address('http')}/iceberg"
        load_catalog("m", type="rest", uri=uri, token="boss").create_table("default.t", SCHEMA)
        reader = load_catalog("m", type="rest", uri=uri, token="reader")
        assert reader.load_table("default.t").scan().count() == 0
        with pytest.raises(ForbiddenError):
            reader.create_table("default.u", SCHEMA)
        with pytest.raises(UnauthorizedError):
            load_catalog("m", type="rest", uri=uri)


def test_other_engines_read_the_files_that_a_topics_table_names(lake: Tabling) -> None:
    lake.topic("files")
    lake.enable("files", schema=[{"name": "n", "type": "long"}])
    lake.write("files", *numbers(0, 10))
    lake.work()
    lake.publish()
    paths = [task.file.file_path.removeprefix("file://") for task in lake.table("files").scan().plan_files()]
    found = duckdb.connect().execute("select sum(n), max(_offset) from read_parquet(?)", [paths]).fetchone()
    assert found == (45, 9)
