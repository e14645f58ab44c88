"""Servers with names: which one a command talks to, and whom their keys are sent to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from .conftest import Shell


@dataclass
class Listener:
    """Notes which keys and namespaces it was sent, and serves no topic."""

    url: str
    seen: list[tuple[str | None, str | None]] = field(default_factory=list)


@pytest.fixture
def listeners() -> Iterator[tuple[Listener, Listener]]:
    made, servers = [], []
    for _ in range(2):
        listener = Listener("")

        class Handler(BaseHTTPRequestHandler):
            noted = listener.seen

            def do_GET(self) -> None:
                namespace = parse_qs(urlsplit(self.path).query).get("namespace", [None])[0]
                self.noted.append((self.headers.get("authorization"), namespace))
                body = json.dumps({"topics": [], "next": None, "status": "ok", "performance": {}}).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        listener.url = f"http://127.0.0.1:{server.server_port}"
        made.append(listener)
        servers.append(server)
    yield made[0], made[1]
    for server in servers:
        server.shutdown()
        server.server_close()


def asked(listener: Listener) -> set[tuple[str | None, str | None]]:
    seen = set(listener.seen)
    listener.seen.clear()
    return seen


def test_a_command_talks_to_the_context_that_is_named_or_current(
    plain: Shell, listeners: tuple[Listener, Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = listeners
    assert plain("context", "add", "here", "--url", here.url, "--use").code == 0
    assert plain("context", "add", "there", "--url", there.url + "/", "--api-key", "k").code == 0
    for arguments, variables, answering in (
        ((), {}, here),
        (("--context", "there"), {}, there),
        ((), {"MAINSTEM_CONTEXT": "there"}, there),
        ((), {"MAINSTEM_CONTEXT": "here", "MAINSTEM_URL": there.url}, there),
        (("--context", "here"), {"MAINSTEM_URL": there.url}, here),
        (("--url", there.url), {}, there),
    ):
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            plain(*arguments, "group", "list")
        silent = there if answering is here else here
        assert asked(answering), (arguments, variables)
        assert not asked(silent), (arguments, variables)
    assert plain("context", "use", "there").code == 0
    plain("group", "list")
    assert asked(there)
    assert plain("context", "use", "--none").code == 0
    refused = plain("--context", "here", "--url", there.url, "group", "list")
    assert (refused.code, "mutually exclusive" in refused.err) == (2, True)


def test_the_key_of_a_context_goes_to_its_server_only(
    plain: Shell, listeners: tuple[Listener, Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = listeners
    given = ("--url", here.url, "--api-key-stdin", "--namespace", "shop", "--use")
    assert plain("context", "add", "here", *given, stdin=b"secret\n").code == 0
    plain("group", "list")
    assert asked(here) == {("Bearer secret", "shop")}
    plain("group", "list", "--url", there.url)
    plain("group", "--url", there.url, "list")
    plain("--url", there.url, "group", "list")
    monkeypatch.setenv("MAINSTEM_URL", there.url)
    plain("group", "list")
    monkeypatch.delenv("MAINSTEM_URL")
    plain("shell", "--url", there.url, stdin=b"group list\n")
    assert asked(there) == {(None, None)}
    plain("--api-key", "other", "group", "list")
    plain("group", "list", "--api-key", "other")
    assert asked(here) == {("Bearer other", "shop")}
    plain("shell", stdin=f"group list --url {there.url}\ngroup list\n".encode())
    assert (asked(there), asked(here)) == ({(None, None)}, {("Bearer secret", "shop")})
    plain("shell", "--api-key", "other", stdin=b"group list\n")
    plain("--api-key", "other", "shell", stdin=b"group list\n")
    assert asked(here) == {("Bearer other", "shop")}
    plain("context", "use", "--none")
    plain("--context", "here", "shell", stdin=b"group list\n")
    assert asked(here) == {("Bearer secret", "shop")}


def test_the_key_of_another_server_is_not_sent_to_that_of_a_context(
    plain: Shell, listeners: tuple[Listener, Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = listeners
    assert plain("context", "add", "here", "--url", here.url).code == 0
    monkeypatch.setenv("MAINSTEM_URL", there.url)
    monkeypatch.setenv("MAINSTEM_API_KEY", "theirs")
    monkeypatch.setenv("MAINSTEM_NAMESPACE", "their-shop")
    plain("--context", "here", "group", "list")
    plain("--context", "here", "shell", stdin=b"group list\n")
    assert asked(here) == {(None, None)}
    plain("--context", "here", "--api-key", "mine", "group", "list")
    assert asked(here) == {("Bearer mine", None)}
    plain("group", "list")
    assert (asked(there), asked(here)) == ({("Bearer theirs", "their-shop")}, set())


def test_a_url_replaces_the_current_context_as_if_there_was_none(
    plain: Shell, listeners: tuple[Listener, Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = listeners
    plain("context", "add", "here", "--url", here.url, "--api-key", "secret", "--use")
    monkeypatch.setenv("MAINSTEM_API_KEY", "mine")
    for arguments in (("--url", there.url, "group", "list"), ("group", "list", "--url", there.url)):
        plain(*arguments)
        assert asked(there) == {("Bearer mine", None)}, arguments


def test_a_namespace_that_is_given_holds_for_every_server(
    plain: Shell, listeners: tuple[Listener, Listener]
) -> None:
    """A command must not reach a topic of the same name in another namespace."""
    here, there = listeners
    plain("context", "add", "here", "--url", here.url, "--namespace", "shop", "--use")
    plain("topic", "-n", "acme", "list")
    plain("topic", "-n", "acme", "list", "--url", there.url)
    plain("topic", "-n", "acme", "--url", there.url, "list")
    assert (asked(here), asked(there)) == ({(None, "acme")}, {(None, "acme")})


def test_contexts_are_listed_without_keys_and_kept_from_others(plain: Shell, tmp_path: Path) -> None:
    plain("context", "add", "prod", "--url", "https://log.example", "--api-key", "secret", "--use")
    plain("context", "add", "dev", "--url", "http://127.0.0.1:4000")
    assert plain("context", "list", "--json").json == [
        {
            "name": "dev",
            "url": "http://127.0.0.1:4000",
            "api_key": None,
            "namespace": None,
            "current": False,
        },
        {
            "name": "prod",
            "url": "https://log.example",
            "api_key": "set",
            "namespace": None,
            "current": True,
        },
    ]
    assert "secret" not in plain("context", "list").text
    file = tmp_path / "config" / "mainstem" / "contexts.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert plain("context", "remove", "prod").code == 0
    assert json.loads(file.read_text())["current"] == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--context", "prd", "topic", "list"), "did you mean"),
        (("context", "use", "none"), "no context 'none'"),
        (("context", "add", "x", "--url", "log.example"), "begins with http://"),
    ],
)
def test_a_wrong_name_or_url_is_refused(plain: Shell, arguments: tuple[str, ...], expected: str) -> None:
    plain("context", "add", "prod", "--url", "https://log.example")
    refused = plain(*arguments)
    assert (refused.code, expected in refused.err) == (1, True), refused.err


def test_a_damaged_file_is_named_and_does_not_matter_where_a_server_is(plain: Shell, tmp_path: Path) -> None:
    file = tmp_path / "config" / "mainstem" / "contexts.json"
    file.parent.mkdir(parents=True)
    file.write_text("[]")
    refused = plain("topic", "list")
    assert (refused.code, str(file) in refused.err) == (1, True)
    assert "no server at" in plain("--url", "http://127.0.0.1:1", "topic", "list").err
