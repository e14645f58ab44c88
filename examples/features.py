"""Compute features of each customer's purchases from a table and write them to the topic `features`.

    mainstem pipeline run examples/features.py --once

A table keeps its snapshots. To recompute the features that a model was trained on, name the snapshot:

    mainstem pipeline run examples/features.py --once --snapshot purchases=8471209301

The table `default.purchases` has the columns customer string, amount double.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mainstem.spark.pipelines import Pipeline

pipeline = Pipeline("features")
pipeline.source("purchases", table="default.purchases")


@pipeline.view
def totals(purchases: DataFrame) -> DataFrame:
    return purchases.groupBy("customer").agg(f.count("*").alias("bought"), f.sum("amount").alias("spent"))


@pipeline.to_topic("features", key="customer")
def features(totals: DataFrame) -> DataFrame:
    return totals.withColumn("mean", f.round(f.col("spent") / f.col("bought"), 2))
