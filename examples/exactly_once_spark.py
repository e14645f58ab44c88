"""Accept payments with Spark, exactly once: rerun, killed or retried, every payment is accepted once.

    python examples/exactly_once_spark.py

Spark's checkpoint holds the positions in the topic, and the sink commits each batch under its number. A batch that
Spark runs again writes nothing. Payments are JSON such as {"customer": "ada", "amount": 12.5}.

Needs `pip install 'mainstem[lake]'` and a running server. Set MAINSTEM_URL if it is not at the default address.
"""

from __future__ import annotations

import os
import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import mainstem

URL = os.environ.get("MAINSTEM_URL", "http://127.0.0.1:4000")
PAYMENTS = [("ada", 10.0), ("grace", 5.5), ("ada", 2.5), ("edsger", 1.0)]


def main() -> None:
    with mainstem.Client(URL) as client, tempfile.TemporaryDirectory() as checkpoint:
        client.ensure_topic("payments")
        client.ensure_topic("payments.accepted")
        client.produce_many("payments", [{"customer": name, "amount": amount} for name, amount in PAYMENTS])
        spark = SparkSession.builder.appName("payments").getOrCreate()
        accept(spark, URL, checkpoint)
        accept(spark, URL, checkpoint)  # nothing new, so nothing is written
        for record in client.read("payments.accepted"):
            print(record.key, record.value["amount"])
        spark.stop()


def accept(spark: SparkSession, url: str, checkpoint: str) -> None:
    """Process what is there, and return."""
    payments = (
        spark.readStream.format("mainstem")
        .option("url", url)
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .schema("customer string, amount double")
        .load("payments")
    )
    query = (
        accepted(payments)
        .writeStream.format("mainstem")
        .option("url", url)
        .option("topic", "payments.accepted")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def accepted(payments: DataFrame) -> DataFrame:
    """A key and a JSON value of each payment above 2."""
    value = f.to_json(f.struct("amount"))
    return payments.where("amount > 2").select(f.col("customer").alias("key"), value.alias("value"))


if __name__ == "__main__":
    main()
