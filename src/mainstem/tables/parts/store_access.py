"""Open the store that a plan names. Plans hold no secrets, so a worker adds its own credentials.

In this order: the options of the worker's own store setting (`MAINSTEM_STORE`), if it names the same bucket; the
options in the URL; the environment, as each vendor's own tools read it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore

STORE_ENV = "MAINSTEM_STORE"
_STORES_CACHED = 8


def open_named(url: str) -> ObjectStore:
    """Open the store of a URL without secrets. Raises InvalidConfig."""
    return _open_cached(with_own_options(url, os.environ))


def with_own_options(url: str, environ: Mapping[str, str]) -> str:
    """The URL with the options of this process's own store setting, if that is the same bucket."""
    named, own = urlsplit(url), urlsplit(environ.get(STORE_ENV, ""))
    if not own.query or (named.scheme, named.netloc) != (own.scheme, own.netloc):
        return url
    options = dict(parse_qsl(named.query)) | dict(parse_qsl(own.query))
    return urlunsplit(named._replace(query=urlencode(options, safe=":/")))


@lru_cache(_STORES_CACHED)
def _open_cached(url: str) -> ObjectStore:
    """Cached, because a new client opens new connections."""
    return open_store(url)
