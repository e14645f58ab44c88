"""Iceberg tables of a broker's catalog as pipeline sources and sinks, through Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mainstem.address import Address
from mainstem.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyspark.sql import DataFrame, SparkSession

_TOPIC_PROPERTY = "mainstem.topic"  # set on a topic's table
_BATCH_PROPERTY = "mainstem.batch."  # plus the query's id: the last batch of the query in the table


def open_catalog(url: str, api_key: str = "") -> Catalog:
    """The Iceberg catalog that a broker serves. Files are read and written through the broker's S3 door."""
    from pyiceberg.catalog import load_catalog

    properties = {"type": "rest", "uri": f"{url.rstrip('/')}/iceberg"}
    if api_key:
        properties["token"] = api_key
    return load_catalog("mainstem", **properties)


def table_frame(spark: SparkSession, catalog: Catalog, name: str, snapshot: int | None = None) -> DataFrame:
    """A table as of now or at a snapshot. Raises InvalidInput if it does not exist."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        raise InvalidInput(f"table {name!r} does not exist") from None
    if snapshot is not None and table.snapshot_by_id(snapshot) is None:
        raise InvalidInput(f"table {name!r} has no snapshot {snapshot}: it expired or never existed")
    scan = table.scan(snapshot_id=snapshot)
    files = _local_files(spark, catalog, name, snapshot) if _TOPIC_PROPERTY in table.properties else []
    if files:
        empty = spark.createDataFrame(scan.projection().as_arrow().empty_table())
        return spark.read.schema(empty.schema).parquet(*files)
    return spark.createDataFrame(scan.to_arrow())


def _local_files(spark: SparkSession, catalog: Catalog, name: str, snapshot: int | None) -> list[str]:
    """The files of a topic's table, if Spark can read them directly and skip columns and rows that a query does not
    need. Columns of these tables are never renamed, and there are no row-level deletes."""
    from pyiceberg.catalog import load_catalog

    local = (spark.conf.get("spark.master", "") or "").startswith("local")
    if not local or not Address(urlsplit(catalog.properties["uri"]).hostname or "", 0).loopback:
        return []
    # A client that asks for no access through the S3 door gets the paths of the files.
    plain = load_catalog(catalog.name, **catalog.properties, **{"header.X-Iceberg-Access-Delegation": "none"})
    scan = plain.load_table(name).scan(snapshot_id=snapshot)
    files = [task.file.file_path for task in scan.plan_files()]
    return files if all(path.startswith("file:") for path in files) else []


class TableSink:
    """Appends a query's batches to a table, each once: one commit has the rows and the batch number."""

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog = catalog
        self._name = name

    def add(self, rows: pa.Table, query: str, batch: int) -> bool:
        """False if the table already has the batch."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            table = self._create(rows.schema)
        last_batch = f"{_BATCH_PROPERTY}{query}"
        if batch <= int(table.properties.get(last_batch, "-1")):
            return False
        with table.transaction() as transaction:
            if rows.num_rows:
                transaction.append(rows)
            transaction.set_properties({last_batch: str(batch)})
        return True

    def _create(self, schema: pa.Schema) -> Any:
        self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        return self._catalog.create_table_if_not_exists(self._name, schema)
