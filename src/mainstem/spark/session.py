"""The Spark session of the lake's jobs: one long-lived JVM."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.errors import SparkMissing
from mainstem.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_ENV = "MAINSTEM_SPARK_MASTER"
# Two attempts at a task: a Python worker that was killed must not fail the whole job.
MASTER_DEFAULT = "local[*,2]"

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = Path(__file__).with_name("log4j2.properties")
_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # From the first line on: by the time Spark's own setting of the level counts, it has said a good deal.
    _JAVA_OPTIONS: f'"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"',
    "spark.sql.python.filterPushdown.enabled": "true",
}


def open_session(
    name: str = "mainstem lake", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session, made with the first Java found; in a process that has one already, that one.

    `settings` go over ours. Raises SparkMissing."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkMissing("the lake's jobs need PySpark: pip install 'mainstem[spark]'") from None
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark warns about the name of the machine
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ["JAVA_HOME"] = str(find_java(os.environ))
    # Workers are Pythons like this one, so that they find the same packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    builder = builder.master(master or os.environ.get(MASTER_ENV) or MASTER_DEFAULT)
    for key, value in _over(_local(master), settings or {}).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise SparkMissing(f"Spark does not start: {error}") from error


def _over(ours: Mapping[str, str], settings: Mapping[str, str]) -> Mapping[str, str]:
    """Settings over ours; options of Java go behind ours."""
    given = dict(settings)
    if _JAVA_OPTIONS in ours and _JAVA_OPTIONS in given:
        given[_JAVA_OPTIONS] = f"{ours[_JAVA_OPTIONS]} {given[_JAVA_OPTIONS]}"
    return {**ours, **given}


def _local(master: str | None) -> Mapping[str, str]:
    """Settings for a JVM of our own. A cluster has its own memory and addresses."""
    chosen = master or os.environ.get(MASTER_ENV) or MASTER_DEFAULT
    if chosen.startswith("local"):
        # Else Spark leaves a folder wherever it was started, although no table of ours is in there.
        warehouse = Path(tempfile.gettempdir()) / f"mainstem-spark-{os.getuid()}"
        return {**_SETTINGS, "spark.sql.warehouse.dir": warehouse.as_uri()}
    return {key: value for key, value in _SETTINGS.items() if key.startswith("spark.sql.")}
