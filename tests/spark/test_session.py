"""Which master a session has, and the address of its driver; without starting Spark."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem.spark.session import MASTER_ENV, on_this_machine, open_session


class Builder:
    """Stands for Spark's builder, and keeps what it is told."""

    def __init__(self) -> None:
        self.url = ""
        self.settings: dict[str, str] = {}

    def appName(self, _name: str) -> Builder:
        return self

    def master(self, url: str) -> Builder:
        self.url = url
        return self

    def config(self, name: str, value: str) -> Builder:
        self.settings[name] = value
        return self

    def getOrCreate(self) -> Builder:
        return self


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (MASTER_ENV, "SPARK_LOCAL_IP", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # which a session changes
    without_any = SimpleNamespace(builder=Builder(), getActiveSession=lambda: None)
    monkeypatch.setattr("pyspark.sql.SparkSession", without_any)


def opened() -> Any:
    return open_session()


def test_a_session_on_this_machine_stays_on_its_loopback() -> None:
    session = opened()
    assert session.url.startswith("local[")
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert session.settings["spark.driver.host"] == "127.0.0.1"


def test_executors_of_a_cluster_are_not_given_a_loopback_address() -> None:
    os.environ[MASTER_ENV] = "spark://10.0.0.5:7077"
    session = opened()
    assert session.url == "spark://10.0.0.5:7077"
    assert "SPARK_LOCAL_IP" not in os.environ
    assert "spark.driver.host" not in session.settings


def test_the_master_of_spark_submit_counts_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    os.environ["PYSPARK_GATEWAY_PORT"] = "1"
    monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", lambda: None)
    monkeypatch.setattr("pyspark.SparkConf", lambda: {"spark.master": "spark://10.0.0.6:7077"})
    assert opened().url == "spark://10.0.0.6:7077"
    assert not on_this_machine()
    os.environ[MASTER_ENV] = "local[2]"
    assert opened().url == "local[2]"
    assert on_this_machine()
