"""The way of a newcomer: an empty page that says what to type, the first records, live, and a crash in between."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import Route, expect
from pyiceberg.catalog import load_catalog

from tests.support.cluster import broker_processes
from tests.support.driver import lake_pass

from .browser import FIRST_QUERY_MS, Watched, chromium
from .conftest import OpenPage, Server

GONE = (
    "503",  # while the log is replayed
    "ERR_CONNECTION_REFUSED",
    "ERR_CONNECTION_RESET",
    "ERR_INCOMPLETE_CHUNKED_ENCODING",
    "ERR_EMPTY_RESPONSE",
)


def by_kafka(server: Server, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": server.kafka})
    for value in values:
        producer.produce(topic, value, key=b"from-kafka", headers={"source": b"librdkafka"})
    assert producer.flush(20) == 0


def test_a_newcomer_produces_sees_it_live_asks_the_table_kills_the_server_and_nothing_is_gone(
    server: Server, open_page: OpenPage
) -> None:
    page = open_page(allow=GONE)
    view = page.page
    view.goto(server.url)
    commands = view.locator(".command pre")
    expect(commands).to_have_count(2)
    by_curl, by_kcat = commands.all_inner_texts()
    typed(by_curl, "curl")
    view.goto(f"{server.url}/#/topics/hello/messages")
    view.get_by_label("Start at").select_option("live")
    expect(view.get_by_text("● live")).to_be_visible()
    if shutil.which("kcat"):
        typed(by_kcat, "echo 'hello from kafka' | kcat")
    else:
        by_kafka(server, "hello", b"hello from kafka")
    expect(view.locator("tbody tr")).to_have_count(2)
    expect(view.locator("tbody tr").first).to_contain_text("hello from kafka")

    view.get_by_role("link", name="Table", exact=True).click()
    view.get_by_role("button", name="Publish as a table").click()
    expect(view.get_by_text("No snapshot yet")).to_be_visible()
    lake_pass(server.url)
    rows = view.get_by_role("table", name="Newest rows")
    expect(rows).to_contain_text('{"hello":"world"}')
    expect(rows).to_contain_text("hello from kafka")
    page.shot("08-newcomer-table")
    assert asked_of_the_table(server) == [b'{"hello":"world"}', b"hello from kafka"]

    server.kill()
    expect(view.get_by_role("alert")).to_contain_text("The server does not respond")
    server.start()
    expect(view.get_by_role("alert")).to_have_count(0)
    expect(rows).to_contain_text("hello from kafka")
    assert asked_of_the_table(server) == [b'{"hello":"world"}', b"hello from kafka"]
    view.get_by_role("link", name="Messages").click()
    expect(view.locator("tbody tr")).to_have_count(2)
    by_kafka(server, "hello", b"after the crash")
    view.get_by_label("Start at").select_option("live")
    expect(view.locator("tbody tr").first).to_contain_text("after the crash")
    page.shot("09-newcomer-after-the-crash")


def typed(command: str, expected: str) -> None:
    """What the page says, in a shell."""
    assert command.startswith(expected)
    if shutil.which("curl") is None:
        pytest.skip("the page tells people to use curl, and there is none here")
    subprocess.run(["sh", "-c", command], check=True, capture_output=True, timeout=60)


def asked_of_the_table(server: Server) -> list[bytes]:
    """By SQL, from an engine that knows nothing but the catalog's address."""
    catalog = load_catalog("m", type="rest", uri=f"{server.url}/iceberg")
    asking = catalog.load_table("default.hello").scan().to_duckdb("hello")
    return [bytes(value) for (value,) in asking.sql("select _value from hello order by _offset").fetchall()]


