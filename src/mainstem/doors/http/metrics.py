"""Counting requests, and showing what the server holds."""

from __future__ import annotations

from collections import Counter


class Traffic:
    """What went through the door since it opened."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # (route, status)
        self.seconds: Counter[str] = Counter()  # spent, by route
        self.received_bytes = 0
        self.sent_bytes = 0

    def served(self, route: str, status: int, seconds: float, received: int, sent: int) -> None:
        self.requests[route, status] += 1
        self.seconds[route] += seconds  # type: ignore[assignment]  # a Counter takes any number
        self.received_bytes += received
        self.sent_bytes += sent
