"""Whether a client makes progress with the body that it sends, or with the response that it reads."""

from __future__ import annotations

from mainstem import limits


class UploadRate:
    """Some bytes in every stretch of time: one now and then would hold a place for as long as the client likes."""

    __slots__ = ("_bytes", "_since")

    def __init__(self, now: float = 0.0) -> None:
        self._since = now
        self._bytes = 0

    def begin(self, now: float) -> None:
        """Count from here on."""
        self._since = now
        self._bytes = 0

    def heard(self, size: int) -> None:
        self._bytes += size

    def too_slow(self, now: float) -> bool:
        """To be asked once in a while."""
        if now - self._since <= limits.HTTP_STALL_S:
            return False
        slow = self._bytes < limits.HTTP_STALL_BYTES_MIN
        self.begin(now)
        return slow