def test_a_newcomer_types_what_the_page_says_and_sees_it_arrive(server: Server, page: Watched) -> None:
    view = page.page
    view.goto(server.url)
    expect(view.get_by_text("No topics yet")).to_be_visible()
    page.shot("01-overview-empty")
    view.get_by_role("link", name="Topics", exact=True).click()
    expect(view.get_by_text("There are no topics yet")).to_be_visible()
    page.shot("02-topics-empty")

    typed(view.locator(".command pre").first.inner_text(), "curl ")
    view.get_by_role("row").get_by_text("hello").click()
    expect(view.locator("tbody tr")).to_have_count(1)
    expect(view.locator("tbody tr")).to_contain_text('{"hello":"world"}')

    view.get_by_label("Start at").select_option("live")
    expect(view.get_by_text("● live")).to_be_visible()
    by_kafka(server, "hello", b"plain text from kafka", b"\x00\xffbytes")
    expect(view.locator("tbody tr")).to_have_count(3)
    expect(view.locator("tbody tr").nth(1)).to_contain_text("plain text from kafka")
    view.locator("tbody tr").first.click()
    expect(view.locator("pre.value")).to_contain_text("00 ff 62 79 74 65 73")
    expect(view.locator(".detail")).to_contain_text("librdkafka")
    page.shot("03-live")
    server.write("hello", *({"data": {"burst": n}} for n in range(2_000)))
    expect(view.locator("tbody tr").first).to_contain_text('{"burst":1999}')
    assert view.locator("tbody tr").count() <= 500, "what is on the screen stays bounded"
    assert all(url.startswith((server.url, "blob:")) for url in page.requested), (
        "nothing comes from elsewhere"
    )


def test_a_killed_server_is_waited_for_and_nothing_is_gone(server: Server, open_page: OpenPage) -> None:
    page = open_page(allow=GONE)
    view = page.page
    server.write("orders", *({"data": {"n": n}} for n in range(5)))
    view.goto(f"{server.url}/#/topics/orders/messages")
    view.get_by_label("Start at").select_option("live")
    expect(view.get_by_text("● live")).to_be_visible()
    expect(view.locator("tbody tr")).to_have_count(5)

    server.kill()
    expect(view.get_by_role("alert")).to_contain_text("The server does not respond")
    expect(view.get_by_text("reconnecting")).to_be_visible()
    expect(view.locator("tbody tr")).to_have_count(5)
    page.shot("04-server-gone")

    server.start()
    expect(view.get_by_role("alert")).to_have_count(0)
    expect(view.get_by_text("● live")).to_be_visible()
    server.write("orders", {"data": {"n": "after the crash"}})
    expect(view.locator("tbody tr")).to_have_count(6)
    expect(view.locator("tbody tr").first).to_contain_text("after the crash")
    page.shot("05-server-back")


def test_a_newcomer_reads_as_a_group_asks_by_sql_and_loses_one_of_two_brokers(
    tmp_path: Path, open_page: OpenPage
) -> None:
    chromium()
    with broker_processes(tmp_path, "--store", (tmp_path / "bucket").as_uri()) as brokers:
        brokers.start("a", "b")
        producer = Producer({"bootstrap.servers": brokers.bootstrap})
        for number in range(10):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(60) == 0
        consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
        consumer.close()
        for name in "ab":  # one of the brokers forwards to the other one, which coordinates the group
            url = f"http://{brokers[name].address('http')}"
            view = open_page(allow=(*GONE, "/v0/")).page  # what is asked while a broker is gone is refused
            view.goto(f"{url}/#/groups")
            view.get_by_role("row").get_by_text("billing").click()
            expect(view.locator(".figure").first).to_contain_text("3")
            expect(view.get_by_role("table", name="Offsets")).to_contain_text("orders")
            expect(view.get_by_role("button", name="Reset offsets")).to_be_enabled()
            assert view.url.startswith(url)

        view.get_by_role("link", name="SQL", exact=True).click()
        view.get_by_role("table", name="Topics").get_by_text("orders").click()
        expect(view.get_by_text("10 rows, in")).to_be_visible(timeout=FIRST_QUERY_MS)

        view.get_by_role("link", name="Consumer groups").click()
        view.get_by_role("row").get_by_text("billing").click()
        view.get_by_role("button", name="Delete group").click()
        view.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(view.get_by_text("There are no consumer groups")).to_be_visible()

        view.goto(f"{url}/#/topics/orders/messages?start=live")
        rows = view.get_by_role("table", name="Messages").locator("tbody tr")
        expect(rows).to_have_count(10)
        brokers.kill("a")
        assert (
            brokers.request("b", "POST", "/v0/topics/orders", {"records": [{"data": "after"}]}).status == 200
        )
        expect(rows).to_have_count(11)
        expect(rows.first).to_contain_text("after")


