"""The throttle time of a response to a client within its quotas. `Call.throttle` computes the others."""

from __future__ import annotations

from datetime import timedelta

from kio.static.primitive import i32Timedelta

NO_THROTTLE = i32Timedelta.parse(timedelta(0))
