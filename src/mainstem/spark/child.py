"""The lake's driver as a child of a server: started beside it, started again when it dies, ended with it."""

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
from mainstem.lake.store_access import STORE_ENV

CHILD_ENV = "MAINSTEM_LAKE_CHILD"  # tells a driver that the end of its stdin is the end of its server
SPARK_MISSING = "spark missing"  # the event of a driver that cannot run on this machine

_log = events.named("lake")

_PAUSE_S = 1.0
_PAUSE_MAX_S = 60.0
_LIVED_S = 60.0  # a driver that ran for so long had no trouble starting
_END_S = 20.0  # it gives its leases back in that time, or they run out
_LINE_BYTES_MAX = 1 << 20
_LINES_KEPT = 20


class LakeChild:
    """Keeps `mainstem lake run` going against a server's own HTTP door."""

    def __init__(self, door: Address, api_key: str | None, store: str = "") -> None:
        """`store`: URL of the server's object store, with all it takes to get in."""
        self._store = store
        self._url = f"http://{reachable(door)}"
        self._api_key = api_key
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._missing = False
        self._output: deque[str] = deque(maxlen=_LINES_KEPT)  # what it said outside its log

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_running(), name="lake")

    async def stop(self) -> None:
        """End the driver, politely at first."""
        if self._task is None:
            return
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), _END_S)
            except TimeoutError:
                _log.warning("killed", pid=process.pid, after_s=_END_S)
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
            if loop.time() - started > _LIVED_S:
                pause_s = _PAUSE_S
            _log.warning("ended", code=code, again_in_s=pause_s, output="\n".join(self._output))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _run(self) -> int:
        """Start it and see it end. Returns its exit code."""
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
            start_new_session=True,  # a Ctrl-C is for the server, which then ends it in order
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
                _log.warning("off", message=f"the lake does not run, the server does: {fields.get('error')}")
            elif "error" in fields:
                _log.warning(event, **fields)
            else:
                _log.info(event, **fields)

    async def _read_output(self, lines: asyncio.StreamReader | None) -> None:
        """What Java and Python say beside the log: of interest if it ends badly."""
        async for line in _lines(lines):
            self._output.append(line)
            _log.debug("output", line=line)


def reachable(door: Address) -> Address:
    """Where this machine reaches a door that listens on this address."""
    if door.host in ("0.0.0.0", "::", ""):
        return Address("127.0.0.1", door.port)
    return door


async def _lines(reader: asyncio.StreamReader | None) -> AsyncIterator[str]:
    while reader is not None:
        try:
            line = await reader.readline()
        except ValueError:  # a line longer than the limit: what was read of it is dropped
            continue
        if not line:
            return
        yield line.decode("utf-8", "replace").rstrip("\n")
