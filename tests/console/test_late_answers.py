"""Answers that come late, or in another order than they were asked for, and what people do meanwhile."""

from __future__ import annotations

import json
import re

from confluent_kafka import Producer
from playwright.sync_api import Page, Route, expect

from .browser import Watched
from .conftest import Server


class Held:
    """Answers to the requests of a page that match a pattern, until they are let go."""

    def __init__(self, view: Page, pattern: str, method: str = "GET") -> None:
        self._view, self._pattern, self._method = view, re.compile(pattern), method
        self._routes: list[Route] = []
        self._held = True
        view.route(self._pattern, self._hold)

    def _hold(self, route: Route) -> None:
        if self._held and route.request.method == self._method:
            self._routes.append(route)
        else:
            route.continue_()

    def wait(self, count: int = 1) -> None:
        while len(self._routes) < count:
            self._view.wait_for_timeout(20)

    def let_go(self) -> None:
        self._held = False
        for route in self._routes:
            route.continue_()


def test_older_messages_that_come_late_do_not_replace_another_search(server: Server, page: Watched) -> None:
    view = page.page
    server.write("logs", *({"data": {"n": n}, "tag": f"k{n % 7}"} for n in range(250)))
    view.goto(f"{server.url}/#/topics/logs/messages")
    rows = view.get_by_role("table", name="Messages").locator("tbody tr")
    expect(rows).to_have_count(100)
    older = Held(view, r"/messages\?.*before=")
    view.get_by_role("button", name="Older").click()
    older.wait()
    view.get_by_label("Filter by key").fill("k3")
    expect(rows).to_have_count(36)
    with view.expect_response(re.compile("before=")):
        older.let_go()
    view.wait_for_timeout(300)
    expect(rows).to_have_count(36, timeout=1)


def test_a_message_opened_while_its_topic_loads_stays_open(server: Server, page: Watched) -> None:
    view = page.page
    server.client.patch("/v0/topics/orders/settings", json={"create": True, "partitions": 3})
    producer = Producer({"bootstrap.servers": server.kafka})
    for partition in range(3):
        producer.produce("orders", f"of {partition}", partition=partition)
    assert producer.flush(20) == 0
    facts = Held(view, r"/topics/orders/settings$")
    view.goto(f"{server.url}/#/topics/orders/messages")
    facts.wait()
    facts.let_go()
    rows = view.get_by_role("table", name="Messages").locator("tbody tr")
    rows.filter(has_text="of 0").click()
    expect(view.locator("pre.value")).to_have_text("of 0")
    expect(rows).to_have_count(3)
    assert not [url for url in page.requested if "/messages?" in url and "partition=" not in url]
    expect(view.locator("pre.value")).to_have_text("of 0")


def test_a_row_is_opened_by_keyboard_while_a_search_of_the_server_loads(
    server: Server, page: Watched
) -> None:
    view = page.page
    for name in ("emails", "invoices"):
        server.client.put(f"/v0/topics/{name}", json={"type": "queue"}).raise_for_status()
    view.goto(f"{server.url}/#/queues")
    rows = view.get_by_role("table", name="Queues").locator("tbody tr")
    expect(rows).to_have_count(2)
    search = Held(view, r"/overview/topics\?.*search=inv")
    view.get_by_label("Search queues").fill("inv")
    search.wait()
    rows.filter(has_text="invoices").focus()
    view.keyboard.press("Enter")
    expect(view.get_by_role("heading", name="invoices")).to_be_visible()
    search.let_go()


def test_a_late_poll_does_not_bring_back_what_was_deleted(server: Server, page: Watched) -> None:
    view = page.page
    server.client.put("/v0/users/alice", json={"password": "secret-enough"}).raise_for_status()
    server.client.put("/v0/users/bob", json={"password": "secret-enough"}).raise_for_status()
    view.goto(f"{server.url}/#/access/users")
    rows = view.get_by_role("table").locator("tbody tr")
    expect(rows).to_have_count(2)
    before = server.client.get("/v0/users").json()
    late: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if late or route.request.method != "GET":
            route.continue_()
        else:
            late.append(route)

    view.route(re.compile("/v0/users$"), hold_the_first)
    while not late:
        view.wait_for_timeout(20)
    rows.filter(has_text="alice").get_by_role("button", name="Delete").click()
    view.get_by_role("dialog").get_by_role("button", name="Delete user").click()
    expect(rows).to_have_count(1)
    late[0].fulfill(body=json.dumps(before), content_type="application/json")
    view.wait_for_timeout(300)
    expect(rows).to_have_count(1, timeout=1)


def test_a_topic_is_not_asked_for_while_it_is_deleted(server: Server, page: Watched) -> None:
    view = page.page
    server.write("orders", {"data": 1})
    view.goto(f"{server.url}/#/topics/orders/messages")
    expect(view.get_by_text("1 message shown")).to_be_visible()
    view.get_by_role("button", name="Delete topic").click()
    deletion = Held(view, "/v0/topics/orders$", "DELETE")
    view.get_by_role("dialog").get_by_role("button", name="Delete topic").click()
    deletion.wait()
    asked: list[str] = []
    view.on("request", lambda request: asked.append(request.url))
    server.client.delete("/v0/topics/orders").raise_for_status()
    server.write("orders", {"data": 1})  # so that the deletion of the page succeeds
    view.wait_for_timeout(2_500)  # longer than between two polls
    assert [url for url in asked if "/topics/orders" in url] == []
    deletion.let_go()
    expect(view.get_by_text("There are no topics yet")).to_be_visible()


def test_the_keyboard_keeps_its_place_while_a_button_works(server: Server, page: Watched) -> None:
    view = page.page
    server.write("orders", {"data": 1})
    view.goto(f"{server.url}/#/topics/orders/config")
    view.get_by_label("mainstem.ttl.ms").fill("86400000")
    saving = Held(view, "/v0/topics/orders/settings$", "PATCH")
    button = view.get_by_role("button", name="Save")
    button.focus()
    view.keyboard.press("Enter")
    saving.wait()
    expect(button).to_be_disabled()
    expect(button).to_be_focused()
    view.keyboard.press("Enter")  # which is not a second save
    view.get_by_label("mainstem.cap.records").fill("1000")
    saving.let_go()
    expect(view.get_by_text("Saved.")).to_be_visible()
    expect(view.get_by_label("mainstem.ttl.ms")).to_have_value("86400000", timeout=1)
    expect(view.get_by_label("mainstem.cap.records")).to_have_value("1000", timeout=1)
    assert server.client.get("/v0/topics/orders").json()["config"]["ttl_ms"] == 86_400_000


def test_the_live_view_outlasts_a_server_that_replays_its_log(server: Server, page: Watched) -> None:
    view = page.page
    server.write("orders", {"data": "before"})
    starting = json.dumps(
        {"error": {"code": "not_ready", "message": "replays", "detail": {"replay_progress": 0.42}}}
    )
    view.route(
        "**/v0/**", lambda route: route.fulfill(status=503, body=starting, content_type="application/json")
    )
    view.goto(f"{server.url}/#/topics/orders/messages?start=live")
    expect(view.get_by_role("alert").first).to_contain_text("The server starts: 42 % of its log is replayed")
    view.unroute("**/v0/**")
    page.complaints = [line for line in page.complaints if "503" not in line]
    expect(view.get_by_role("alert")).to_have_count(0)
    expect(view.get_by_text("● live")).to_be_visible()
    server.write("orders", {"data": "after"})
    expect(view.locator("tbody tr").first).to_contain_text("after")
    page.complaints = [line for line in page.complaints if "503" not in line]
