"""Conditional requests and byte ranges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from mainstem.broker.buckets.service import ObjectVersion, Precondition
from mainstem.doors.s3.errors import S3Error

_RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")


class NotModified(Exception):
    """The client has the object already."""


def check_conditions(version: ObjectVersion, headers: Mapping[str, str], prefix: str = "") -> None:
    """Raises S3Error 412, NotModified. `prefix` is that of the headers about the source of a copy."""
    match = headers.get(f"{prefix}if-match")
    none_match = headers.get(f"{prefix}if-none-match")
    since = _time(headers.get(f"{prefix}if-modified-since"))
    unmodified = _time(headers.get(f"{prefix}if-unmodified-since"))
    modified_s = version.modified_ms // 1000
    if match is not None:
        if not _names(match, version.etag):
            raise precondition_failed()
    elif unmodified is not None and modified_s > unmodified:
        raise precondition_failed()
    if none_match is not None:
        if _names(none_match, version.etag):
            raise precondition_failed() if prefix else NotModified
    elif since is not None and modified_s <= since:
        raise precondition_failed() if prefix else NotModified


def write_condition(headers: Mapping[str, str]) -> Precondition:
    """Raises S3Error."""
    none_match, match = headers.get("if-none-match"), headers.get("if-match")
    if none_match is not None and match is not None:
        raise S3Error(400, "InvalidRequest", "If-Match and If-None-Match exclude each other")
    other = "" if none_match is None else none_match.strip().strip('"')
    return Precondition(
        other == "*", "" if match is None else match.strip().strip('"'), "" if other == "*" else other
    )


def precondition_failed() -> S3Error:
    return S3Error(412, "PreconditionFailed", "a condition of the request does not hold")


def asked_range(text: str | None, size: int) -> tuple[int, int] | None:
    """Start and length of the range that a request asks for; None: all of it. Raises S3Error 416."""
    found = None if text is None else _RANGE.fullmatch(text.strip())
    if found is None or (not found[1] and not found[2]):
        return None  # several ranges, or another unit: HTTP allows to send everything
    if not found[1]:
        length = min(int(found[2]), size)
        if not length:
            raise unsatisfiable(size)
        return size - length, length
    start = int(found[1])
    end = min(int(found[2]), size - 1) if found[2] else size - 1
    if found[2] and int(found[2]) < start:
        return None
    if start >= size:
        raise unsatisfiable(size)
    return start, end - start + 1


def unsatisfiable(size: int) -> S3Error:
    return S3Error(
        416,
        "InvalidRange",
        "the range starts behind the end of the object",
        (("content-range", f"bytes */{size}"),),
    )


def _names(header: str, etag: str) -> bool:
    given = [one.strip().removeprefix("W/").strip('"') for one in header.split(",")]
    return "*" in given or etag in given


def _time(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
