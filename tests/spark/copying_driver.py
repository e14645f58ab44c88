"""A driver of its own, to be killed: copies one topic to another until all that is there is copied.

python copying_driver.py SOURCE_URL SINK_URL TOPIC_IN TOPIC_OUT CHECKPOINT
"""

from __future__ import annotations

import sys

from mainstem.spark.session import open_session


def main(source_url: str, sink_url: str, topic_in: str, topic_out: str, checkpoint: str) -> None:
    spark = open_session("copying", master="local[2,2]")
    frame = (
        spark.readStream.format("mainstem")
        .option("url", source_url)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "60")
        .load(topic_in)
        .select("key", "value")
    )
    query = (
        frame.writeStream.format("mainstem")
        .option("url", sink_url)
        .option("topic", topic_out)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
