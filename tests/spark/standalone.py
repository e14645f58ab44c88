"""A standalone cluster of Spark on the loopback: a master and a worker, each a JVM of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import pyspark

from mainstem.spark.java import find_java
from mainstem.testing.ports import kept_ports

WAIT_S = 120.0
HOST = "127.0.0.1"


class StandaloneCluster:
    """`url` is its master. Leaving the block ends it, with the executors.

    These have `env` besides this process's variables, and find the folder `hidden` empty if the system allows that."""

    def __init__(
        self, folder: Path, env: Mapping[str, str] | None = None, hidden: Path | None = None
    ) -> None:
        self.folder = folder
        self._env = dict(env or {})
        self._hidden = hidden
        self._home = Path(pyspark.__file__).parent
        (port,) = kept_ports(1)
        self.url = f"spark://{HOST}:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = port

    def __enter__(self) -> StandaloneCluster:
        try:
            self._start("master", "master.Master", "--port", str(self._port), ready="started")
            worker = ("--cores", "2", "--memory", "2g", "--work-dir", str(self.folder / "work"), self.url)
            self._start("worker", "worker.Worker", *worker, ready="Successfully registered with master")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()

    @property
    def submit(self) -> list[str]:
        """The command that runs a program on the cluster."""
        return [str(self._home / "bin" / "spark-submit"), "--master", self.url]

    def executors(self) -> list[Path]:
        """The folders of the executors that the worker has started."""
        return sorted((self.folder / "work").glob("app-*/*"))

    def _start(self, name: str, role: str, *flags: str, ready: str) -> None:
        log = self.folder / f"{name}.log"
        command = [*self._without_hidden(), str(self._home / "bin" / "spark-class")]
        command += [f"org.apache.spark.deploy.{role}"]
        with log.open("w") as output:
            process = subprocess.Popen(
                [*command, "--host", HOST, "--webui-port", "0", *flags],
                env={
                    **os.environ,
                    **self._env,
                    "JAVA_HOME": str(find_java(os.environ)),
                    "SPARK_HOME": str(self._home),
                    "SPARK_LOCAL_IP": HOST,
                    "SPARK_DAEMON_MEMORY": "256m",
                },
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        deadline = time.monotonic() + WAIT_S
        while ready not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    def _without_hidden(self) -> list[str]:
        """What comes before a command so that it runs in a mount namespace where the hidden folder is empty."""
        if self._hidden is None or os.geteuid() != 0 or shutil.which("unshare") is None:
            return []
        mount = f'mount -t tmpfs none "{self._hidden}" && exec "$@"'
        return ["unshare", "-m", "sh", "-c", mount, "sh"]
