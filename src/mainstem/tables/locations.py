"""Where tables may be: below the server's own store, and below the prefixes that the operator allows.

A location is a URL as clients write it. One place has several spellings (`file:/a` and `file:///a`, `s3a://b` and
`s3://b`); the spelling of the client stays in the table's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from mainstem import limits
from mainstem.errors import InvalidInput
from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore

FOLDER = "tables"  # keys of all tables' own objects start with it
S3_PREFIX = "s3://tables/"  # of locations in the server's own store at the S3 door, in front of keys

_LOCAL = re.compile(r"^file:/+")
_S3 = re.compile(r"^s3[an]://")


@dataclass(frozen=True, slots=True)
class _Allowed:
    """A prefix outside the server's own store, and the store of its objects."""

    prefix: str  # canonical, without a slash at the end
    store: ObjectStore


class Locations:
    """`store_url` is the server's own store, `allowed` lists URLs of further prefixes."""

    def __init__(self, store: ObjectStore, store_url: str, allowed: Sequence[str] = ()) -> None:
        self._store = store
        self.store_url = plain_url(store_url)
        self._allowed = [_Allowed(_canonical(plain_url(url)), open_store(url)) for url in allowed]

    def find(self, location: str) -> tuple[ObjectStore, str]:
        """The store and the key of an object that a table of the catalog names."""
        if not self._own(location):
            place = _canonical(location)
            for each in self._allowed:
                if place.startswith(f"{each.prefix}/"):
                    return each.store, place.removeprefix(f"{each.prefix}/")
        return self._store, self.key_of(location)

    def key_of(self, location: str) -> str:
        """The key of an object in the server's own store; another location as it is."""
        own = f"{self.store_url}/"
        return location.removeprefix(own if location.startswith(own) else S3_PREFIX)

    def _own(self, location: str) -> bool:
        return location.startswith((f"{self.store_url}/", S3_PREFIX))

    def holds(self, location: str) -> bool:
        """Whether the server can reach a location: it is in its own store or below an allowed prefix."""
        return self._own(location) or self.find(location)[0] is not self._store

    def checked(self, location: object) -> str:
        """A location that a client names, without a slash at the end. Raises InvalidInput unless tables may be there:
        clients must not name the server's other files."""
        if not isinstance(location, str):
            raise InvalidInput("a location must be a string")
        if len(location) > limits.TABLE_LOCATION_CHARS_MAX // 2:  # leaves space for the names of files in it
            raise InvalidInput(f"a location may have up to {limits.TABLE_LOCATION_CHARS_MAX // 2} characters")
        location = location.rstrip("/")
        store, key = self.find(location)
        own = f"{self.store_url}/{FOLDER}/"
        parts = key.split("/")
        inside = location.startswith((own, f"{S3_PREFIX}{FOLDER}/")) or store is not self._store
        if not inside or any(not part or part.startswith(".") for part in parts):
            places = ", ".join([own, *(f"{each.prefix}/" for each in self._allowed)])
            raise InvalidInput(f"location {location[:512]!r} is not below {places}, where tables may be")
        return location


def plain_url(store_url: str) -> str:
    """A store's URL as table locations have it: without options, file paths not percent-encoded."""
    parts = urlsplit(store_url)
    if parts.scheme in ("", "file"):
        return f"file://{unquote(parts.path).rstrip('/')}"
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")


def _canonical(location: str) -> str:
    return _S3.sub("s3://", _LOCAL.sub("file:///", location))
