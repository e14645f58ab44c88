"""Translate the errors of obstore into Mainstem's.

A message names the object and what to do. The library's own text is not passed on: it holds whole URLs, and some stores
put signatures into them.
"""

from __future__ import annotations

import re

from obstore import exceptions

from mainstem.errors import MainstemError, NotFound, StoreRefused, StoreUnreachable

# An answer has a status, and a code in its body. A delete is part of a batch whose answer is a success: Azure gives
# each part a status, S3 a code.
_STATUS = re.compile(r"(?:status code:|\(code:) (\d{3})\b")
_CODE = re.compile(r"(?:<Code>|\(code: )([A-Za-z][A-Za-z0-9]{0,63})[<)]")
_METADATA_SERVICE = "169.254.169.254"  # asked for credentials when none were given
_CREDENTIALS = (
    "check the credentials in the environment or the URL's options, and that they allow reading and writing"
)
_NO_ACCESS = {401, 403}
_RETRIED = {408, 409, 425, 429}
# S3 sends these with status 400, or in the answer to a batch.
_DENIED_CODES = {"AccessDenied", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
_RETRIED_CODES = {"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown"}
_CLOCK_CODES = {"RequestTimeTooSkewed"}
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}


def explained(error: Exception, name: str) -> MainstemError:
    """The error to raise for an error of the library about the object or bucket `name`."""
    text = str(error)
    code = _first(_CODE, text)
    status = int(_first(_STATUS, text) or 0)
    said = " ".join(filter(None, (str(status or ""), code)))
    if code in _NO_BUCKET:
        return StoreRefused(f"{name}: the bucket does not exist: create it, or correct the URL")
    if isinstance(error, FileNotFoundError):
        return NotFound(f"no object {name}")
    if _METADATA_SERVICE in text:
        return StoreRefused(f"{name}: no credentials found: {_CREDENTIALS}")
    if code in _CLOCK_CODES:
        return StoreRefused(
            f"{name}: this machine's clock differs too much from the store's ({said}): set it, and run NTP"
        )
    refused = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
    if refused or status in _NO_ACCESS or code in _DENIED_CODES:
        return StoreRefused(f"{name}: access denied ({said or 'no permission'}): {_CREDENTIALS}")
    if status >= 500 or status in _RETRIED or code in _RETRIED_CODES:
        return StoreUnreachable(
            f"{name}: the store is not ready ({said}) after several attempts: try again later"
        )
    if said:
        return StoreRefused(f"{name}: the store rejected the request ({said}): check the URL and its options")
    reason = "no answer in time" if "TimedOut" in text or "Timeout" in text else "no connection"
    return StoreUnreachable(
        f"{name}: {reason}: check the endpoint in the URL and the network, then try again"
    )


def out_of_range(error: Exception) -> bool:
    """Whether the object exists but ends before the requested bytes."""
    return _first(_STATUS, str(error)) == "416"


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found.group(1) if found else ""
