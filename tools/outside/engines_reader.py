"""A program that reads topics' tables with one engine. It runs with the engine's own packages.

    python engines_reader.py ENGINE CATALOG_URL FOLDER

Each line on standard input is `judge`, or the name of a table, or that and `before 1970`. For `judge` it reads the
whole table `default.orders`, in which the record at an offset of a partition has the value "partition-offset", and
answers with a line of JSON: the rows of each partition, and what is wrong with them. For a table it answers with the
rows (or those with timestamps before 1970), and what is wrong. Bytes are in hex, timestamps in microseconds.
"""

import datetime
import json
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

# partition, offset, timestamp, key, value, headers
Row = tuple[int, int, int, bytes | None, bytes | None, Any]
Read = Callable[[str, bool], Iterable[Row]]
COLUMNS = ("_partition_id", "_offset", "_timestamp", "_key", "_value", "_headers")
TABLE = "orders"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_IN_SQL = "_timestamp < TIMESTAMP '1970-01-01 00:00:00 UTC'"


def pyiceberg(catalog: str, _folder: str) -> Read:
    from pyiceberg.catalog import load_catalog

    found = load_catalog("m", type="rest", uri=catalog)

    def read(table: str, early: bool) -> Iterable[Row]:
        scan = found.load_table(("default", table)).scan(selected_fields=COLUMNS)
        return _of_arrow((scan.filter(f"_timestamp < '{EPOCH.isoformat()}'") if early else scan).to_arrow())

    return read


def polars(catalog: str, _folder: str) -> Read:
    import polars as pl  # type: ignore[import-not-found]
    from pyiceberg.catalog import load_catalog

    found = load_catalog("m", type="rest", uri=catalog)

    def read(name: str, early: bool) -> Iterable[Row]:
        table = found.load_table(("default", name))
        rows = pl.scan_iceberg(table, storage_options=table.io.properties).select(COLUMNS)
        if early:
            rows = rows.filter(pl.col("_timestamp") < EPOCH)
        return _of_arrow(rows.collect().to_arrow())

    return read


def daft(catalog: str, _folder: str) -> Read:
    import daft as engine  # type: ignore[import-not-found]
    from pyiceberg.catalog import load_catalog

    found = load_catalog("m", type="rest", uri=catalog)

    def read(name: str, early: bool) -> Iterable[Row]:
        rows = engine.read_iceberg(found.load_table(("default", name))).select(*COLUMNS)
        return _of_arrow((rows.where(rows["_timestamp"] < EPOCH) if early else rows).to_arrow())

    return read


def duckdb(catalog: str, _folder: str) -> Read:
    def read(table: str, early: bool) -> Iterable[Row]:
        with duckdb_connection(catalog) as connection:
            columns = ", ".join(COLUMNS).replace("_timestamp", "epoch_us(_timestamp)")
            where = f" WHERE {_IN_SQL}" if early else ""
            rows: list[Row] = connection.execute(
                f'SELECT {columns} FROM m."default"."{table}"{where}'
            ).fetchall()
            return rows

    return read


def duckdb_connection(catalog: str) -> Any:
    import duckdb as engine
    from duckdb_extensions import import_extension  # type: ignore[import-not-found]

    connection = engine.connect()
    for name in ("httpfs", "avro", "iceberg"):
        import_extension(name)
        connection.load_extension(name)
    connection.execute(f"ATTACH '' AS m (TYPE iceberg, ENDPOINT '{catalog}', AUTHORIZATION_TYPE 'none')")
    return connection


def spark(catalog: str, folder: str) -> Read:
    session = spark_session(catalog, folder)

    def read(name: str, early: bool) -> Iterable[Row]:
        table = f"m.default.`{name}`"
        # No column has a name that Iceberg reserves.
        session.sql(f"SELECT * FROM {table} LIMIT 1").collect()
        columns = ", ".join(COLUMNS).replace("_timestamp", "unix_micros(_timestamp)")
        where = f" WHERE {_IN_SQL}" if early else ""
        rows = session.sql(f"SELECT {columns} FROM {table}{where}").collect()
        return [(*row[:5], row[5] and [header.asDict() for header in row[5]]) for row in rows]

    return read


