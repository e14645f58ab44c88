"""From a URL to an object store.

| URL                          | store                                                    | options                   |
|------------------------------|----------------------------------------------------------|---------------------------|
| `file:///path`, or a path    | files of a local directory                               |                           |
| `s3://bucket/prefix?…`       | S3, or what speaks its protocol (`endpoint`)             | `_S3`, below              |
| `gs://bucket/prefix?…`       | Google Cloud Storage                                     | `_GCS`                    |
| `az://container/prefix?…`    | Azure Blob Storage                                       | `_AZURE`                  |

Credentials come from the environment, as each vendor's own tools read it, or from the options. Log a URL through
`redacted_url`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from mainstem.errors import InvalidConfig
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.ports.objectstore.port import ObjectStore

if TYPE_CHECKING:
    from mainstem.ports.objectstore.bucket import Retries

STORE_REQUEST_S = 20.0  # one attempt, which bounds how long a stalled put can live
STORE_CONNECT_S = 5.0
STORE_ENV = "MAINSTEM_STORE"  # URL of a worker's store, with its credentials

_S3 = {
    "endpoint",
    "region",
    "access_key_id",
    "secret_access_key",
    "session_token",
    "skip_signature",
    "virtual_hosted_style_request",
}
_GCS = {"endpoint", "service_account_path", "application_credentials"}
_AZURE = {"account_name", "account_key", "sas_key", "endpoint", "use_emulator"}
_OPTIONS = {"s3": _S3, "gs": _GCS, "az": _AZURE}
_OPEN_TO_ALL = {
    "endpoint",
    "region",
    "account_name",
    "skip_signature",
    "virtual_hosted_style_request",
    "use_emulator",
}
_FLAGS = {"skip_signature", "virtual_hosted_style_request", "use_emulator"}
_HIDDEN = "***"


def open_store(url: str, *, retries: Retries | None = None) -> ObjectStore:
    """The store that a URL names. Sends no request yet. Raises InvalidConfig."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        if parts.netloc or parts.query or not parts.path:
            raise InvalidConfig(
                f"{redacted_url(url)!r} is not a local folder: write file:///the/path, or just the path"
            )
        return LocalObjectStore(Path(unquote(parts.path)))
    if parts.scheme not in _OPTIONS:
        raise InvalidConfig(
            f"{redacted_url(url)!r}: the URL of an object store starts with file:, s3://, gs:// or az://"
        )
    if not parts.netloc or "@" in parts.netloc:
        raise InvalidConfig(f"{redacted_url(url)!r} must name a bucket: {parts.scheme}://bucket/prefix")
    options = _options(url, parts.scheme, parts.query)
    from mainstem.ports.objectstore.bucket import BucketObjectStore  # obstore takes 10 MB

    prefix = unquote(parts.path).strip("/")
    name = "/".join(filter(None, (f"{parts.scheme}://{parts.netloc}", prefix)))
    return BucketObjectStore(_made(parts.scheme, parts.netloc, prefix, options), name, retries=retries)


def public_url(url: str) -> str:
    """The URL without secrets, for processes that have their own credentials; see `with_own_options`."""
    parts = urlsplit(url)
    asked = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] in _OPEN_TO_ALL]
    return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(asked, safe=":/"), ""))


def with_own_options(url: str, environ: Mapping[str, str]) -> str:
    """The URL with the options of this process's own store (`MAINSTEM_STORE`), if that is the same bucket.

    They override the options of the URL. Where both lack credentials, the environment supplies them, as each vendor's
    own tools read it."""
    named, own = urlsplit(url), urlsplit(environ.get(STORE_ENV, ""))
    if not own.query or (named.scheme, named.netloc) != (own.scheme, own.netloc):
        return url
    options = dict(parse_qsl(named.query)) | dict(parse_qsl(own.query))
    return urlunsplit(named._replace(query=urlencode(options, safe=":/")))


def redacted_url(url: str) -> str:
    """The URL with secrets masked, for logs and messages."""
    parts = urlsplit(url)
    asked = [
        (name, value if name in _OPEN_TO_ALL else _HIDDEN)
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, place, parts.path, urlencode(asked, safe="*:/"), ""))


def _options(url: str, scheme: str, query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS[scheme]:
            known = ", ".join(sorted(_OPTIONS[scheme]))
            raise InvalidConfig(f"{redacted_url(url)!r}: unknown option {name!r}; {scheme}:// takes {known}")
        if name in found or not value:
            raise InvalidConfig(f"{redacted_url(url)!r}: option {name!r} must appear once, with a value")
        found[name] = _flag(url, name, value) if name in _FLAGS else value
    return found


def _flag(url: str, name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise InvalidConfig(f"{redacted_url(url)!r}: option {name!r} must be true or false")
    return value == "true"


def _made(scheme: str, bucket: str, prefix: str, options: dict[str, Any]) -> Any:
    from obstore.store import AzureStore, GCSStore, S3Store

    kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[scheme]
    client: dict[str, Any] = {
        "timeout": timedelta(seconds=STORE_REQUEST_S),
        "connect_timeout": timedelta(seconds=STORE_CONNECT_S),
    }
    if str(options.get("endpoint", "")).startswith("http://") or options.get("use_emulator"):
        client["allow_http"] = True  # otherwise the environment may allow it
    if scheme == "gs" and "endpoint" in options:
        options["base_url"] = options.pop("endpoint")  # the library's name for it
    # We retry requests ourselves, within one budget.
    return kind(
        bucket, prefix=prefix or None, client_options=client, retry_config={"max_retries": 0}, **options
    )
