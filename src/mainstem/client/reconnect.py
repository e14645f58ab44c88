"""How long a client tries to reopen a lost stream."""

from __future__ import annotations

import asyncio
import random
import time

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


class ReconnectPolicy:
    """Retry for `patience_s` before the first success, and without limit after it, because servers restart."""

    def __init__(self, patience_s: float) -> None:
        self._deadline = time.monotonic() + patience_s
        self._succeeded = False
        self._pause_s = _FIRST_PAUSE_S

    def succeeded(self) -> None:
        self._succeeded = True
        self._pause_s = _FIRST_PAUSE_S

    async def pause(self, error: Exception) -> None:
        """Wait before the next attempt. Raises the error if no attempts are left."""
        if not self._succeeded and time.monotonic() >= self._deadline:
            raise error
        await asyncio.sleep(random.uniform(self._pause_s / 2, self._pause_s))
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
