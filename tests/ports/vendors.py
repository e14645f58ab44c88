"""Stores of other vendors than S3's, for tests that run on any of them."""

from __future__ import annotations

import os

import pytest

from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore
from tests.support.azurite import Azurite

VENDORS = ("gcs-double", "azure-double", *(("azurite",) if Azurite.program() else ()))
"""Azurite needs Node, which nobody shall need: who has it runs the tests on it as well."""


def vendor_store(request: pytest.FixtureRequest, vendor: str) -> ObjectStore:
    """A new place in one: `gcs-double`, `azure-double` or `azurite`."""
    prefix = f"some/{os.urandom(4).hex()}"
    if vendor == "azurite":
        server: Azurite = request.getfixturevalue("azurite")
        server.make_container("contract")
        return open_store(server.url("contract", prefix))
    double = request.getfixturevalue(vendor.replace("-", "_"))
    return open_store(double.url(prefix))
