"""Names inside a local log's directory; log.py describes each."""

from __future__ import annotations

FORMAT = "FORMAT"
LOCK = "LOCK"
WAL = "wal"
CHECKPOINTS = "checkpoints"
COLD = "cold"
QUARANTINE = "quarantine"
SUSPECT = "SUSPECT"
TEMPORARY_SUFFIX = ".tmp"
