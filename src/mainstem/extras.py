"""Packages that only some features need: what to install for them."""

from __future__ import annotations

from importlib.util import find_spec

from mainstem.errors import PackageMissing

PACKAGES = {
    "sql": ("duckdb", "pyarrow"),
    "lake": ("pyarrow", "pyiceberg", "pyspark"),
}


def missing(extra: str) -> list[str]:
    """The packages of an extra that are not installed."""
    return [name for name in PACKAGES[extra] if find_spec(name) is None]


def require(extra: str, feature: str, *packages: str) -> None:
    """Raises PackageMissing unless the packages, by default all of the extra, are installed."""
    absent = [name for name in missing(extra) if not packages or name in packages]
    if absent:
        raise PackageMissing(
            f"{feature} needs {' and '.join(absent)}: run pip install 'mainstem[{extra}]' and restart the server"
        )
