"""Event streams and web sockets of the application in this process, read frame by frame."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, NamedTuple

from mainstem.api.records import WATCH_EVENTS
from mainstem.api.routes import GET_WATCH
from mainstem.doors.http.transport.app import App
from mainstem.doors.http.transport.context import Context
from tests.support.contract import check_body

from .conftest import Api

PATIENCE_S = 60.0


class Event(NamedTuple):
    name: str  # "" for comments and retry
    data: Any
    cursors: dict[str, int] | None


def parse(frame: str) -> Event:
    """One frame without the blank line after it. Every line must be one that the contract defines."""
    assert "\r" not in frame
    name, data, cursors = "", None, None
    for line in frame.split("\n"):
        if line.startswith(":"):
            return Event("", line, None)
        field, value = line.split(": ", 1)
        if field == "id":
            cursors = json.loads(base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)))
            assert "=" not in value
        elif field == "event":
            name = value
        elif field == "data":
            assert data is None
            data = json.loads(value)
            check_body(GET_WATCH.events[name], value.encode())
        else:
            assert field == "retry"
            return Event("retry", int(value), None)
    return Event(name, data, cursors)


def event_id(cursors: dict[str, int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(cursors).encode()).rstrip(b"=").decode()


class _Connection:
    """A client of the application: what it sends, what it receives, and whether it reads."""

    def __init__(self, context: Context, scope: dict[str, Any], first: dict[str, Any]) -> None:
        self.reading = asyncio.Event()
        self.reading.set()
        self.blocked = 0  # sends that wait for the client to read
        self.messages: list[dict[str, Any]] = []
        self._arrived = asyncio.Event()
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._incoming.put_nowait(first)
        self._task = asyncio.ensure_future(App(context)(scope, self._incoming.get, self._send))
        self._task.add_done_callback(lambda _: self._arrived.set())

    async def _send(self, message: dict[str, Any]) -> None:
        if not self.reading.is_set():
            self.blocked += 1
            await self.reading.wait()
            self.blocked -= 1
        self.messages.append(message)
        self._arrived.set()
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._incoming.put_nowait({"type": "http.disconnect"})
        if message["type"] == "websocket.close":
            self._incoming.put_nowait({"type": "websocket.disconnect", "code": message["code"]})

    async def arrived(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._arrived.wait()
        self._arrived.clear()

    async def ended(self) -> None:
        """Wait until the application ends."""
        async with asyncio.timeout(PATIENCE_S):
            await self._task

    async def _close(self, message: dict[str, Any]) -> None:
        self.reading.set()
        self._incoming.put_nowait(message)
        await self.ended()

    @property
    def done(self) -> bool:
        return self._task.done()


class EventStream(_Connection):
    """`async with EventStream(context, url) as stream: await stream.event()`"""

    def __init__(self, context: Context, path: str, **headers: str) -> None:
        raw_path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "scheme": "http",
            "method": "GET",
            "path": raw_path,
            "raw_path": raw_path.encode(),
            "query_string": query.encode(),
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        }
        super().__init__(context, scope, {"type": "http.request", "body": b"", "more_body": False})
        self._text = ""
        self._unread: list[Event] = []
        self._taken = 0

    async def __aenter__(self) -> EventStream:
        while not self.messages:
            await self.arrived()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close({"type": "http.disconnect"})

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def complete(self) -> bool:
        return not self.messages[-1].get("more_body", True)

    def _parse(self) -> None:
        for message in self.messages[1 + self._taken :]:
            self._text += message["body"].decode()
            self._taken += 1
        *frames, self._text = self._text.split("\n\n")
        self._unread += [event for event in map(parse, frames) if event.name != "retry"]

    def waiting(self) -> list[Event]:
        """Received events that were not read yet."""
        self._parse()
        events, self._unread = self._unread, []
        return events

    async def events(self, count: int) -> list[Event]:
        """The next frames, without the initial retry."""
        self._parse()
        while len(self._unread) < count:
            assert not self.done, f"it ended after {self._unread}"
            await self.arrived()
            self._parse()
        found, self._unread = self._unread[:count], self._unread[count:]
        return found

    async def until(self, name: str) -> list[Event]:
        """Everything up to the first event of this name."""
        found = await self.events(1)
        while found[-1].name != name:
            found += await self.events(1)
        return found


class WebSocket(_Connection):
    """`async with WebSocket(context) as socket: await socket.ask(op="ping")`"""

    def __init__(self, context: Context, path: str = "/v0/ws", **headers: str) -> None:
        scope = {
            "type": "websocket",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "extensions": {"websocket.http.response": {}},
        }
        super().__init__(context, scope, {"type": "websocket.connect"})
        self._taken = 0

    async def __aenter__(self) -> WebSocket:
        while not self.messages:
            await self.arrived()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close({"type": "websocket.disconnect", "code": 1000})

    @property
    def accepted(self) -> bool:
        return bool(self.messages[0]["type"] == "websocket.accept")

    def send(self, text: str | bytes) -> None:
        kind = "text" if isinstance(text, str) else "bytes"
        self._incoming.put_nowait({"type": "websocket.receive", kind: text})

    async def text(self) -> str:
        while len(self.messages) <= 1 + self._taken:
            assert not self.done
            await self.arrived()
        self._taken += 1
        message = self.messages[self._taken]
        assert message["type"] == "websocket.send", message
        return str(message["text"])

    async def next(self) -> Any:
        message = json.loads(await self.text())
        event = WATCH_EVENTS.get(message.get("op", "").replace("_", "-"))
        if event is not None:
            check_body(event, json.dumps({key: message[key] for key in message if key != "op"}).encode())
        return message

    async def ask(self, **command: Any) -> Any:
        self.send(json.dumps(command))
        return await self.next()


async def session(api: Api, *names: str, key: str | None = None, **more: Any) -> Any:
    topics = more.pop("topics", {name: {} for name in names})
    status, body = await api.ask("POST", "/v0/watch", {"topics": topics, **more}, key=key)
    assert status == 200, body
    return body


async def watch(api: Api, *names: str, **more: Any) -> EventStream:
    return EventStream(api.context, (await session(api, *names, **more))["stream_url"])


def numbers(event: Any) -> list[int]:
    return [record["$seq"] for record in event.data["records"]]
