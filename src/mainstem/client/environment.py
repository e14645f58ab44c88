"""Variables that name the server of a program."""

from __future__ import annotations

NAMESPACE_ENV = "MAINSTEM_NAMESPACE"
URL_ENV = "MAINSTEM_URL"
KEY_ENV = "MAINSTEM_API_KEY"
URL_DEFAULT = "http://127.0.0.1:4000"
