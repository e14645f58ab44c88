"""Errors of the S3 protocol: one table from Mainstem's errors to status and code."""

from __future__ import annotations

from xml.sax.saxutils import escape

from mainstem import errors


class S3Error(Exception):
    """A request that the door answers with an error."""

    def __init__(
        self, status: int, code: str, message: str, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers


def not_implemented(what: str) -> S3Error:
    return S3Error(501, "NotImplemented", f"this server does not offer {what}")


def invalid_argument(message: str) -> S3Error:
    return S3Error(400, "InvalidArgument", message)


def access_denied(message: str = "this principal may not do this: see the access rules") -> S3Error:
    return S3Error(403, "AccessDenied", message)


def malformed_xml(message: str = "the body is not the XML that this operation takes") -> S3Error:
    return S3Error(400, "MalformedXML", message)


# The nearest ancestor of an error decides.
_WIRE: dict[type[BaseException], tuple[int, str]] = {
    errors.BucketNotFound: (404, "NoSuchBucket"),
    errors.ObjectNotFound: (404, "NoSuchKey"),
    errors.UploadNotFound: (404, "NoSuchUpload"),
    errors.NotFound: (404, "NoSuchKey"),
    errors.BucketExists: (409, "BucketAlreadyExists"),
    errors.BucketNotEmpty: (409, "BucketNotEmpty"),
    errors.PreconditionFailed: (412, "PreconditionFailed"),
    errors.InvalidName: (400, "InvalidBucketName"),
    errors.TooLarge: (400, "EntityTooLarge"),
    errors.InvalidInput: (400, "InvalidArgument"),
    errors.AccessDenied: (403, "AccessDenied"),
    errors.LimitReached: (400, "TooManyBuckets"),
    errors.Throttled: (503, "SlowDown"),
    errors.Unavailable: (503, "ServiceUnavailable"),
}


def as_s3_error(error: errors.MainstemError) -> S3Error:
    for kind in type(error).__mro__:
        if kind in _WIRE:
            status, code = _WIRE[kind]
            return S3Error(status, code, str(error))
    return S3Error(500, "InternalError", str(error) or type(error).__name__)


def error_body(error: S3Error, resource: str, request_id: str) -> bytes:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{error.code}</Code><Message>{escape(str(error))}</Message>"
        f"<Resource>{escape(resource)}</Resource><RequestId>{request_id}</RequestId></Error>"
    ).encode("utf-8", "replace")
