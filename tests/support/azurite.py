"""Azurite for tests: the vendor's emulator of Azure Blob Storage, if it is installed."""

from __future__ import annotations

import shutil
import subprocess
import time
import urllib.error
import urllib.request
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from urllib.parse import urlencode

from mainstem.testing.ports import kept_ports
from tests.support.azure import ACCOUNT, VERSION, azure_url, signature

_START_S = 30.0


class Azurite:
    """`azurite-blob`, found on the path (`npm install azurite`). Leaving the block kills it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""

    @staticmethod
    def program() -> str | None:
        return shutil.which("azurite-blob")

    def __enter__(self) -> Azurite:
        (port,) = kept_ports(1)
        self.endpoint = f"http://127.0.0.1:{port}"
        flags = ["--blobPort", str(port), "--location", str(self._folder), "--silent", "--disableTelemetry"]
        self._process = subprocess.Popen(
            [self.program() or "azurite-blob", *flags], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(_START_S)

    def url(self, container: str, prefix: str = "", **options: str) -> str:
        return azure_url(self.endpoint, container, prefix, **options)

    def make_container(self, name: str) -> None:
        """Idempotent. Waits until the server is up."""
        path, query = f"/{ACCOUNT}/{name}", {"restype": "container"}
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": VERSION, "content-length": "0"}
        headers["authorization"] = signature("PUT", path, query, headers)
        url = f"{self.endpoint}{path}?{urlencode(query)}"
        until = time.monotonic() + _START_S
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers), timeout=5)
                return
            except urllib.error.HTTPError as refused:
                if refused.code == 409:  # it exists
                    return
                raise
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
