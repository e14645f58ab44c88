"""Keys, scopes and prefixes (section 1 of the contract)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainstem.api.route import Scope
from mainstem.broker.access.keys import parse_keys
from mainstem.doors.http.transport.auth import bearer
from mainstem.doors.http.transport.context import HttpLimits
from mainstem.errors import InvalidConfig

from .conftest import Api, code

WRITE = {"records": [{"data": 1}]}

KEYS = "all,reader:r,writer:w,deleter:del,boss:a,both:rw,team:rw:a|b:,anything::a"


@pytest.fixture
async def locked(open_api: Callable[..., Any]) -> Any:
    async with open_api(api_keys=KEYS) as api:
        await api.broker.create_topic("a1")
        await api.broker.create_topic("b:1")
        await api.broker.create_topic("c")
        yield api


@pytest.mark.parametrize(
    ("text", "scopes", "prefixes"),
    [
        ("k", Scope.ALL, ()),
        ("k:", Scope.ALL, ()),
        ("k::", Scope.ALL, ()),
        ("k:read", Scope.READ, ()),
        ("k:r+w", Scope.READ | Scope.WRITE, ()),
        ("k:rw+d", Scope.READ | Scope.WRITE | Scope.DELETE, ()),
        ("k:delete", Scope.DELETE, ()),
        ("k:del", Scope.DELETE, ()),
        ("k:admin+a", Scope.ADMIN, ()),
        ("k::x|y:", Scope.ALL, ("x", "y:")),
        ("k:r:x", Scope.READ, ("x",)),
    ],
)
def test_how_a_key_is_written(text: str, scopes: Scope, prefixes: tuple[str, ...]) -> None:
    [key] = parse_keys(f" , {text} ,")
    assert (key.scopes, key.prefixes) == (scopes, prefixes)
    assert key.digest != b"k"
    assert len(key.digest) == 32


@pytest.mark.parametrize("text", ["k:wrong", "k:r+", "k:R", ":r", "k,k:r"])
def test_an_invalid_key_list_is_refused_without_showing_the_key(text: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        parse_keys("secret-one," + text)
    assert "secret-one" not in str(error.value)


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        (b"Bearer k", b"k"),
        (b"bearer  k ", b"k"),
        (b"Basic k", None),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"k", None),
        (None, None),
    ],
)
def test_valid_and_invalid_authorization_headers(header: bytes | None, secret: bytes | None) -> None:
    assert bearer(header) == secret


async def test_without_a_known_key_everything_is_401(locked: Api) -> None:
    for method, path in (
        ("GET", "/v0/topics"),
        ("GET", "/v0/topics/a1"),
        ("GET", "/nothing"),
        ("PATCH", "/v0/topics/a1"),
        ("GET", "/v0/metrics"),
        ("POST", "/v0/topics/a1"),
    ):
        for key in (None, "nobody", "allx"):
            assert code(await locked.ask(method, path, key=key)) == (401, "unauthorized")
    answer = await locked.client.get("/v0/topics", params={"token": "all"})
    assert answer.status_code == 401


async def test_too_many_waiting_password_checks_are_401(locked: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.broker.access.passwords.PASSWORD_CHECKS_WAITING_MAX", 0)
    answer = await locked.client.get("/v0/topics", auth=("ann", "secret"))
    assert code((answer.status_code, answer.json())) == (401, "unauthorized")
    form = {"grant_type": "client_credentials", "client_id": "ann", "client_secret": "secret"}
    assert (await locked.client.post("/iceberg/v1/oauth/tokens", data=form)).status_code == 401


@pytest.mark.parametrize("path", ["/v0/health", "/v0/ready", "/healthz", "/readyz"])
async def test_probes_need_no_key_unless_asked_for(open_api: Callable[..., Any], path: str) -> None:
    async with open_api(api_keys="k") as api:
        assert (await api.ask("GET", path))[0] == 200
    async with open_api(api_keys="k", probe_auth=True) as api:
        assert code(await api.ask("GET", path)) == (401, "unauthorized")
        assert (await api.ask("GET", path, key="k"))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "allowed"),
    [
        ("GET", "/v0/topics", None, {"reader", "both"}),
        ("GET", "/v0/topics/a1", None, {"reader", "both"}),
        ("POST", "/v0/topics/a1/diff", None, {"reader", "both"}),
        ("POST", "/v0/topics/a1", WRITE, {"writer", "both"}),
        ("POST", "/v0/topics/a1/delete", {"before_seq": 1}, {"deleter"}),
        ("PUT", "/v0/topics/a1", {}, {"boss"}),
        ("DELETE", "/v0/topics/a1", None, {"deleter"}),
        ("POST", "/v0/topics/new", {**WRITE, "config": {}}, set()),
        ("POST", "/v0/topics/a1", {**WRITE, "config": {}}, {"writer", "both"}),
    ],
)
async def test_scopes(locked: Api, method: str, path: str, body: object, allowed: set[str]) -> None:
    for key in ("reader", "writer", "deleter", "boss", "both"):
        status, answer = await locked.ask(method, path, body, key=key)
        if key in allowed:
            assert status in (200, 201), (key, answer)
        else:
            assert code((status, answer)) == (403, "forbidden"), key
    assert (await locked.ask(method, path, body, key="all"))[0] in (200, 201)


async def test_a_config_needs_admin_only_where_it_creates_the_topic(locked: Api) -> None:
    assert code(await locked.ask("POST", "/v0/topics/n", {**WRITE, "config": {}}, key="writer"))[0] == 403
    assert (await locked.ask("POST", "/v0/topics/n", WRITE, key="writer"))[0] == 201
    assert (await locked.ask("POST", "/v0/topics/n", {**WRITE, "config": {}}, key="writer"))[0] == 200


async def test_unknown_paths_under_a_topic_need_write(locked: Api) -> None:
    assert code(await locked.ask("POST", "/v0/topics/a1/what", key="reader")) == (403, "forbidden")
    assert code(await locked.ask("POST", "/v0/topics/a1/what", key="writer")) == (404, "not_found")
    assert code(await locked.ask("GET", "/v0/what", key="reader")) == (404, "not_found")


async def test_prefixes(locked: Api) -> None:
    for name in ("a1", "b:1"):
        assert (await locked.ask("GET", f"/v0/topics/{name}", key="team"))[0] == 200
    for method, path in (
        ("GET", "/v0/topics/c"),
        ("POST", "/v0/topics/c/diff"),
        ("POST", "/v0/topics/c/what"),
    ):
        status, body = await locked.ask(method, path, key="team")
        assert code((status, body)) == (403, "forbidden")
    assert (await locked.ask("POST", "/v0/topics/b1", WRITE, key="team"))[0] == 403
    assert (await locked.ask("PUT", "/v0/topics/a2", {}, key="anything"))[0] == 201
    listed = (await locked.ask("GET", "/v0/topics", key="team"))[1]["topics"]
    assert [topic["topic"] for topic in listed] == ["a1", "a2", "b:1"]
    first = (await locked.ask("GET", "/v0/topics?page_size=2", key="team"))[1]
    assert len(first["topics"]) == 2
    last = await locked.ask("GET", "/v0/topics", key="team", params={"cursor": first["next_cursor"]})
    assert [topic["topic"] for topic in last[1]["topics"]] == ["b:1"]


async def test_scopes_are_checked_before_the_body(locked: Api) -> None:
    wrong_type = {
        "content": b"x",
        "headers": {"authorization": "Bearer reader", "content-type": "text/plain"},
    }
    answer = await locked.client.post("/v0/topics/a1", **wrong_type)
    assert answer.status_code == 403


@pytest.mark.alone("every broker counts for itself")
async def test_requests_in_flight_are_bounded_by_key(open_api: Callable[..., Any]) -> None:
    import asyncio

    from tests.support.waiting import settle

    async with open_api(api_keys="one,two:r", bounds=HttpLimits(inflight_per_key=1)) as api:
        await api.ask("PUT", "/v0/topics/t", key="one")
        waiting = asyncio.ensure_future(api.ask("POST", "/v0/topics/t/diff", {"wait_ms": 30_000}, key="one"))
        await settle()
        answer = await api.client.post("/v0/topics/t", headers={"authorization": "Bearer one"})
        assert code((answer.status_code, answer.json())) == (429, "throttled")
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["detail"] == {"limit": "max_inflight_per_key", "max": 1}
        assert code(await api.ask("PUT", "/v0/topics/t", {}, key="two")) == (403, "forbidden")
        assert code(await api.ask("PUT", "/v0/topics/t", {}, key="none")) == (401, "unauthorized")
        api.broker.diffs.stop_waiting()
        assert (await waiting)[0] == 200
        for _ in range(2):  # each request gives its place back
            assert (await api.ask("GET", "/v0/topics/t", key="one"))[0] == 200


@pytest.mark.parametrize(
    ("env", "flags", "sentence"),
    [
        ({"MAINSTEM_API_KEYS": "k:wrong"}, [], "entry 1 of MAINSTEM_API_KEYS has a scope"),
        ({}, ["--http", "0.0.0.0:0"], "does not listen on 0.0.0.0:0 without keys"),
    ],
)
def test_a_server_that_is_open_by_mistake_does_not_start(
    tmp_path: Path, env: dict[str, str], flags: list[str], sentence: str
) -> None:
    import os

    outcome = subprocess.run(
        [
            sys.executable,
            "-m",
            "mainstem",
            "serve",
            "--text",
            "off",
            "--kafka",
            "off",
            "--http",
            "127.0.0.1:0",
            *flags,
        ],
        cwd=tmp_path,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert outcome.returncode == 1
    assert sentence in outcome.stderr
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("env", [{"MAINSTEM_API_KEYS": "k"}, {"MAINSTEM_ALLOW_INSECURE_NO_AUTH": "1"}])
def test_a_public_address_needs_keys_or_an_explicit_flag(
    serve: Callable[..., Any], env: dict[str, str]
) -> None:
    with serve("--http", "0.0.0.0:0", env=env) as server:
        port = server.process.address("http").port
        answer = server.client.get(
            f"http://127.0.0.1:{port}/v0/topics", headers={"authorization": "Bearer k"}
        )
        assert answer.status_code == 200
        assert all('"k"' not in str(line) for line in server.process.lines)
