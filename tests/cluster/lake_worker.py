"""Runs beside a cluster on Spark: the lake's work once, then a topic read with the source, as JSON lines.

python lake_worker.py URL TOPIC
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from mainstem.spark.driver.process import run_driver
from mainstem.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader


def main(url: str, topic: str) -> None:
    spark = open_session("cluster lake", master="local[2,2]")
    reader = spark.read.format("mainstem").option("url", url)
    _say({"before": _offsets(reader, topic)})
    driver_status = run_driver(url, once=True)
    failing = [one.error for one in driver_status.failing()]
    _say({"failing": failing, "tables_error": driver_status.tables_error})
    _say({"after": _offsets(reader, topic)})


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")


def _offsets(reader: DataFrameReader, topic: str) -> list[list[object]]:
    rows = reader.load(topic).select("partition", "offset", "value").collect()
    return sorted([row.partition, row.offset, bytes(row.value).decode()] for row in rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
