"""Parts: which Parquet files serve which offsets of a stream. The ledger stores them as jobs publish them."""

from mainstem.api.lake import DataFile, Part

__all__ = ["DataFile", "Part"]
