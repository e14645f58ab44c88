"""Run the lake's driver as a child process of a server: restart it when it exits, stop it with the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator

from mainstem import events
from mainstem.address import Address
from mainstem.ports.objectstore.open import STORE_ENV

CHILD_ENV = "MAINSTEM_LAKE_CHILD"  # set for a child driver: it exits when its stdin reaches EOF
SPARK_MISSING = "spark missing"  # event of a driver that finds no Spark or Java

_log = events.named("lake")

_PAUSE_S = 1.0
_PAUSE_MAX_S = 60.0
_HEALTHY_S = 60.0  # a driver that ran this long started successfully: the restart delay is reset
_STOP_TIMEOUT_S = 20.0  # time to release its leases; otherwise they expire
_LINE_BYTES_MAX = 1 << 20
_LINES_KEPT = 20


class LakeChild:
    """Keeps `mainstem lake run` running against the server's own HTTP door."""

    def __init__(self, door: Address, api_key: str | None, store: str = "") -> None:
        """`store`: URL of the server's object store, with its credentials."""
        self._store = store
        self._url = f"http://{reachable(door)}"
        self._api_key = api_key
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._missing = False
        self._output: deque[str] = deque(maxlen=_LINES_KEPT)  # its last lines outside the log

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_running(), name="lake")

    async def stop(self) -> None:
        """Stop the driver: SIGTERM, then SIGKILL after a timeout."""
        if self._task is None:
            return
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
            except TimeoutError:
                _log.warning("driver killed", pid=process.pid, after_s=_STOP_TIMEOUT_S)
                process.kill()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = _PAUSE_S
        while True:
            started = loop.time()
            code = await self._run()
            if self._missing:
                return
            if loop.time() - started > _HEALTHY_S:
                pause_s = _PAUSE_S
            _log.warning("driver exited", code=code, restart_in_s=pause_s, output="\n".join(self._output))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _run(self) -> int:
        """Run the driver until it exits. Returns its exit code."""
        environ = {**os.environ, CHILD_ENV: "1", "MAINSTEM_URL": self._url}
        environ.pop("MAINSTEM_API_KEYS", None)
        if self._store:
            environ[STORE_ENV] = self._store
        if self._api_key is not None:
            environ["MAINSTEM_API_KEY"] = self._api_key
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mainstem", "lake", "run"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environ,
            limit=_LINE_BYTES_MAX,
            start_new_session=True,  # a Ctrl-C goes to the server only, which then stops the driver
        )
        try:
            await asyncio.gather(self._read_events(process.stdout), self._read_output(process.stderr))
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()

    async def _read_events(self, lines: asyncio.StreamReader | None) -> None:
        async for line in _lines(lines):
            try:
                fields = json.loads(line)
                event = str(fields.pop("event"))
                fields.pop("ts", None)
            except (ValueError, KeyError, AttributeError):
                self._output.append(line)
                continue
            if event == SPARK_MISSING:
                self._missing = True
                _log.warning(
                    "lake disabled", message="the server runs without the lake", error=fields.get("error")
                )
            elif "error" in fields:
                _log.warning(event, **fields)
            else:
                _log.info(event, **fields)

    async def _read_output(self, lines: asyncio.StreamReader | None) -> None:
        """Keep the last lines that Java and Python write outside the log, for the case that the driver fails."""
        async for line in _lines(lines):
            self._output.append(line)
            _log.debug("output", line=line)


def reachable(door: Address) -> Address:
    """The address at which this machine connects to a door that listens on `door`."""
    if door.host in ("0.0.0.0", "::", ""):
        return Address("127.0.0.1", door.port)
    return door


async def _lines(reader: asyncio.StreamReader | None) -> AsyncIterator[str]:
    while reader is not None:
        try:
            line = await reader.readline()
        except ValueError:  # a line over the limit: skip it
            continue
        if not line:
            return
        yield line.decode("utf-8", "replace").rstrip("\n")
