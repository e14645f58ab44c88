"""Which store a URL names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from mainstem.errors import InvalidConfig
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.ports.objectstore.port import ObjectStore


def open_store(url: str) -> ObjectStore:
    """The store whose keys are under this URL. Raises InvalidConfig."""
    split = urlsplit(url)
    if split.scheme == "file" and split.netloc in ("", "localhost") and split.path.startswith("/"):
        return LocalObjectStore(Path(unquote(split.path)))
    raise InvalidConfig(f"{url!r} names no object store: give a URL such as file:///var/lib/mainstem/objects")
