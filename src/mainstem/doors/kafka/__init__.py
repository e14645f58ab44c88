"""The Kafka door: the Kafka wire protocol, so that unmodified Kafka clients work. One file an API."""

from __future__ import annotations

import sys

if "hypothesis" not in sys.modules:
    # The message library registers its types with hypothesis if that is installed, which takes more than
    # a second and creates a folder. A server does not need it.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
