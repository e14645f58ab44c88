"""Getting into a store that a plan names: plans hold no secrets, so a worker uses what it knows itself.

In this order: the options of the store in its own settings (`MAINSTEM_STORE`), if that is the same bucket; what stands
in the URL; the environment, as each vendor's own tools read it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore

STORE_ENV = "MAINSTEM_STORE"
_STORES_KEPT = 8


def open_named(url: str) -> ObjectStore:
    """The store of a URL that came without secrets. Raises InvalidConfig."""
    return _opened(with_own_options(url, os.environ))


def with_own_options(url: str, environ: Mapping[str, str]) -> str:
    """The URL with the options that this process's own settings have for the same bucket."""
    named, own = urlsplit(url), urlsplit(environ.get(STORE_ENV, ""))
    if not own.query or (named.scheme, named.netloc) != (own.scheme, own.netloc):
        return url
    options = dict(parse_qsl(named.query)) | dict(parse_qsl(own.query))
    return urlunsplit(named._replace(query=urlencode(options, safe=":/")))


@lru_cache(_STORES_KEPT)
def _opened(url: str) -> ObjectStore:
    """Kept from task to task: a new client makes new connections."""
    return open_store(url)
