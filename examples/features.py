"""What each customer buys, as features for a model: computed from a table, into the topic `features`.

    mainstem pipeline run examples/features.py --once

A table remembers what it was. To compute the features that a model was trained on once more, name the snapshot:

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
