"""Why jobs failed, as their workers said: kept in memory until the job is a dead letter."""

from __future__ import annotations

from collections import OrderedDict

from mainstem import limits

JOB_ERRORS_MAX = 10_000  # jobs with an error; of more, the oldest are dropped
JOB_ERROR_BYTES_MAX = 2 * limits.KIB  # of one error; the rest is cut off


class JobErrors:
    """The last error of each job. A restart forgets them, and so does a claim at another broker."""

    def __init__(self) -> None:
        self._errors: OrderedDict[tuple[int, int], str] = OrderedDict()  # by stream and offset

    def note(self, stream: int, offset: int, error: str) -> None:
        self._errors[stream, offset] = error.encode()[:JOB_ERROR_BYTES_MAX].decode("utf-8", "ignore")
        self._errors.move_to_end((stream, offset))
        if len(self._errors) > JOB_ERRORS_MAX:
            self._errors.popitem(last=False)

    def get(self, stream: int, offset: int) -> str | None:
        return self._errors.get((stream, offset))

    def forget(self, stream: int, offset: int) -> None:
        self._errors.pop((stream, offset), None)
