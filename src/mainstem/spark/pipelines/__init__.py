"""Pipelines: read topics and tables, write topics and tables; declared in one file and run by Spark.

from mainstem.spark.pipelines import Pipeline

pipeline = Pipeline("enrich")
pipeline.source("orders", topic="orders", schema="id long, customer string")

@pipeline.to_topic("orders.large", key="customer")
def large(orders):
    return orders.where("amount > 100")
"""

from __future__ import annotations

from mainstem.spark.pipelines.pipeline import Pipeline

__all__ = ["Pipeline"]
