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
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # which spark-submit sets for the Python program that it starts
# Two attempts at a task: one killed Python worker must not fail the whole job.
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
    # Set at JVM start: Spark's own log level setting takes effect only after many lines.
    _JAVA_OPTIONS: f'"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"',
    "spark.sql.python.filterPushdown.enabled": "true",
}


def open_session(
    name: str = "mainstem lake", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Create a session with the first suitable Java, or return the process's active session.

    `settings` override ours. Raises SparkMissing."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkMissing("the lake needs PySpark: pip install 'mainstem[lake]'") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ["JAVA_HOME"] = str(find_java(os.environ))
    # Workers use the same Python, so that they have the same packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    chosen = _master(master)
    if chosen.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise Spark warns about the host name
    builder = builder.master(chosen)
    for key, value in _merge_settings(_base_settings(chosen), settings or {}).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise SparkMissing(f"Spark failed to start: {error}") from error


def on_this_machine(master: str | None = None) -> bool:
    """Whether tasks run on this machine, not on a cluster."""
    return _master(master).startswith("local")


def _master(master: str | None) -> str:
    return master or os.environ.get(MASTER_ENV) or _submitted_master() or MASTER_DEFAULT


def _submitted_master() -> str | None:
    """The master of `spark-submit`, if that started this program."""
    if _SUBMITTED not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # their settings are in its JVM
    return SparkConf().get("spark.master")


def _merge_settings(ours: Mapping[str, str], settings: Mapping[str, str]) -> Mapping[str, str]:
    """Our settings, overridden by `settings`; Java options are appended to ours."""
    given = dict(settings)
    if _JAVA_OPTIONS in ours and _JAVA_OPTIONS in given:
        given[_JAVA_OPTIONS] = f"{ours[_JAVA_OPTIONS]} {given[_JAVA_OPTIONS]}"
    return {**ours, **given}


def _base_settings(master: str | None) -> Mapping[str, str]:
    """All settings for a local JVM. A cluster has its own memory and addresses."""
    if on_this_machine(master):
        # Otherwise Spark creates a warehouse directory in the working directory, although we store no table there.
        warehouse = Path(tempfile.gettempdir()) / f"mainstem-spark-{os.getuid()}"
        return {**_SETTINGS, "spark.sql.warehouse.dir": warehouse.as_uri()}
    return {key: value for key, value in _SETTINGS.items() if key.startswith("spark.sql.")}
