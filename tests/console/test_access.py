"""The Access screens: keys, users, rules, namespaces, rates and the audit log."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Page, expect

from .browser import Watched
from .conftest import OpenPage, Server

TABS = ("keys", "users", "rules", "namespaces", "rates", "audit")
PHONE = {"width": 390, "height": 844}


@pytest.fixture
def guarded(serve: Callable[..., Server]) -> Server:
    """A server with the keys `boss` (all scopes) and `looker` (read)."""
    server = serve(env={"MAINSTEM_API_KEYS": "boss,looker:r"})
    server.client.headers["authorization"] = "Bearer boss"
    return server


def signed_in(view: Page, server: Server, tab: str, key: str = "boss") -> None:
    view.goto(f"{server.url}/#/access/{tab}")
    view.get_by_label("API key", exact=True).fill(key)
    view.get_by_role("button", name="Sign in").click()
    expect(view.get_by_role("heading", name="Access", exact=True)).to_be_visible()


def status(server: Server, secret: str, path: str = "/v0/topics") -> int:
    return httpx.get(server.url + path, headers={"authorization": f"Bearer {secret}"}).status_code


def secret_of(view: Page) -> str:
    """Read the secret that the dialog shows, by its copy button, and close the dialog."""
    dialog = view.get_by_role("dialog").filter(has_text="cannot show it again")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Copy").click()
    expect(view.get_by_text("Copied.").first).to_be_visible()
    secret = dialog.locator("pre").inner_text()
    assert view.evaluate("navigator.clipboard.readText()") == secret
    dialog.get_by_role("button", name="Done").click()
    expect(view.get_by_role("dialog")).to_have_count(0)
    return secret


def test_a_key_is_created_shown_once_rotated_and_revoked(guarded: Server, open_page: OpenPage) -> None:
    page = open_page(allow=("401",))
    view = page.page
    guarded.client.put("/v0/namespaces/acme").raise_for_status()
    signed_in(view, guarded, "keys")
    expect(view.get_by_text("No keys are stored")).to_be_visible()
    view.get_by_role("button", name="Create key").click()
    view.get_by_label("Name", exact=True).fill("billing")
    view.get_by_label("write", exact=True).check()
    view.get_by_label("Topic prefixes").fill("orders. bills.")
    view.get_by_label("Expires").select_option("in 30 days")
    page.shot("40-create-key")
    view.get_by_role("button", name="Create", exact=True).click()
    secret = secret_of(view)
    row = view.get_by_role("row").filter(has_text="User:billing")
    expect(row).to_contain_text("read, write")
    expect(row).to_contain_text("orders.*, bills.*")
    assert secret not in view.content(), "a secret is shown once"
    assert status(guarded, secret) == 200
    assert status(guarded, secret, "/v0/keys") == 403
    (stored,) = guarded.client.get("/v0/keys").json()["keys"]
    assert stored["prefixes"] == ["orders.", "bills."]
    assert stored["expires_ms"] - stored["created_ms"] == 30 * 86_400_000

    row.get_by_role("button", name="Rotate").click()
    view.get_by_role("dialog").get_by_role("button", name="Rotate key").click()
    rotated = secret_of(view)
    assert rotated != secret
    assert (status(guarded, secret), status(guarded, rotated)) == (401, 200)

    row.get_by_role("button", name="Revoke").click()
    view.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert status(guarded, rotated) == 200, "nothing is revoked without a confirmation"
    row.get_by_role("button", name="Revoke").click()
    view.get_by_role("dialog").get_by_role("button", name="Revoke key").click()
    expect(view.get_by_text("No keys are stored")).to_be_visible()
    assert status(guarded, rotated) == 401

    view.get_by_role("button", name="Create key").click()
    view.get_by_label("Name", exact=True).fill("shop")
    view.get_by_label("Namespace").fill("acme")
    view.get_by_role("button", name="Create", exact=True).click()
    secret_of(view)
    expect(view.get_by_role("row").filter(has_text="User:shop")).to_contain_text("acme")


def test_the_first_key_of_an_open_server_signs_this_tab_in(server: Server, open_page: OpenPage) -> None:
    page = open_page(allow=("401",))
    view = page.page
    view.goto(f"{server.url}/#/access/keys")
    expect(view.get_by_text("The first key restricts access")).to_be_visible()
    view.get_by_role("button", name="Create key").click()
    view.get_by_label("Name", exact=True).fill("root")
    view.get_by_role("button", name="Create", exact=True).click()
    secret = secret_of(view)
    expect(view.get_by_role("row").filter(has_text="User:root")).to_contain_text("this tab")
    assert server.client.get("/v0/topics").status_code == 401
    assert status(server, secret) == 200

    view.get_by_role("button", name="Rotate").click()
    view.get_by_role("dialog").get_by_role("button", name="Rotate key").click()
    rotated = secret_of(view)
    expect(view.get_by_role("row").filter(has_text="User:root")).to_contain_text("this tab")
    view.reload()
    expect(view.get_by_role("row").filter(has_text="User:root")).to_be_visible()
    assert status(server, rotated) == 200

    view.get_by_role("button", name="Revoke").click()
    view.get_by_role("dialog").get_by_role("button", name="Revoke key").click()
    expect(view.get_by_role("dialog").get_by_role("alert")).to_contain_text("last key with all rights")
    page.complaints.clear()  # the refusal, which the browser logs as such


def test_a_user_is_created_given_a_password_and_deleted(server: Server, page: Watched) -> None:
    view = page.page
    view.goto(f"{server.url}/#/access/users")
    expect(view.get_by_text("No users yet")).to_be_visible()
    view.get_by_role("button", name="Create user").click()
    view.get_by_label("Name", exact=True).fill("alice")
    view.get_by_role("button", name="Create", exact=True).click()
    assert len(secret_of(view)) >= 32, "the server generates the password"
    row = view.get_by_role("row").filter(has_text="alice")
    expect(row).to_contain_text("SCRAM-SHA-512")

    view.get_by_role("button", name="Create user").click()
    view.get_by_label("Name", exact=True).fill("alice")
    view.get_by_role("button", name="Create", exact=True).click()
    expect(view.get_by_role("dialog").get_by_role("alert")).to_contain_text("exists")
    view.get_by_role("button", name="Cancel").click()

    row.get_by_role("button", name="Change password").click()
    view.get_by_label("Password", exact=True).fill("correct horse battery")
    view.get_by_role("button", name="Change", exact=True).click()
    expect(view.get_by_text("The password of alice is changed.")).to_be_visible()
    page.shot("41-users")
    row.get_by_role("button", name="Delete").click()
    view.get_by_role("dialog").get_by_role("button", name="Delete user").click()
    expect(view.get_by_text("No users yet")).to_be_visible()
    assert server.client.get("/v0/users").json()["users"] == []


def test_a_rule_is_added_found_and_deleted(server: Server, page: Watched) -> None:
    view = page.page
    view.goto(f"{server.url}/#/access/rules")
    expect(view.get_by_text("No rules yet")).to_be_visible()
    view.get_by_role("button", name="Add rule").click()
    view.get_by_role("button", name="Add", exact=True).click()
    expect(view.get_by_role("dialog").get_by_role("alert")).to_contain_text("User:name")
    view.get_by_label("Principal").fill("User:bob")
    view.get_by_label("Permission", exact=True).select_option("deny")
    view.get_by_label("Operation").select_option("describe_configs")
    view.get_by_label("Name", exact=True).fill("logs.")
    view.get_by_label("The name is").select_option("prefixed")
    view.get_by_role("button", name="Add", exact=True).click()
    expect(view.get_by_role("row").filter(has_text="User:bob")).to_contain_text("logs.*")
    bob = {"principal": "User:bob", "operation": "describe_configs", "resource": "topic", "name": "logs."}
    rules = server.client.get("/v0/acls").json()["rules"]
    assert rules == [{**bob, "pattern": "prefixed", "permission": "deny", "host": "*"}]

    alice = {"principal": "User:alice", "operation": "read", "resource": "group", "name": "g"}
    server.client.post("/v0/acls", json={"rules": [alice]}).raise_for_status()
    rows = view.get_by_role("table", name="Rules").locator("tbody tr")
    expect(rows).to_have_count(2)
    page.shot("42-rules")
    view.get_by_label("Filter by permission").select_option("allow")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("User:alice")
    view.get_by_label("Filter by permission").select_option("")
    view.get_by_label("Filter by resource").select_option("topic")
    expect(rows).to_contain_text("User:bob")
    view.get_by_label("Search rules").fill("alice")
    expect(rows).to_have_count(0)
    view.get_by_label("Search rules").fill("bob")
    rows.get_by_role("button", name="Delete").click()
    view.get_by_role("dialog").get_by_role("button", name="Delete rule").click()
    expect(rows).to_have_count(0)
    assert [rule["principal"] for rule in server.client.get("/v0/acls").json()["rules"]] == ["User:alice"]


def test_a_namespace_is_created_changed_and_deleted_with_its_topics(server: Server, page: Watched) -> None:
    view = page.page
    view.goto(f"{server.url}/#/access/namespaces")
    view.get_by_role("button", name="Create namespace").click()
    view.get_by_label("Name", exact=True).fill("acme/shop")
    view.get_by_label("Topics", exact=True).fill("5")
    view.get_by_label("TTL, ms").fill("60000")
    page.shot("43-create-namespace")
    view.get_by_role("button", name="Create", exact=True).click()
    row = view.get_by_role("row").filter(has_text="acme/shop")
    expect(row).to_contain_text("0 of 5")
    expect(row).to_contain_text("TTL 1 min")
    written = server.client.post("/v0/topics/orders?namespace=acme/shop", json={"records": [{"data": 1}]})
    written.raise_for_status()
    expect(row).to_contain_text("1 of 5")

    row.get_by_role("button", name="Change").click()
    view.get_by_label("Topics", exact=True).fill("")
    view.get_by_label("Bytes", exact=True).fill("1048576")
    view.get_by_label("TTL, ms").fill("")
    view.get_by_role("button", name="Change", exact=True).last.click()
    expect(row).to_contain_text("of 1.0 MiB")
    shop = server.client.get("/v0/namespaces/acme%2Fshop").json()
    assert (shop["topics_max"], shop["bytes_max"], shop["ttl_ms"]) == (0, 1_048_576, None)

    row.get_by_role("button", name="Delete").click()
    dialog = view.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Delete namespace")).to_be_disabled()
    dialog.get_by_label("Delete its 1 topic and their records too").check()
    dialog.get_by_role("button", name="Delete namespace").click()
    expect(row).to_have_count(0)
    assert server.client.get("/v0/namespaces/acme%2Fshop").status_code == 404


def test_the_rate_of_a_topic_is_set_shown_by_its_name_and_removed(server: Server, page: Watched) -> None:
    view = page.page
    view.goto(f"{server.url}/#/access/rates")
    view.get_by_role("button", name="Set rate").click()
    view.get_by_label("Of", exact=True).select_option("topic")
    view.get_by_label("Name", exact=True).fill("orders")
    view.get_by_label("A second", exact=True).fill("5000")
    view.get_by_role("button", name="Set", exact=True).click()
    row = view.get_by_role("table", name="Rates").locator("tbody tr").filter(has_text="topic orders")
    expect(row).to_contain_text("consumer byte rate 5,000")
    (rate,) = server.client.get("/v0/rates").json()["rates"]
    assert (rate["topic"], rate["limits"]) == ("orders", {"consumer_byte_rate": 5000.0})
    row.get_by_role("button", name="Remove").click()
    view.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)
    assert server.client.get("/v0/rates").json()["rates"] == []


def test_the_audit_log_shows_who_did_what_and_what_was_denied(guarded: Server, open_page: OpenPage) -> None:
    page = open_page(allow=("401", "403"))
    view = page.page
    guarded.client.put("/v0/namespaces/acme").raise_for_status()
    assert status(guarded, "looker", "/v0/keys") == 403
    signed_in(view, guarded, "audit")
    rows = view.get_by_role("table", name="Audit log").locator("tbody tr")
    expect(rows.filter(has_text="PUT /v0/namespaces")).to_have_count(1)
    denied = rows.filter(has_text="DESCRIBE")
    expect(denied).to_have_count(1)
    page.shot("44-audit")
    view.get_by_label("Filter by outcome").select_option("denied")
    expect(rows.filter(has_text="done")).to_have_count(0)
    who = denied.get_by_role("cell").nth(1).inner_text()
    view.get_by_label("Filter by outcome").select_option("")
    view.get_by_label("Filter by operation").fill("namespaces")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("done")
    view.get_by_label("Filter by operation").fill("nothing like it")
    expect(view.get_by_text("No entry matches the filter.")).to_be_visible()
    view.get_by_label("Filter by operation").fill("")
    view.get_by_label("Filter by principal").fill(who)
    expect(rows).to_have_count(1)
    expect(denied).to_have_count(1)


def test_a_key_without_the_right_is_told_so(guarded: Server, open_page: OpenPage) -> None:
    page = open_page(allow=("401", "403"))
    view = page.page
    signed_in(view, guarded, "keys", key="looker")
    for tab in TABS:
        view.goto(f"{guarded.url}/#/access/{tab}")
        if tab != "audit":  # a topic like others: the scope read covers it
            denial = "Access denied: this key lacks the scope admin"
            expect(view.get_by_role("alert").filter(has_text=denial)).to_be_visible()
    view.goto(f"{guarded.url}/#/access/keys")
    expect(view.get_by_role("button", name="Create key")).to_be_disabled()
    page.shot("45-denied")


def test_the_access_screens_fit_a_phone(server: Server, page: Watched) -> None:
    view = page.page
    view.set_viewport_size(PHONE)  # type: ignore[arg-type]
    server.client.put("/v0/users/alice", json={"password": "secret-enough"}).raise_for_status()
    rule = {"principal": "User:alice", "operation": "read", "resource": "topic", "name": "orders"}
    server.client.post("/v0/acls", json={"rules": [rule]}).raise_for_status()
    server.client.put("/v0/namespaces/acme", json={"principals": ["User:alice"]}).raise_for_status()
    server.client.put(
        "/v0/rates", json={"group": "g", "limits": {"consumer_byte_rate": 1000}}
    ).raise_for_status()
    for tab in TABS:
        view.goto(f"{server.url}/#/access/{tab}")
        expect(view.locator(".table, .empty").first).to_be_visible()
        wide = view.evaluate(
            "[...document.querySelectorAll('html, main')].filter((one) => one.scrollWidth > one.clientWidth).length"
        )
        assert not wide, f"{tab} is wider than a phone"
        page.shot(f"46-phone-{tab}")
    for tab, button in (("keys", "Create key"), ("rules", "Add rule"), ("namespaces", "Create namespace")):
        view.goto(f"{server.url}/#/access/{tab}")
        view.get_by_role("button", name=button).click()
        dialog = view.get_by_role("dialog")
        assert dialog.evaluate("(one) => one.scrollWidth <= one.clientWidth"), (
            f"{button} is wider than a phone"
        )
        page.shot(f"47-phone-{tab}-dialog")
        view.keyboard.press("Escape")
