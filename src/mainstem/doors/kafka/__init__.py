"""The Kafka door: the Kafka wire protocol, so that unmodified Kafka clients work. One file an API."""

from __future__ import annotations

import sys

if "hypothesis" not in sys.modules:
    # The message library introduces its types to hypothesis wherever that is installed, which takes more than
    # a second and leaves a folder behind. A server has no use for it.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
