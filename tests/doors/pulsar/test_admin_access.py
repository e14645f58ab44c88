"""The admin API for a client without rights: a route is refused, or known to say nothing of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mainstem.doors.pulsar.admin.policies import NO_EFFECT
from mainstem.doors.pulsar.admin.routes import _ROUTES
from mainstem.testing.server import ServerProcess
from tests.support.cluster import eventually

_OWNER = "o" * 64
_VALUES = {
    "{namespace}": "acme/shop",
    "{topic}": "persistent/acme/shop/hidden",
    "{plain_topic}": "acme/shop/hidden",
    "{domain}": "persistent",
    "{tenant}": "acme",
    "{subscription}": "worker",
    "{role}": "low",
    "{cluster}": "standalone",
    "{kind}": "topics",
    "{bundle}": "0x00000000_0xffffffff",
}
_BODIES = (
    "{}",
    "1",
    "true",
    '["produce", "consume"]',
    '["standalone"]',
    '"latest"',
    '{"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}',
    '{"limitSize": 1, "policy": "producer_exception"}',
    '{"type": "STRING", "schema": "", "properties": {}}',
    '{"adminRoles": ["low"], "allowedClusters": ["standalone"]}',
)
# What every client may know: of the server, and of policies that nobody can set.
_SAME_FOR_ALL = ("admin/v2/clusters", "admin/v2/brokers")
_EMPTY = ("admin/v2/tenants", "admin/v2/namespaces/{tenant}")  # lists of what the client may see


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[ServerProcess]:
    (tmp_path / "owner.key").write_text(_OWNER)
    with ServerProcess(tmp_path / "data", "--api-keys-file", str(tmp_path / "owner.key")) as server:
        yield server


def _client(server: ServerProcess, key: str) -> httpx.Client:
    return httpx.Client(
        base_url=f"http://{server.address('http')}", headers={"authorization": f"Bearer {key}"}, timeout=60
    )


def _harmless(parts: tuple[str, ...]) -> bool:
    path = "/".join(parts)
    return (
        path.startswith(_SAME_FOR_ALL)
        or path in _EMPTY
        or "antiAffinity" in parts
        or parts[-1] in NO_EFFECT
        or (parts[-1] in ("delayedDelivery", "publishRate", "dispatchRate") and "{topic}" in parts)
        or parts[-1] == "delayedDelivery"
    )


def test_a_client_without_rights_sees_and_changes_nothing(guarded: ServerProcess) -> None:
    with _client(guarded, _OWNER) as owner:
        for method, path, body in (
            ("PUT", "tenants/acme", {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}),
            ("PUT", "namespaces/acme/shop", {}),
            ("PUT", "persistent/acme/shop/hidden", None),
            ("PUT", "persistent/acme/shop/hidden/subscription/worker", {"ledgerId": -1, "entryId": -1}),
        ):
            owner.request(method, f"/admin/v2/{path}", json=body).raise_for_status()
        made = owner.post("/v0/keys", json={"name": "low", "scopes": "rw", "prefixes": ["low."]})
        before = _state(owner)
        with _client(guarded, made.raise_for_status().json()["secret"]) as low:
            for (method, _), routes in _ROUTES.items():
                for route in routes:
                    path = "/" + "/".join(_value(part) for part in route.parts)
                    for body in _BODIES if method in ("POST", "PUT") else (None,):
                        answer = low.request(method, path, content=body)
                        where = (method, path, body, answer.status_code, answer.text)
                        assert answer.status_code < 500, where
                        assert answer.status_code >= 400 or _harmless(route.parts), where
                        assert answer.status_code >= 400 or "shop" not in answer.text, where
                        assert "boss" not in answer.text, where
        assert _state(owner) == before


def _value(part: str) -> str:
    return _VALUES.get(part, "0" if part.startswith("{") else part)


def _state(owner: httpx.Client) -> list[object]:
    paths = ("tenants/acme", "namespaces/acme/shop", "persistent/acme/shop/hidden/stats")
    return [owner.get(f"/admin/v2/{path}").raise_for_status().json() for path in paths]


def test_the_audit_log_is_no_part_of_what_clients_do_to_a_namespace(guarded: ServerProcess) -> None:
    with _client(guarded, _OWNER) as owner:
        owner.put("/admin/v2/persistent/public/default/orders").raise_for_status()
        made = owner.post("/v0/keys", json={"name": "low", "scopes": "rw", "prefixes": ["orders"]})
        eventually(lambda: owner.get("/v0/topics/__audit").status_code, lambda status: status == 200)
    with _client(guarded, made.json()["secret"]) as low:
        done = low.post("/admin/v2/namespaces/public/default/clearBacklog")
        assert done.status_code == 204, done.text