def spark_session(catalog: str, folder: str) -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": ",".join(f"{folder}/{name}" for name in json.loads(_text(f"{folder}/jars.json"))),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.m": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.m.type": "rest",
        "spark.sql.catalog.m.uri": catalog,
        "spark.sql.catalog.m.cache-enabled": "false",
        "spark.sql.catalog.m.header.X-Iceberg-Access-Delegation": "vended-credentials",
        "spark.sql.catalog.m.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "spark.sql.catalog.m.client.region": "us-east-1",
    }
    builder = SparkSession.builder.master("local[2]").appName("engines")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def trino(_catalog: str, folder: str) -> Read:
    import base64

    def bytes_of(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    def read(table: str, early: bool) -> Iterable[Row]:
        columns = ", ".join(COLUMNS).replace(
            "_timestamp", "CAST(round(to_unixtime(_timestamp) * 1000) AS bigint) * 1000"
        )
        where = f" WHERE {_IN_SQL}" if early else ""
        rows = trino_rows(folder, f'SELECT {columns} FROM m."default"."{table}"{where}')
        for row in rows:
            headers = row[5] and [{"key": key, "value": bytes_of(value)} for key, value in row[5]]
            yield row[0], row[1], row[2], bytes_of(row[3]), bytes_of(row[4]), headers

    return read


def trino_rows(folder: str, query: str) -> list[Any]:
    def ask(target: str, query: str | None) -> Any:
        request = urllib.request.Request(
            target, None if query is None else query.encode(), {"X-Trino-User": "test"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    answer = ask(f"http://{_text(f'{folder}/trino.address')}/v1/statement", query)
    rows: list[Any] = []
    while True:
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        rows += answer.get("data", ())
        if "nextUri" not in answer:
            return rows
        answer = ask(answer["nextUri"], None)


ENGINES: dict[str, Callable[[str, str], Read]] = {
    "pyiceberg": pyiceberg,
    "polars": polars,
    "daft": daft,
    "duckdb": duckdb,
    "spark": spark,
    "trino": trino,
}


def _of_arrow(rows: Any) -> Iterable[Row]:
    import pyarrow as pa

    columns = [rows.column(name) for name in COLUMNS]
    columns[2] = columns[2].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()


def _judged(rows: Iterable[Row]) -> tuple[dict[int, int], str]:
    offsets: dict[int, list[int]] = defaultdict(list)
    for partition, offset, _timestamp, _key, value, _headers in rows:
        if value is None or bytes(value) != b"%d-%d" % (partition, offset):
            return {}, f"partition {partition} has {value!r} at offset {offset}"
        offsets[partition].append(offset)
    for partition, found in offsets.items():
        if sorted(found) != list(range(len(found))):
            return {}, f"partition {partition} has {len(found)} rows up to offset {max(found)}"
    return {partition: len(found) for partition, found in offsets.items()}, ""


def _shown(row: Row) -> list[Any]:
    partition, offset, timestamp, key, value, headers = row
    named = [[header["key"], _hex(header["value"])] for header in headers or ()]
    return [partition, offset, timestamp, _hex(key), _hex(value), named]


def _hex(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).hex()


def main() -> None:
    engine, catalog, folder = sys.argv[1:4]
    read = ENGINES[engine](catalog, folder)
    for line in sys.stdin:
        began = time.monotonic()
        table, _, early = line.strip().partition(" ")
        found: Any = []
        wrong = ""
        try:
            if table == "judge":
                found, wrong = _judged(read(TABLE, False))
            else:
                found = sorted(map(_shown, read(table, bool(early))))
        except Exception as error:  # noqa: BLE001 - any of an engine's errors is its answer
            wrong = f"{type(error).__name__}: {error}"[:2000]
        print("ANSWER " + json.dumps([found, wrong, round(time.monotonic() - began, 2)]), flush=True)


if __name__ == "__main__":
    main()
