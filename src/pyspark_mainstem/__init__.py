"""Spark looks for modules of this name: with it, `format("mainstem")` needs no registration."""

from __future__ import annotations

from mainstem.spark.datasource import MainstemDataSource as DefaultSource

__all__ = ["DefaultSource"]