def test_the_keyboard_alone_leads_to_a_message_and_back(server: Server, page: Watched) -> None:
    view = page.page
    for name in ("apples", "pears", "plums"):
        server.write(name, {"data": {"fruit": name}}, {"data": {"fruit": f"more {name}"}})
    view.goto(f"{server.url}/#/topics")
    expect(view.get_by_role("row").get_by_text("plums")).to_be_visible()
    view.keyboard.press("/")
    view.keyboard.type("p")
    expect(view.get_by_label("Search topics")).to_have_value("p")
    view.keyboard.press("Escape")
    expect(view.get_by_label("Search topics")).to_have_value("")
    expect(view.get_by_label("Search topics")).not_to_be_focused()

    view.get_by_role("grid").focus()
    view.keyboard.press("ArrowDown")
    view.keyboard.press("ArrowDown")
    expect(view.get_by_role("grid")).to_have_attribute("aria-activedescendant", "row-2")
    expect(view.locator("#row-2")).to_contain_text("plums")  # the next test does not wait for the list
    page.shot("06-keyboard-topics")
    view.keyboard.press("Enter")
    expect(view.get_by_role("heading", name="plums")).to_be_visible()

    view.locator("tbody tr").first.focus()
    view.keyboard.press("Enter")
    expect(view.locator("pre.value")).to_contain_text("more plums")
    view.keyboard.press("ArrowDown")
    expect(view.locator("pre.value")).not_to_contain_text("more")
    view.keyboard.press("Escape")
    expect(view.get_by_text("Select a message")).to_be_visible()

    view.get_by_role("button", name="Delete topic").focus()
    ring = view.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    view.keyboard.press("Enter")
    expect(view.get_by_role("dialog")).to_be_visible()
    view.keyboard.press("Escape")
    expect(view.get_by_role("dialog")).to_have_count(0)
    expect(view.get_by_role("button", name="Delete topic")).to_be_focused()
    assert ring == "solid"
    assert server.client.get("/v0/topics/plums").json()["count"] == 2


def test_keys_pressed_while_a_list_loads_are_not_lost(server: Server, page: Watched) -> None:
    view = page.page
    for name in ("apples", "pears", "plums"):
        server.write(name, {"data": {"fruit": name}})
    held: list[Route] = []
    view.goto(f"{server.url}/#/topics")
    rows = view.get_by_role("grid").locator(".virtual-row")
    expect(rows).to_have_count(3)
    view.get_by_label("Search topics").fill("plum")
    expect(rows).to_have_count(1)

    view.route("**/v0/overview/topics?*", lambda route: held.append(route))
    view.get_by_label("Search topics").press("Escape")
    view.get_by_role("grid").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        view.keyboard.press(key)
    for route in held:
        route.continue_()
    view.unroute("**/v0/overview/topics?*")
    expect(view.get_by_role("heading", name="plums")).to_be_visible()


def test_dark_colours_come_with_the_system_and_by_choice(server: Server, open_page: OpenPage) -> None:
    server.write("orders", {"data": 1})

    def background(view: object) -> list[int]:
        text = view.evaluate("getComputedStyle(document.body).backgroundColor")  # type: ignore[attr-defined]
        return [int(part) for part in re.findall(r"\d+", text)[:3]]

    page = open_page(scheme="dark")
    page.page.goto(server.url)
    expect(page.page.get_by_text("Storage by tier")).to_be_visible()
    assert sum(background(page.page)) < 150
    page.shot("07-overview-dark")
    page.page.get_by_role("button", name="Light colours").click()
    assert sum(background(page.page)) > 600
    page.page.reload()
    expect(page.page.get_by_role("button", name="Dark colours")).to_be_visible()
    assert sum(background(page.page)) > 600, "the choice is kept"
