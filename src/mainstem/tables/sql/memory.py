"""The bound on the memory of a worker: DuckDB, Arrow and Python together.

DuckDB has a limit of its own, which does not count the result as Arrow and Python hold it. So the kernel refuses the
worker more private memory than it has at its start and SQL_MEMORY_BYTES.
"""

from __future__ import annotations

import resource
from pathlib import Path

from mainstem import limits

_STATUS = Path("/proc/self/status")

TOO_LARGE = (
    f"the query needs more than the {limits.SQL_MEMORY_BYTES // limits.MIB} MiB of memory that a query may "
    "use: select fewer columns or rows, or use --engine spark"
)


class MemoryBound:
    """Takes effect when it is made, on Linux: after the imports, so that their memory is not counted."""

    def __init__(self) -> None:
        self._at_start = _private_bytes()
        if self._at_start:
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            bound = self._at_start + limits.SQL_MEMORY_BYTES
            if hard != resource.RLIM_INFINITY:  # which cannot be raised
                bound = min(bound, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))

    @property
    def spent(self) -> bool:
        """Whether allocators hold so much address space that the next query could run out of it."""
        return (
            _private_bytes() - self._at_start > limits.SQL_MEMORY_BYTES // 4 + limits.SQL_DECODED_BYTES_KEPT
        )


def _private_bytes() -> int:
    """What the kernel compares with RLIMIT_DATA; 0 where it does not say."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), 0)
