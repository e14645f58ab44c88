"""A real S3 server for tests: seaweedfs, on free loopback ports, with its data in a folder of the caller's."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from types import TracebackType
from urllib.parse import urlencode

import obstore.exceptions
from obstore.store import S3Store

from mainstem.testing.ports import kept_ports

_START_S = 120.0
_PORTS = ("master", "volume", "filer", "s3")
_METRICS = "metricsPort"
_SERVED = re.compile(r'^SeaweedFS_s3_request_total\{.*type="(\w+)".*\} (\d+)$', re.MULTILINE)


class S3Server:
    """`weed server -s3`. Leaving the block kills it."""

    access_key_id = "test-key"
    secret_access_key = "test-secret"

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()  # it does not run where this does
        folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {}

    def __enter__(self) -> S3Server:
        self._start()
        if not self._came_up():
            self.kill()
            raise RuntimeError(f"the S3 server did not start: {self._log().read_text()[-2000:]}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = self._process is not None and self._process.poll() is not None
        self.kill()
        if ended:  # whatever failed meanwhile, this is why
            raise RuntimeError(f"the S3 server ended by itself: {self._log().read_text()[-2000:]}")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the S3 server is not running")
        return self._process.pid

    def make_bucket(self, bucket: str) -> None:
        """The server makes a bucket when something is put into it."""
        store = S3Store(
            bucket,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        store.put("first", b"")
        store.delete("first")

    def url(self, bucket: str, prefix: str = "", **options: str) -> str:
        """Of a bucket, with what it takes to get in."""
        asked = {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            **options,
        }
        return f"s3://{bucket}/{prefix}?{urlencode(asked)}"

    def requests(self) -> Counter[str]:
        """How many it has served since it started, by kind: GET, PUT, LIST, DELETE."""
        url = f"http://127.0.0.1:{self._ports[_METRICS]}/metrics"
        with urllib.request.urlopen(url, timeout=_START_S) as answer:
            lines = answer.read().decode()
        served: Counter[str] = Counter()
        for kind, count in _SERVED.findall(lines):
            served[kind] += int(count)
        return served

    def start_again(self) -> None:
        """After `kill`: the same data, at another port."""
        self.__enter__()

    def kill(self) -> None:
        """Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_START_S)
            self._process = None
        self._remove_sockets()

    def _start(self) -> None:
        names = [_METRICS, *(f"{part}.port{kind}" for part in _PORTS for kind in ("", ".grpc"))]
        self._ports = dict(zip(names, kept_ports(len(names)), strict=True))
        self._remove_sockets()  # of one that was killed together with its test
        data = self._folder / "data"
        data.mkdir(exist_ok=True)
        access = self._folder / "access.json"
        access.write_text(json.dumps(self._identities()))
        flags = [f"-{name}={port}" for name, port in self._ports.items()]
        flags += [f"-dir={data}", f"-s3.config={access}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        flags += ["-filer", "-s3", "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        flags += ["-master.telemetry=false", "-master.volumeSizeLimitMB=256", "-volume.max=0"]
        flags += ["-master.electionTimeout=1s", "-master.heartbeatInterval=100ms"]
        weed = Path(sysconfig.get_path("scripts")) / "weed"
        with self._log().open("wb") as output:
            self._process = subprocess.Popen(
                [str(weed), "-logtostderr=true", "server", *flags],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )

    def _remove_sockets(self) -> None:
        for port in self._ports.values():  # seaweedfs leaves them behind, always in this folder
            for stale in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                stale.unlink(missing_ok=True)

    def _came_up(self) -> bool:
        until = time.monotonic() + _START_S
        while self._process is not None and self._process.poll() is None and time.monotonic() < until:
            with (
                contextlib.suppress(urllib.error.URLError, OSError),
                urllib.request.urlopen(f"{self.endpoint}/status", timeout=1),
            ):
                if self._stores():
                    return True
            time.sleep(0.05)
        return False

    def _stores(self) -> bool:
        """Whether it takes objects: the door answers before what is behind it does, above all after a kill."""
        try:
            self.make_bucket("ready")
        except obstore.exceptions.BaseError:
            return False
        return True

    def _log(self) -> Path:
        return self._folder / "server.log"

    def _identities(self) -> object:
        key = {"accessKey": self.access_key_id, "secretKey": self.secret_access_key}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        return {"identities": [{"name": "test", "credentials": [key], "actions": actions}]}
