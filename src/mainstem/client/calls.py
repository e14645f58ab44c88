"""What the calls of every noun share."""

from __future__ import annotations

from mainstem.client.transport import Transport


class Calls:
    """Part of a client: the calls of one noun."""

    _transport: Transport
