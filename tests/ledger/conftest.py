from __future__ import annotations

from collections.abc import Iterator

import pytest

from .replaying import check_replays
from .writer import Writer


@pytest.fixture
def writer() -> Iterator[Writer]:
    """Whose log gives the same state when it is read and applied again."""
    writer = Writer()
    yield writer
    check_replays(writer)
