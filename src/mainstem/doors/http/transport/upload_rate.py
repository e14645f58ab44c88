"""Whether a client makes progress with the body that it sends, or with the response that it reads."""

from __future__ import annotations

from mainstem import limits


class UploadRate:
    """A minimum of bytes in every interval: otherwise single bytes could hold a connection open for ever."""

    __slots__ = ("_bytes", "_since")

    def __init__(self, now: float = 0.0) -> None:
        self._since = now
        self._bytes = 0

    def begin(self, now: float) -> None:
        """Start counting."""
        self._since = now
        self._bytes = 0

    def heard(self, size: int) -> None:
        self._bytes += size

    def too_slow(self, now: float) -> bool:
        """Whether the client makes progress. Call it periodically."""
        if now - self._since <= limits.HTTP_STALL_S:
            return False
        slow = self._bytes < limits.HTTP_STALL_BYTES_MIN
        self.begin(now)
        return slow
