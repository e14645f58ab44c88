"""Count words exactly once with Quix Streams: python quixstreams_count.py BROKERS STATE_DIRECTORY

It reads the topic quix-lines, divides the words by another topic of its own, and writes to quix-counts.
"""

import sys
from typing import Any

from quixstreams import Application  # type: ignore[import-not-found]


def counted(word: str, state: Any) -> dict[str, Any]:
    count = state.get("count", 0) + 1
    state.set("count", count)
    return {"word": word, "count": count}


def main(brokers: str, directory: str) -> None:
    application = Application(
        broker_address=brokers,
        consumer_group="quix",
        processing_guarantee="exactly-once",
        auto_offset_reset="earliest",
        state_dir=directory,
        commit_interval=0.3,
        consumer_extra_config={"session.timeout.ms": 20_000},  # longer than a restart of the server
        loglevel="INFO",
    )
    lines = application.topic("quix-lines", value_deserializer="string")
    counts = application.topic("quix-counts", value_serializer="json")
    frame = application.dataframe(lines).apply(str.split, expand=True)
    frame = frame.group_by(
        lambda word: word, name="word", value_serializer="string", value_deserializer="string"
    )
    frame.apply(counted, stateful=True).to_topic(counts)
    application.run()


main(*sys.argv[1:])
