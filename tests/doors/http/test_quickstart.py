"""The first commands of a new user."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any


def test_the_first_steps_with_curl(serve: Callable[..., Any]) -> None:
    with serve() as server:

        def curl(*arguments: str) -> Any:
            done = subprocess.run(["curl", "-sS", *arguments], capture_output=True, text=True, check=True)
            return json.loads(done.stdout)

        topic = f"{server.url}/v0/topics/hello"
        json_body = ("-H", "Content-Type: application/json", "-d")
        written = curl(
            topic, *json_body, '{"records":[{"data":{"hello":"world"}},{"data":"again","tag":"a:1"}]}'
        )
        assert (written["first_seq"], written["last_seq"], written["created"]) == (1, 2, True)
        read = curl("-X", "POST", f"{topic}/diff")
        assert [record["data"] for record in read["records"]] == [{"hello": "world"}, "again"]
        assert (read["next_from_seq"], read["caught_up"]) == (2, True)
        assert curl(topic)["count"] == 2
        assert curl("-X", "PUT", topic, *json_body, '{"cap_records":1}')["config"]["cap_records"] == 1
        assert curl("-X", "POST", f"{topic}/diff")["tombstone"]["reason"] == "cap"
        assert curl("-X", "DELETE", topic)["deleted"] is True
        assert curl(topic)["error"]["code"] == "topic_not_found"


def test_everything_is_there_after_a_restart(serve: Callable[..., Any]) -> None:
    with serve() as server:
        server.ask("PUT", "/v0/topics/t", {"priority": 7, "cap_records": 3, "durability": "fsync"})
        for number in range(5):
            server.ask("POST", "/v0/topics/t", {"records": [{"data": number, "meta": {"n": number}}]})
        before = server.ask("GET", "/v0/topics/t")[1], server.ask("POST", "/v0/topics/t/diff", {})[1]
        server.process.kill()
    with serve() as server:
        after = server.ask("GET", "/v0/topics/t")[1], server.ask("POST", "/v0/topics/t/diff", {})[1]
        for old, new in zip(before, after, strict=True):
            for volatile in ("performance", "effective_priority", "last_read_ts"):
                old.pop(volatile, None), new.pop(volatile, None)
            assert old == new
        assert [record["data"] for record in after[1]["records"]] == [2, 3, 4]
