"""A program that writes tables of its own through the catalog with one engine. It runs with the engine's own packages.

    python engines_writer.py ENGINE CATALOG_URL FOLDER

It has only the URL of the catalog: files are written through the S3 door, with the credentials that the catalog vends.
Each check is one line of output: its name, and what was wrong with it. A check may use what those before it left.
"""

import datetime
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Checks = Iterator[tuple[str, Callable[[], None]]]
DAY = datetime.date(2026, 1, 2)
VALUES = "(1, 'one', DATE '2026-01-02'), (2, 'two', DATE '2026-01-02'), (3, 'three', NULL)"
ROWS = [(1, "one", DAY), (2, "two", DAY), (3, "three", None)]


def expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"{found!r}, not {wanted!r}")


def pyiceberg(catalog: str, _folder: str) -> Checks:
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.transforms import BucketTransform
    from pyiceberg.types import DoubleType

    shelf = load_catalog("m", type="rest", uri=catalog)
    shelf.create_namespace("by_pyiceberg")
    name = "by_pyiceberg.orders"
    rows = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "name": pa.array(["one", "two", "three"]),
            "day": pa.array([DAY, DAY, None]),
        }
    )

    def ids() -> list[int]:
        return sorted(shelf.load_table(name).scan().to_arrow().column("id").to_pylist())

    def create_and_append() -> None:
        shelf.create_table(name, rows.schema).append(rows)
        expect(ids(), [1, 2, 3])

    def overwrite_some() -> None:
        shelf.load_table(name).overwrite(rows.slice(0, 1), overwrite_filter="id = 2")
        expect(ids(), [1, 1, 3])

    def delete_some() -> None:
        shelf.load_table(name).delete("id = 1")
        expect(ids(), [3])

    def upsert() -> None:
        changed = shelf.load_table(name).upsert(rows, join_cols=["id"])
        expect((changed.rows_inserted, ids()), (2, [1, 2, 3]))

    def evolve() -> None:
        with shelf.load_table(name).update_schema() as update:
            update.add_column("price", DoubleType())
            update.rename_column("name", "title")
        expect(shelf.load_table(name).scan().to_arrow().column_names, ["id", "title", "day", "price"])

    def partition() -> None:
        with shelf.load_table(name).update_spec() as update:
            update.add_field("id", BucketTransform(4), "id_bucket")
        more = pa.table({"id": pa.array([4, 5], pa.int64())})
        shelf.load_table(name).append(more)
        expect(ids(), [1, 2, 3, 4, 5])

    def branches_and_tags() -> None:
        table = shelf.load_table(name)
        first = table.history()[0].snapshot_id
        table.manage_snapshots().create_tag(first, "first").create_branch(first, "trial").commit()
        table = shelf.load_table(name)
        table.append(pa.table({"id": pa.array([6], pa.int64())}), branch="trial")
        trial = shelf.load_table(name).scan().use_ref("trial").to_arrow()
        expect((ids(), sorted(trial.column("id").to_pylist())), ([1, 2, 3, 4, 5], [1, 2, 3, 6]))

    def replace_in_a_transaction() -> None:
        with shelf.load_table(name).transaction() as transaction:
            transaction.delete("id > 3")
            transaction.set_properties(owner="tests")
        expect((ids(), shelf.load_table(name).properties["owner"]), ([1, 2, 3], "tests"))

    def two_writers() -> None:
        one, two = shelf.load_table(name), shelf.load_table(name)
        more = pa.table({"id": pa.array([7], pa.int64())})
        one.append(more)
        try:
            two.append(more)
        except CommitFailedException:  # this version of PyIceberg leaves another attempt to its user
            shelf.load_table(name).append(more)
        expect(ids(), [1, 2, 3, 7, 7])

    def by_pandas() -> None:
        frame = shelf.load_table(name).scan(row_filter="id = 7").to_pandas()
        expect(list(frame["id"]), [7, 7])

    def purge() -> None:
        shelf.purge_table(name)
        expect(shelf.list_tables("by_pyiceberg"), [])
        shelf.drop_namespace("by_pyiceberg")

    for check in (create_and_append, overwrite_some, delete_some, upsert, evolve, partition):
        yield check.__name__, check
    for check in (branches_and_tags, replace_in_a_transaction, two_writers, by_pandas, purge):
        yield check.__name__, check


