"""Paths in requests: local directories must be inside the configured roots."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from mainstem.api.access import CLUSTER_NAME, Operation, ResourceType
from mainstem.doors.http.transport.errors import Refusal
from mainstem.doors.http.transport.requests import HttpRequest


def check_place(request: HttpRequest, url: str) -> None:
    """Raises Refusal 403 for a local directory outside the roots; without roots, unless an administrator names it."""
    path = _local_path(url)
    if path is None:
        if not request.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
            raise _outside("only an administrator names a bucket or a catalog")
        return
    roots = request.context.path_roots
    if not roots:
        if not request.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
            raise _outside(
                "only an administrator names a directory, unless --path-roots lists some for everybody"
            )
        return
    resolved = path.resolve()
    if not any(resolved.is_relative_to(root) for root in roots):
        raise _outside("this directory is outside --path-roots")


def _outside(reason: str) -> Refusal:
    return Refusal(403, "forbidden", reason)


def _local_path(url: str) -> Path | None:
    """None for the URL of a bucket, and for a table of a catalog."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme and len(parts.scheme) > 1 else Path(url)
