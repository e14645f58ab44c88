"""What the door says about throttling: nothing is held back, as there are no quotas."""

from __future__ import annotations

from datetime import timedelta

from kio.static.primitive import i32Timedelta

NO_THROTTLE = i32Timedelta.parse(timedelta(0))