def polars(catalog: str, _folder: str) -> Checks:
    import polars as pl  # type: ignore[import-not-found]
    from pyiceberg.catalog import load_catalog

    shelf = load_catalog("m", type="rest", uri=catalog)
    shelf.create_namespace("by_polars")
    frame = pl.DataFrame({"id": [1, 2, 3], "name": ["one", "two", None]})

    def append() -> None:
        table = shelf.create_table("by_polars.orders", frame.to_arrow().schema)
        frame.write_iceberg(table, mode="append")
        frame.write_iceberg(table, mode="append")
        table = shelf.load_table("by_polars.orders")
        found = pl.scan_iceberg(table, storage_options=table.io.properties).collect()
        expect(sorted(found["id"]), [1, 1, 2, 2, 3, 3])

    def overwrite() -> None:
        table = shelf.load_table("by_polars.orders")
        frame.write_iceberg(table, mode="overwrite")
        table = shelf.load_table("by_polars.orders")
        found = pl.scan_iceberg(table, storage_options=table.io.properties).collect()
        expect(found.sort("id").rows(), frame.rows())

    for check in (append, overwrite):
        yield check.__name__, check


def duckdb(catalog: str, _folder: str) -> Checks:
    import duckdb as engine
    from duckdb_extensions import import_extension  # type: ignore[import-not-found]

    connection = engine.connect()
    for name in ("httpfs", "avro", "iceberg"):
        import_extension(name)
        connection.load_extension(name)
    connection.execute(f"ATTACH '' AS m (TYPE iceberg, ENDPOINT '{catalog}', AUTHORIZATION_TYPE 'none')")

    def rows(query: str) -> list[Any]:
        return connection.execute(query).fetchall()

    def create_and_insert() -> None:
        rows("CREATE SCHEMA m.by_duckdb")
        rows("CREATE TABLE m.by_duckdb.orders (id BIGINT, name VARCHAR, day DATE)")
        rows(f"INSERT INTO m.by_duckdb.orders VALUES {VALUES}")
        expect(rows("SELECT * FROM m.by_duckdb.orders ORDER BY id"), ROWS)

    def create_as() -> None:
        rows("CREATE TABLE m.by_duckdb.copy AS SELECT id, name FROM m.by_duckdb.orders")
        expect(rows("SELECT count(*) FROM m.by_duckdb.copy"), [(3,)])

    def delete_and_update() -> None:
        rows("DELETE FROM m.by_duckdb.orders WHERE id = 1")
        rows("UPDATE m.by_duckdb.orders SET name = 'zwei' WHERE id = 2")
        expect(rows("SELECT id, name FROM m.by_duckdb.orders ORDER BY id"), [(2, "zwei"), (3, "three")])

    def transaction() -> None:
        rows("BEGIN")
        rows("INSERT INTO m.by_duckdb.orders VALUES (8, 'eight', NULL)")
        rows("INSERT INTO m.by_duckdb.copy VALUES (8, 'eight')")
        rows("COMMIT")
        expect(rows("SELECT max(id) FROM m.by_duckdb.orders"), [(8,)])
        expect(rows("SELECT max(id) FROM m.by_duckdb.copy"), [(8,)])

    def rollback() -> None:
        rows("BEGIN")
        rows("INSERT INTO m.by_duckdb.orders VALUES (9, 'nine', NULL)")
        rows("ROLLBACK")
        expect(rows("SELECT max(id) FROM m.by_duckdb.orders"), [(8,)])

    def time_travel() -> None:
        found = rows("SELECT snapshot_id FROM iceberg_snapshots(m.by_duckdb.orders) ORDER BY sequence_number")
        first = found[0][0]
        expect(rows(f"SELECT count(*) FROM m.by_duckdb.orders AT (VERSION => {first})"), [(3,)])

    def from_a_topic() -> None:
        rows(
            "CREATE TABLE m.by_duckdb.sums AS SELECT _partition_id, count(*) AS n FROM m.default.plain GROUP BY 1"
        )
        expect(rows("SELECT sum(n) > 0 FROM m.by_duckdb.sums"), [(True,)])

    def drop() -> None:
        for name in ("orders", "copy", "sums"):
            rows(f"DROP TABLE m.by_duckdb.{name}")
        rows("DROP SCHEMA m.by_duckdb")

    for check in (create_and_insert, create_as, delete_and_update, transaction, rollback, time_travel):
        yield check.__name__, check
    for check in (from_a_topic, drop):
        yield check.__name__, check


