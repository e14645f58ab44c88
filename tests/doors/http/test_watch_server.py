"""Event streams and web sockets of a real server: over sockets, through a shutdown, and after a restart."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import psutil
import pytest

from .watching import Event, parse

Serve = Callable[..., Any]


def write(server: Any, topic: str, *data: object) -> None:
    status, body = server.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": value} for value in data]})
    assert status in (200, 201), body


def watch(server: Any, topics: dict[str, object], **more: object) -> str:
    status, body = server.ask("POST", "/v0/watch", {"topics": topics, **more})
    assert status == 200, body
    return str(body["stream_url"])


def frames(response: httpx.Response) -> Iterator[Event]:
    text = ""
    for part in response.iter_text():
        text += part
        *whole, text = text.split("\n\n")
        yield from (parse(frame) for frame in whole)
    assert text == ""


def heartbeat(event: Event) -> bool:
    """Heartbeats come whenever nothing else did for a second, as on a slow machine."""
    return str(event.data).startswith(": hb 1")


def numbers(event: Event) -> list[int]:
    return [record["$seq"] for record in event.data["records"]]


def test_a_stream_over_http_1(serve: Serve) -> None:
    with serve() as server:
        write(server, "a", 1, 2)
        with server.client.stream("GET", watch(server, {"a": {}}, heartbeat_ms=1_000)) as response:
            assert response.status_code == 200
            assert response.headers["content-type"] == "text/event-stream"
            whole = frames(response)
            events = (event for event in whole if not heartbeat(event))
            assert next(events) == Event("retry", 2_000, None)
            assert numbers(next(events)) == [1, 2]
            assert next(events).name == "caught-up"
            httpx.post(f"{server.url}/v0/topics/a", json={"records": [{"data": 3}]}, timeout=60)
            event = next(events)
            assert (numbers(event), event.cursors) == ([3], {"a": 3})
            assert heartbeat(next(whole))


def test_streams_share_an_http_2_connection(serve: Serve) -> None:
    with serve() as server, httpx.Client(base_url=server.url, http1=False, http2=True, timeout=60) as client:
        write(server, "a", 1)
        write(server, "b", 1)
        with (
            client.stream("GET", watch(server, {"a": {}})) as one,
            client.stream("GET", watch(server, {"b": {}})) as two,
        ):
            assert (one.http_version, one.headers["content-type"]) == ("HTTP/2", "text/event-stream")
            first, second = frames(one), frames(two)
            assert [next(first).name for _ in range(3)] == ["retry", "record", "caught-up"]
            assert [next(second).name for _ in range(3)] == ["retry", "record", "caught-up"]
            write(server, "b", 2)
            assert numbers(next(second)) == [2]
            server.ask("DELETE", "/v0/topics/a")
            assert next(first).name == "topic-deleted"
            assert list(first) == []
            write(server, "b", "x" * 500_000)
            write(server, "b", "x" * 500_000)
            assert [seq for _ in range(2) for seq in numbers(next(second))] == [3, 4]
            server.process.signal(signal.SIGTERM)
            assert next(second).data["code"] == "server_shutting_down"
            assert list(second) == []
        assert server.process.wait() == 0


def test_a_stream_ends_cleanly_when_the_server_stops(serve: Serve) -> None:
    with serve() as server:
        write(server, "a", 1)
        with server.client.stream("GET", watch(server, {"a": {}})) as response:
            events = frames(response)
            while next(events).name != "caught-up":
                continue
            server.process.signal(signal.SIGTERM)
            told = next(events)
            assert (told.name, told.data["code"]) == ("error", "server_shutting_down")
            assert list(events) == []
        assert server.process.wait() == 0
        assert "connections cut off" not in server.process.events()


def test_a_client_resumes_after_a_restart_without_loss(serve: Serve) -> None:
    with serve() as server:
        server.ask("PUT", "/v0/topics/a", {"durability": "fsync"})
        write(server, "a", *range(10))
        url = watch(server, {"a": {}}, limit=4)
        with server.client.stream("GET", url) as response:
            last = next(event for event in frames(response) if event.name == "record")
        assert last.cursors == {"a": 4}
        server.process.kill()
    with serve() as server:
        # The session ended with the server. The id tells where the client was.
        assert server.ask("GET", url)[0] == 404
        url = watch(server, {name: {"from_seq": seq} for name, seq in last.cursors.items()})
        with server.client.stream("GET", url, headers={"last-event-id": "eyJhIjo0fQ"}) as response:
            event = next(event for event in frames(response) if event.name == "record")
            assert numbers(event) == list(range(5, 11))


def test_a_client_that_never_reads_costs_little_and_catches_up(serve: Serve) -> None:
    readers, rounds, size = 20, 150, 100_000
    with serve() as server, ExitStack() as opened:
        write(server, "a", 0)
        address = server.process.address("http")
        sockets = []
        for number in range(readers):
            write(server, f"own{number}", 0)  # so that no two of them can share a frame
            url = watch(server, {"a": {"tail": True}, f"own{number}": {}})
            made = opened.enter_context(socket.socket())
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.connect((address.host, address.port))
            made.sendall(f"GET {url} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            sockets.append(made)
        process = psutil.Process(server.process.pid)
        before = process.memory_info().rss
        for _ in range(rounds):
            write(server, "a", "x" * size)
        assert process.memory_info().rss - before < readers * rounds * size / 2
        seen = bytearray()
        sockets[0].settimeout(60)
        while seen.find(b'"to_seq":%d' % (rounds + 1), max(0, len(seen) - 5_000)) < 0:
            part = sockets[0].recv(1 << 20)
            assert part
            seen += part
        numbered = [int(number) for number in re.findall(rb'"\$seq":(\d+),"\$ts":\d+,"data":"x', seen)]
        assert numbered == list(range(2, rounds + 2))


@pytest.mark.alone("every broker counts for itself")
def test_clients_that_leave_free_their_slots(serve: Serve) -> None:
    with serve("--max-sse-connections", "2") as server:
        write(server, "a", 1)
        url = watch(server, {"a": {}})
        for _ in range(10):
            with server.client.stream("GET", url) as response:
                assert response.status_code == 200
                assert next(frames(response)).name == "retry"
            while b"\nmainstem_http_streams 0.0\n" not in server.client.get("/v0/metrics").content:
                continue  # until it notices
        with (
            server.client.stream("GET", url) as one,
            httpx.stream("GET", server.url + url, timeout=60) as two,
        ):
            assert (one.status_code, two.status_code) == (200, 200)
            refused = httpx.get(server.url + url, timeout=60)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert refused.json()["error"]["detail"] == {"limit": "max_sse_connections", "max": 2}


def test_a_web_socket_over_the_wire(serve: Serve) -> None:
    client = pytest.importorskip("websockets.sync.client")
    with serve(env={"MAINSTEM_API_KEYS": "k"}) as server:
        address = server.url.replace("http://", "ws://") + "/v0/ws"
        with pytest.raises(Exception, match="401"):
            client.connect(address)
        headers = {"Authorization": "Bearer k"}
        with client.connect(address, additional_headers=headers) as ws:
            ws.send(json.dumps({"op": "publish", "request_id": 1, "topic": "a", "records": [{"data": 1}]}))
            assert json.loads(ws.recv())["op"] == "ack"
            ws.send(json.dumps({"op": "subscribe", "topic": "a"}))
            assert [json.loads(ws.recv())["op"] for _ in range(3)] == ["subscribed", "record", "caught_up"]
            ws.send(b"\x00\xff")
            assert json.loads(ws.recv())["code"] == "unsupported_message"
            server.process.signal(signal.SIGTERM)
            assert json.loads(ws.recv())["code"] == "server_shutting_down"
        assert server.process.wait() == 0
