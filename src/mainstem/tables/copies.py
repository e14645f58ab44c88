"""A second table with a topic's records: a Delta table, or one in an external Iceberg catalog.

The ledger stores one text for both: the URL of a Delta table, or `iceberg:CATALOG.NAMESPACE.TABLE`.
"""

from __future__ import annotations

from mainstem import limits
from mainstem.errors import InvalidConfig

_ICEBERG = "iceberg:"
_LEVELS_MIN = 3  # catalog, namespace, table


def delta_of(copy: str) -> str:
    """The URL of the Delta table; empty if there is none."""
    return "" if copy.startswith(_ICEBERG) else copy


def iceberg_of(copy: str) -> str:
    """CATALOG.NAMESPACE.TABLE; empty if there is none."""
    return copy.removeprefix(_ICEBERG) if copy.startswith(_ICEBERG) else ""


def changed_copy(present: str, delta: str | None, iceberg: str | None) -> str:
    """The copy after a request: None leaves a kind as it is. Raises InvalidConfig."""
    url = delta_of(present) if delta is None else delta
    name = iceberg_of(present) if iceberg is None else iceberg
    if url and name:
        raise InvalidConfig(
            "a topic has one copy, of Delta or of Iceberg: set the other one to an empty text"
        )
    if max(len(url), len(name)) > limits.TABLE_LOCATION_CHARS_MAX:
        raise InvalidConfig(f"the name of a copy may have up to {limits.TABLE_LOCATION_CHARS_MAX} characters")
    if url.startswith(_ICEBERG):
        raise InvalidConfig(f"{url!r} is not the URL of a Delta table: use the field `iceberg`")
    levels = name.split(".")
    if name and (len(levels) < _LEVELS_MIN or not all(levels)):
        raise InvalidConfig(f"{name!r} is not the name of an Iceberg table: use CATALOG.NAMESPACE.TABLE")
    return _ICEBERG + name if name else url
