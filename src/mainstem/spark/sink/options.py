"""Options of a write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mainstem import limits
from mainstem.errors import InvalidInput
from mainstem.records.compression import CODECS, Codec
from mainstem.spark.option_values import OptionValues

_TRANSACTION_TIMEOUT_MS = 300_000


@dataclass(frozen=True, slots=True)
class SinkOptions:
    url: str
    api_key: str
    topic: str  # of all rows; empty: each row has its own
    transaction_timeout_ms: int  # a task that does not extend its transaction for this long has failed
    compression: Codec
    create_topics: bool
    keep_timestamps: bool  # use the rows' `timestamp` instead of the current time
    query: str  # of a batch write that must happen once, as in foreachBatch …
    batch: int | None  # … and its number

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SinkOptions:
        """Raises InvalidInput with the option and its allowed values."""
        values = OptionValues(given)
        for name in ("checkpointLocation", "queryName"):
            values.text(name)  # Spark's own
        path = values.text("path")  # of .save("topic")
        options = cls(
            url=values.url(),
            api_key=values.api_key(),
            topic=values.text("topic") or path or "",
            transaction_timeout_ms=values.duration_ms("transactionTimeout", _TRANSACTION_TIMEOUT_MS),
            compression=values.choice("compression", *CODECS),  # type: ignore[arg-type]
            create_topics=values.flag("createTopics", True),
            keep_timestamps=values.flag("keepTimestamps", False),
            query=values.text("queryId") or "",
            batch=values.number("batchId", 0),
        )
        values.finish()
        if not 1_000 <= options.transaction_timeout_ms <= limits.TRANSACTION_TIMEOUT_MS_MAX:
            raise InvalidInput(
                f"option transactionTimeout must be 1s to {limits.TRANSACTION_TIMEOUT_MS_MAX // 60_000}m"
            )
        if bool(options.query) != (options.batch is not None):
            raise InvalidInput(
                "the options queryId and batchId need each other: they identify a batch that is written once"
            )
        return options