def spark(catalog: str, folder: str) -> Checks:
    from engines_reader import spark_session  # type: ignore[import-not-found]

    session = spark_session(catalog, folder)
    session.sql("USE m")

    def rows(query: str) -> list[Any]:
        return [tuple(row) for row in session.sql(query).collect()]

    def run(*statements: str) -> None:
        for statement in statements:
            session.sql(statement).collect()

    def create_and_insert() -> None:
        run(
            "CREATE NAMESPACE by_spark",
            "CREATE TABLE by_spark.orders (id BIGINT, name STRING, day DATE) USING iceberg "
            "PARTITIONED BY (bucket(4, id))",
            f"INSERT INTO by_spark.orders VALUES {VALUES}",
        )
        expect(rows("SELECT * FROM by_spark.orders ORDER BY id"), ROWS)

    def merge() -> None:
        run(
            "MERGE INTO by_spark.orders t USING (SELECT * FROM VALUES (2, 'zwei'), (4, 'vier') AS s(id, name)) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.name = s.name "
            "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
        )
        expect(
            rows("SELECT id, name FROM by_spark.orders ORDER BY id"),
            [(1, "one"), (2, "zwei"), (3, "three"), (4, "vier")],
        )

    def merge_on_read() -> None:
        run(
            "ALTER TABLE by_spark.orders SET TBLPROPERTIES "
            "('write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read')",
            "DELETE FROM by_spark.orders WHERE id = 1",
            "UPDATE by_spark.orders SET name = 'four' WHERE id = 4",
        )
        expect(
            rows("SELECT id, name FROM by_spark.orders ORDER BY id"), [(2, "zwei"), (3, "three"), (4, "four")]
        )

    def merge_from_a_topic() -> None:
        run(
            "CREATE TABLE by_spark.newest (part INT, last BIGINT) USING iceberg TBLPROPERTIES ('format-version'='3')",
            "MERGE INTO by_spark.newest t "
            "USING (SELECT _partition_id AS part, max(_offset) AS last FROM default.plain GROUP BY 1) s "
            "ON t.part = s.part WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        )
        expect(rows("SELECT count(*) > 0 FROM by_spark.newest"), [(True,)])

    def deletion_vectors() -> None:
        run(
            "ALTER TABLE by_spark.newest SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')",
            "INSERT INTO by_spark.newest VALUES (100, 1), (101, 2)",
            "DELETE FROM by_spark.newest WHERE part = 100",
        )
        expect(rows("SELECT part FROM by_spark.newest WHERE part >= 100"), [(101,)])

    def evolve() -> None:
        run(
            "ALTER TABLE by_spark.orders ADD COLUMN price DECIMAL(10, 2)",
            "ALTER TABLE by_spark.orders RENAME COLUMN name TO title",
            "ALTER TABLE by_spark.orders ADD PARTITION FIELD truncate(1, title)",
            "ALTER TABLE by_spark.orders WRITE ORDERED BY id",
            "INSERT INTO by_spark.orders VALUES (5, 'five', NULL, 1.25)",
        )
        expect(
            rows("SELECT title, cast(price AS STRING) FROM by_spark.orders WHERE id = 5"), [("five", "1.25")]
        )

    def time_travel() -> None:
        first = rows("SELECT snapshot_id FROM by_spark.orders.snapshots ORDER BY committed_at")[0][0]
        expect(rows(f"SELECT count(*) FROM by_spark.orders VERSION AS OF {first}"), [(3,)])
        expect(rows(f"SELECT count(*) FROM by_spark.orders.`snapshot_id_{first}`"), [(3,)])

    def metadata_tables() -> None:
        for table in ("by_spark.orders", "default.plain"):
            names = (
                *(
                    "history",
                    "snapshots",
                    "files",
                    "manifests",
                    "partitions",
                    "refs",
                    "entries",
                    "metadata_log_entries",
                ),
                *(
                    "all_data_files",
                    "all_manifests",
                    "all_entries",
                    "position_deletes",
                    "delete_files",
                    "data_files",
                ),
            )
            for name in names:
                run(f"SELECT * FROM {table}.{name}")
            run(f"SELECT *, _file, _pos, _spec_id FROM {table}")
        expect(rows("SELECT count(*) FROM default.plain.snapshots")[0][0] > 0, True)

    def branches() -> None:
        run(
            "ALTER TABLE by_spark.orders CREATE BRANCH trial",
            "ALTER TABLE by_spark.orders CREATE TAG before RETAIN 10 DAYS",
            "INSERT INTO by_spark.orders.branch_trial VALUES (6, 'six', NULL, NULL)",
        )
        expect(
            rows(
                "SELECT (SELECT count(*) FROM by_spark.orders), "
                "(SELECT count(*) FROM by_spark.orders VERSION AS OF 'trial')"
            ),
            [(4, 5)],
        )
        run("CALL m.system.fast_forward('by_spark.orders', 'main', 'trial')")
        expect(rows("SELECT count(*) FROM by_spark.orders"), [(5,)])
        run("ALTER TABLE by_spark.orders DROP BRANCH trial", "ALTER TABLE by_spark.orders DROP TAG before")

    def write_audit_publish() -> None:
        run("ALTER TABLE by_spark.orders SET TBLPROPERTIES ('write.wap.enabled'='true')")
        session.conf.set("spark.wap.id", "audit-1")
        run("INSERT INTO by_spark.orders VALUES (7, 'seven', NULL, NULL)")
        session.conf.unset("spark.wap.id")
        expect(rows("SELECT count(*) FROM by_spark.orders"), [(5,)])
        run("CALL m.system.publish_changes('by_spark.orders', 'audit-1')")
        expect(rows("SELECT count(*) FROM by_spark.orders"), [(6,)])

    def maintenance() -> None:
        for call in (
            "rewrite_data_files(table => 'by_spark.orders', options => map('rewrite-all', 'true'))",
            "rewrite_manifests('by_spark.orders')",
            "rewrite_position_delete_files('by_spark.orders')",
            "expire_snapshots(table => 'by_spark.orders', older_than => TIMESTAMP '2100-01-01 00:00:00', "
            "retain_last => 1)",
        ):
            run(f"CALL m.system.{call}")
        expect(rows("SELECT count(*), count(DISTINCT id) FROM by_spark.orders"), [(6, 6)])
        expect(rows("SELECT count(*) FROM by_spark.orders.snapshots"), [(1,)])

    def changes() -> None:
        run("INSERT INTO by_spark.orders VALUES (10, 'ten', NULL, NULL)")
        run("CALL m.system.create_changelog_view(table => 'by_spark.orders', changelog_view => 'seen')")
        expect(rows("SELECT id, _change_type FROM seen WHERE id = 10"), [(10, "INSERT")])

    def changes_of_a_topic() -> None:
        run("CALL m.system.create_changelog_view(table => 'default.plain', changelog_view => 'plain_seen')")
        expect(rows("SELECT DISTINCT _change_type FROM plain_seen"), [("INSERT",)])

    def views() -> None:
        run("CREATE VIEW by_spark.large AS SELECT id FROM m.by_spark.orders WHERE id > 3")
        expect(rows("SELECT count(*) FROM by_spark.large"), [(5,)])
        run("DROP VIEW by_spark.large")

    def replace() -> None:
        run("CREATE OR REPLACE TABLE by_spark.orders USING iceberg AS SELECT 1 AS one")
        expect(rows("SELECT * FROM by_spark.orders"), [(1,)])

    def frames() -> None:
        frame = session.createDataFrame([(1, "a"), (2, "b")], "id long, name string")
        frame.writeTo("m.by_spark.frames").using("iceberg").create()
        frame.writeTo("m.by_spark.frames").append()
        frame.limit(1).writeTo("m.by_spark.frames").overwritePartitions()
        expect(rows("SELECT count(*) FROM by_spark.frames"), [(1,)])

    def a_topics_table_is_read_only() -> None:
        for statement in (
            "INSERT INTO default.plain SELECT * FROM default.plain",
            "DELETE FROM default.plain WHERE _offset = 0",
            "ALTER TABLE default.plain ADD COLUMN more INT",
            "DROP TABLE default.plain",
        ):
            try:
                run(statement)
            except Exception as error:  # noqa: BLE001 - each statement has its own kind
                expect("topic" in str(error) or "read-only" in str(error), True)
            else:
                raise AssertionError(f"{statement} was accepted")

    def drop() -> None:
        for name in ("orders", "newest", "frames"):
            run(f"DROP TABLE by_spark.{name} PURGE")
        run("DROP NAMESPACE by_spark")

    for check in (create_and_insert, merge, merge_on_read, merge_from_a_topic, deletion_vectors, evolve):
        yield check.__name__, check
    for check in (time_travel, metadata_tables, branches, write_audit_publish, maintenance, changes):
        yield check.__name__, check
    for check in (changes_of_a_topic, views, replace, frames, a_topics_table_is_read_only, drop):
        yield check.__name__, check


def trino(_catalog: str, folder: str) -> Checks:
    from engines_reader import trino_rows

    def rows(query: str) -> list[Any]:
        return [tuple(row) for row in trino_rows(folder, query)]

    def run(*statements: str) -> None:
        for statement in statements:
            rows(statement)

    def create_and_insert() -> None:
        run(
            "CREATE SCHEMA m.by_trino",
            "CREATE TABLE m.by_trino.orders (id BIGINT, name VARCHAR, day DATE) "
            "WITH (partitioning = ARRAY['bucket(id, 4)'])",
            f"INSERT INTO m.by_trino.orders VALUES {VALUES}",
        )
        expect(
            rows("SELECT * FROM m.by_trino.orders ORDER BY id"),
            [(1, "one", "2026-01-02"), (2, "two", "2026-01-02"), (3, "three", None)],
        )

    def merge() -> None:
        run(
            "MERGE INTO m.by_trino.orders t USING (VALUES (2, 'zwei'), (4, 'vier')) AS s(id, name) ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
        )
        expect(
            rows("SELECT id, name FROM m.by_trino.orders ORDER BY id"),
            [(1, "one"), (2, "zwei"), (3, "three"), (4, "vier")],
        )

    def time_travel() -> None:
        first = rows('SELECT snapshot_id FROM m.by_trino."orders$snapshots" ORDER BY committed_at')[-2][0]
        expect(rows(f"SELECT count(*) FROM m.by_trino.orders FOR VERSION AS OF {first}"), [(3,)])

    def metadata_tables() -> None:
        for table in ("by_trino.orders", "default.plain"):
            schema, name = table.split(".")
            for kind in ("history", "snapshots", "files", "manifests", "partitions", "refs", "properties"):
                run(f'SELECT * FROM m.{schema}."{name}${kind}"')

    def maintenance() -> None:
        run("ALTER TABLE m.by_trino.orders EXECUTE optimize", "ANALYZE m.by_trino.orders")
        expect(rows("SELECT count(*) FROM m.by_trino.orders"), [(4,)])

    def create_as_from_a_topic() -> None:
        run(
            "CREATE TABLE m.by_trino.sums AS SELECT _partition_id, count(*) AS n FROM m.default.plain GROUP BY 1"
        )
        expect(rows("SELECT sum(n) > 0 FROM m.by_trino.sums"), [(True,)])

    def views() -> None:
        run("CREATE VIEW m.by_trino.large AS SELECT id FROM m.by_trino.orders WHERE id > 3")
        expect(rows("SELECT * FROM m.by_trino.large"), [(4,)])
        run("DROP VIEW m.by_trino.large")

    def drop() -> None:
        run("DROP TABLE m.by_trino.orders", "DROP TABLE m.by_trino.sums", "DROP SCHEMA m.by_trino")

    for check in (create_and_insert, merge, time_travel, metadata_tables, maintenance):
        yield check.__name__, check
    for check in (create_as_from_a_topic, views, drop):
        yield check.__name__, check


ENGINES: dict[str, Callable[[str, str], Iterable[tuple[str, Callable[[], None]]]]] = {
    "pyiceberg": pyiceberg,
    "polars": polars,
    "duckdb": duckdb,
    "spark": spark,
    "trino": trino,
}


def main() -> None:
    engine, catalog, folder = sys.argv[1:4]
    for name, check in ENGINES[engine](catalog, folder):
        wrong = ""
        try:
            check()
        except Exception as error:  # noqa: BLE001 - any of an engine's errors is the result of the check
            traceback.print_exc()
            wrong = f"{type(error).__name__}: {error}"[:2000]
        print("RESULT " + json.dumps([name, wrong]), flush=True)


if __name__ == "__main__":
    main()
