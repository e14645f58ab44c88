"""Every screen with something on it, and what can be done there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import expect

from tests.support.driver import lake_pass

from .browser import FIRST_QUERY_MS, Watched
from .conftest import OpenPage, Server

TOPICS = 10_000


def committed(server: Server, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_a_topic_is_made_written_to_configured_emptied_and_deleted(server: Server, page: Watched) -> None:
    view = page.page
    view.goto(f"{server.url}/#/topics")
    view.get_by_role("button", name="Create topic").click()
    view.get_by_label("Name").fill("bad name!")
    view.get_by_role("button", name="Create", exact=True).click()
    expect(view.get_by_role("dialog").get_by_role("alert").first).to_contain_text("invalid topic name")
    page.complaints.clear()  # the refusal, which the browser logs as such
    view.get_by_label("Name").fill("orders")
    view.get_by_label("Partitions").fill("2")
    page.shot("10-create-topic")
    view.get_by_role("button", name="Create", exact=True).click()
    expect(view.get_by_role("heading", name="orders")).to_be_visible()

    view.get_by_role("link", name="Produce").click()
    view.get_by_label("Key").fill("it's on")  # a key of partition 0
    view.get_by_label("Value", exact=True).fill('{"id": 12345678901234567890}')
    view.get_by_role("button", name="Produce").click()
    expect(view.get_by_text("Written as sequence number 1")).to_be_visible()
    page.shot("11-produce")
    stored = server.client.get("/v0/topics/orders/messages").json()["messages"]
    assert [(one["key"]["text"], one["value"]["text"]) for one in stored] == [
        ("it's on", '{"id": 12345678901234567890}')
    ]

    view.get_by_role("link", name="Partitions").click()
    view.get_by_role("button", name="Add partitions").click()
    view.get_by_role("button", name="Add", exact=True).click()
    expect(view.locator("tbody tr")).to_have_count(3)
    page.shot("12-partitions")

    view.get_by_role("link", name="Config", exact=True).click()
    view.get_by_label("mainstem.ttl.ms").fill("86400000")
    expect(view.get_by_text("1 d 0 h; default 0")).to_be_visible()
    view.get_by_label("cleanup.policy").fill("compact")
    page.shot("13-config")
    view.get_by_role("button", name="Save").click()
    expect(view.get_by_text("Saved.")).to_be_visible()
    assert server.client.get("/v0/topics/orders").json()["config"]["ttl_ms"] == 86_400_000
    assert server.client.get("/v0/topics/orders/settings").json()["settings"]["cleanup.policy"] == "compact"
    expect(view.get_by_label("mainstem.ttl.ms")).to_have_value("86400000")

    view.get_by_role("link", name="Delete records").click()
    view.get_by_label("Key", exact=True).fill("it*")
    page.shot("14-delete-records")
    view.get_by_role("button", name="Delete records").click()
    view.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(view.get_by_text("1 record deleted.")).to_be_visible()

    view.get_by_role("button", name="Delete topic").click()
    view.get_by_role("dialog").get_by_role("button", name="Delete topic").click()
    expect(view.get_by_text("There are no topics yet")).to_be_visible()
    assert server.client.get("/v0/topics").json()["topics"] == []


def test_messages_are_found_shown_copied_and_downloaded(
    server: Server, page: Watched, tmp_path: Path
) -> None:
    view = page.page
    server.write(
        "logs", *({"data": {"n": n}, "tag": f"k{n % 7}", "meta": {"trace": f"t{n}"}} for n in range(250))
    )
    view.goto(f"{server.url}/#/topics/logs/messages")
    rows = view.locator("tbody tr")
    expect(rows).to_have_count(100)
    expect(rows.first).to_contain_text('{"n":249}')
    view.get_by_role("button", name="Older").click()
    expect(rows).to_have_count(200)
    view.get_by_label("Start at").select_option("oldest")
    expect(rows.first).to_contain_text('{"n":0}')
    view.get_by_label("Start at").select_option("offset")
    view.get_by_label("Offset").fill("120")
    expect(rows.first).to_contain_text('{"n":120}')
    view.get_by_label("Start at").select_option("time")
    view.get_by_label("Time").fill("2001-01-01T00:00:00")
    expect(rows.first).to_contain_text('{"n":0}')
    view.get_by_label("Start at").select_option("newest")
    view.get_by_label("Filter by key").fill("k3")
    expect(rows).to_have_count(36)
    view.get_by_label("Filter by header").fill('meta={"trace":"t3"}')
    expect(rows).to_have_count(1)
    view.get_by_label("Filter by value").fill("nowhere")
    expect(view.get_by_text("No matches")).to_be_visible()
    page.shot("15-nothing-found")
    view.get_by_label("Filter by value").fill("")
    view.get_by_label("Filter by header").fill("")
    view.get_by_label("Filter by JSON path").fill("$.n >= 200")
    expect(rows).to_have_count(7)  # of the keys k3
    found = view.url
    assert "json=%24.n" in found
    view.get_by_label("Filter by JSON path").fill("n > 3")
    expect(view.get_by_role("alert")).to_contain_text("is not a condition such as")
    page.complaints.clear()  # the refusal, which the browser logs as such
    view.goto(server.url)
    expect(view.get_by_text("Storage by tier")).to_be_visible()
    view.goto(found)
    expect(rows).to_have_count(7)
    expect(view.get_by_label("Filter by key")).to_have_value("k3")
    view.get_by_label("Filter by JSON path").fill("$.n = 3")
    expect(rows).to_have_count(1)
    view.get_by_label("Before").fill("2001-01-01T00:00:00")
    expect(view.get_by_text("No matches")).to_be_visible()
    view.get_by_label("Before").fill("")
    rows.first.click()
    expect(view.locator("pre.value")).to_have_text('{\n  "n": 3\n}')
    view.get_by_role("button", name="Hex").click()
    expect(view.locator("pre.value")).to_contain_text("7b 22 6e 22 3a 33 7d")
    view.get_by_role("button", name="Text", exact=True).click()
    page.shot("16-message")
    view.get_by_role("button", name="Copy", exact=True).click()
    expect(view.get_by_text("Copied.")).to_be_visible()
    assert view.evaluate("navigator.clipboard.readText()") == '{"n":3}'
    with view.expect_download() as started:
        view.locator(".detail").get_by_role("button", name="Download").click()
    assert Path(started.value.path()).read_bytes() == b'{"n":3}'
    assert started.value.suggested_filename == "logs-0-3.json"


def test_a_record_is_written_with_headers_and_replayed(server: Server, page: Watched) -> None:
    view = page.page
    server.client.put("/v0/topics/orders", json={})
    view.goto(f"{server.url}/#/topics/orders/produce")
    view.get_by_label("Key").fill("ключ")
    view.get_by_label("Value", exact=True).fill('{"id": 1}')
    view.get_by_label("Headers").fill("no name")
    expect(view.get_by_role("button", name="Produce")).to_be_disabled()
    view.get_by_label("Headers").fill("source: web\ntrace: a:b")
    view.get_by_role("button", name="Produce").click()
    expect(view.get_by_text("Written as sequence number 1")).to_be_visible()
    page.shot("13-produce-headers")
    view.get_by_role("link", name="Show it").click()
    view.get_by_role("row").get_by_text("ключ").first.click()
    view.get_by_role("button", name="Replay").click()
    expect(view.get_by_text("Written again at offset 1")).to_be_visible()
    first, again = server.client.get("/v0/topics/orders/messages").json()["messages"]
    for message in (first, again):
        assert (message["key"]["text"], message["value"]["text"]) == ("ключ", '{"id": 1}')
        headers = [(one["name"], one["content"]["text"]) for one in message["headers"]]
        assert headers == [("source", "web"), ("trace", "a:b")]


def test_the_detail_of_a_message_goes_with_its_row(server: Server, page: Watched) -> None:
    view = page.page
    server.write("logs", {"data": "apple"}, {"data": "pear"})
    view.goto(f"{server.url}/#/topics/logs/messages")
    view.locator("tbody tr").filter(has_text="apple").click()
    expect(view.locator("pre.value")).to_have_text('"apple"')
    view.get_by_label("Filter by value").fill("pear")
    expect(view.get_by_text("Select a message")).to_be_visible()
    expect(view.locator("tbody tr")).to_have_count(1)  # the detail closes before the list changes
    view.locator("tbody tr").click()
    expect(view.locator("pre.value")).to_have_text('"pear"')
    view.get_by_label("Start at").select_option("oldest")
    expect(view.get_by_text("Select a message")).to_be_visible()


def test_each_setting_of_a_topic_is_shown_once(server: Server, page: Watched) -> None:
    server.write("orders", {"data": 1})
    page.page.goto(f"{server.url}/#/topics/orders/config")
    names = page.page.locator(".setting code")
    expect(names.filter(has_text="cleanup.policy")).to_have_count(1)
    page.page.get_by_label("Show those without effect").check()
    expect(names.filter(has_text="compression.gzip.level")).to_have_count(1)
    shown = [name.removeprefix("mainstem.").replace(".", "_") for name in names.all_inner_texts()]
    assert len(shown) == len(set(shown)), "a setting is shown twice"
    settings = server.client.get("/v0/topics/orders/settings").json()["settings"]
    hidden = {name for name in settings if name.removeprefix("mainstem.").replace(".", "_") not in shown}
    assert hidden == {"mainstem.type"}, "only what cannot change is left out"


def test_the_write_latency_of_kafka_clients_is_drawn(server: Server, page: Watched) -> None:
    view = page.page
    view.goto(server.url)
    expect(view.get_by_text("Storage by tier")).to_be_visible()
    producer = Producer({"bootstrap.servers": server.kafka})
    latency = view.locator(".chart").filter(has_text="Write latency")
    mean = latency.locator(".chart-legend > *").filter(has_text="Kafka mean")
    for _ in range(60):  # a write in each interval between two polls, until one is drawn
        producer.produce("clicks", b"x")
        assert producer.flush(20) == 0
        if re.search(r"\d (µs|ms|s)", mean.inner_text()):
            break
        view.wait_for_timeout(250)
    expect(mean).to_have_text(re.compile(r"\d (µs|ms|s)"))
    points = latency.locator("canvas").evaluate("(canvas) => canvas.toDataURL().length")
    view.reload()
    expect(latency.locator("canvas")).to_be_visible()
    view.wait_for_function(
        "(before) => [...document.querySelectorAll('.chart')].some((chart) =>"
        " chart.textContent.includes('Write latency') &&"
        " chart.querySelector('canvas')?.toDataURL().length > before / 2)",
        arg=points,
    )


def test_a_group_is_moved_once_it_was_tried_out(server: Server, page: Watched) -> None:
    view = page.page
    server.write("orders", *({"data": n} for n in range(10)))
    committed(server, "billing", "orders", 7)
    view.goto(f"{server.url}/#/topics/orders/consumers")
    expect(view.get_by_role("row").get_by_text("billing")).to_be_visible()
    view.get_by_role("row").get_by_text("billing").click()
    expect(view.get_by_role("heading", name="billing")).to_be_visible()
    expect(view.locator(".figure").first).to_contain_text("3")
    view.get_by_role("button", name="Reset offsets").click()
    expect(view.get_by_role("dialog").get_by_role("button", name="Reset")).to_be_disabled()
    view.get_by_label("To", exact=True).select_option("offset")
    view.get_by_label("Offset", exact=True).fill("2")
    view.get_by_role("button", name="Preview").click()
    expect(view.get_by_role("table", name="Changes")).to_contain_text("2")
    page.shot("17-reset-offsets")
    assert server.client.get("/v0/groups/billing").json()["offsets"][0]["offset"] == 7, "nothing moved yet"
    view.get_by_role("dialog").get_by_role("button", name="Reset").click()
    expect(view.get_by_role("dialog")).to_have_count(0)
    assert server.client.get("/v0/groups/billing").json()["offsets"][0]["offset"] == 2
    view.goto(f"{server.url}/#/groups")
    expect(view.get_by_role("row").get_by_text("billing")).to_be_visible()
    page.shot("18-groups")


def test_a_group_shows_its_members_and_the_history_of_its_lag(server: Server, page: Watched) -> None:
    view = page.page
    server.client.patch(
        "/v0/topics/orders/settings", json={"create": True, "partitions": 2}
    ).raise_for_status()
    server.write("orders", *({"data": n, "tag": str(n)} for n in range(10)))
    consumer = Consumer(
        {
            "bootstrap.servers": server.kafka,
            "group.id": "billing",
            "client.id": "worker-1",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    assert consumer.poll(60) is not None
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    view.goto(f"{server.url}/#/groups")
    row = view.get_by_role("row").filter(has_text="billing")
    expect(row.get_by_role("cell").nth(1)).to_have_text("9")  # the lag
    expect(row.get_by_role("cell").nth(4)).to_have_text("1")  # members
    row.click()
    expect(view.get_by_role("table", name="Members")).to_contain_text("worker-1")
    expect(view.get_by_role("table", name="Members")).to_contain_text("orders (0, 1)")
    expect(view.get_by_text("Lag in the last hour")).to_be_visible()
    page.shot("25-group")
    consumer.close()


def test_connected_kafka_clients_are_shown_with_their_throughput(server: Server, page: Watched) -> None:
    view = page.page
    producer = Producer({"bootstrap.servers": server.kafka, "client.id": "web-shop"})
    view.goto(server.url)
    row = view.get_by_role("table", name="Kafka clients").get_by_role("row").filter(has_text="web-shop")
    sends = row.get_by_role("cell").nth(4)
    for _ in range(120):  # until two polls have seen its connection, and a write between them
        producer.produce("clicks", b"x" * 5_000)
        assert producer.flush(20) == 0
        if row.count() and re.fullmatch(r"[1-9].*/s", sends.inner_text()):
            break
        view.wait_for_timeout(250)
    expect(sends).to_have_text(re.compile(r"[1-9].*/s"))


def test_a_message_that_is_tapped_on_a_phone_lies_over_the_list(server: Server, page: Watched) -> None:
    view = page.page
    view.set_viewport_size({"width": 390, "height": 844})
    server.write("orders", *({"data": {"n": n}, "tag": f"k{n}"} for n in range(40)))
    view.goto(f"{server.url}/#/topics/orders/messages")
    expect(view.get_by_label("Filter by key")).to_be_hidden()
    view.get_by_role("button", name="Filters").click()
    view.get_by_label("Filter by key").fill("k3")
    rows = view.get_by_role("table", name="Messages").locator("tbody tr")
    expect(rows).to_have_count(11)
    rows.nth(1).click()
    detail = view.get_by_role("complementary", name="Message")
    expect(detail).to_be_in_viewport(ratio=1)
    assert page.violations() == []
    detail.get_by_role("button", name="Close").click()
    expect(detail).to_have_count(0)


def test_the_live_view_is_paused_and_resumed(server: Server, page: Watched) -> None:
    view = page.page
    server.write("logs", {"data": "first"})
    view.goto(f"{server.url}/#/topics/logs/messages?start=live")
    expect(view.get_by_text("● live")).to_be_visible()
    rows = view.locator("tbody tr")
    server.write("logs", {"data": "second"})
    expect(rows).to_have_count(2)
    view.get_by_role("button", name="Pause").click()
    expect(view.get_by_text("paused")).to_be_visible()
    server.write("logs", {"data": "third"})
    view.get_by_role("button", name="Resume").click()
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("third")


def test_alerts_name_what_needs_attention(server: Server, page: Watched) -> None:
    ask = server.client
    ask.put("/v0/topics/jobs", json={"type": "queue", "max_deliveries": 1, "dead_letter": "jobs.dead"})
    server.write("jobs", {"data": 1})
    ask.post("/v0/topics/jobs/claim", json={"node": "w", "max": 1}).raise_for_status()
    ask.post("/v0/topics/jobs/nack", json={"node": "w", "seqs": [1]}).raise_for_status()
    ask.post("/v0/topics/jobs/claim", json={"node": "w", "max": 1}).raise_for_status()  # which finds it dead
    page.page.goto(server.url)
    alerts = page.page.get_by_role("table", name="Alerts")
    expect(alerts).to_contain_text("1 dead letter")
    alerts.get_by_role("link", name="jobs").click()
    expect(page.page.get_by_role("table", name="Dead letters")).to_contain_text("1")


def test_a_dead_letter_goes_back_to_its_queue(server: Server, page: Watched) -> None:
    view, ask = page.page, server.client
    view.goto(f"{server.url}/#/queues")
    expect(view.get_by_text("There are no queues yet")).to_be_visible()
    ask.put("/v0/topics/jobs", json={"type": "queue", "max_deliveries": 1, "dead_letter": "jobs.dead"})
    view.get_by_role("row").get_by_text("jobs").click()
    expect(view.get_by_text("holds no dead letters")).to_be_visible()
    server.write("jobs", *({"data": {"job": n}} for n in range(4)))
    ask.post("/v0/topics/jobs/claim", json={"node": "w1", "max": 1})
    ask.post("/v0/topics/jobs/nack", json={"node": "w1", "seqs": [1]})
    ask.post("/v0/topics/jobs/claim", json={"node": "w2", "max": 1, "lease_ms": 600_000})
    expect(view.get_by_role("table", name="Leases")).to_contain_text("w2")
    expect(view.get_by_role("table", name="Dead letters")).to_contain_text('{"job":0}')
    page.shot("19-queue")
    view.get_by_role("button", name="Requeue", exact=True).click()
    expect(view.get_by_text("1 job returned to jobs.")).to_be_visible()
    expect(view.get_by_text("holds no dead letters")).to_be_visible()
    view.get_by_role("button", name="Release").click()
    expect(view.get_by_text("No job is leased")).to_be_visible()
    assert ask.get("/v0/topics/jobs").json()["queue"] == {"ready": 4, "in_flight": 0, "dead_lettered": 1}


def test_routers_are_drawn_and_a_hanging_transaction_is_aborted(server: Server, page: Watched) -> None:
    view = page.page
    view.goto(f"{server.url}/#/routers")
    view.get_by_role("button", name="Create router").click()
    view.get_by_label("From topic").fill("orders")
    view.get_by_label("To topic").fill("audit")
    view.get_by_role("button", name="Create", exact=True).click()
    expect(view.locator(".graph-box")).to_have_count(2)
    for source, dest in (("audit", "archive"), ("orders", "reports"), ("clicks", "archive2")):
        name = f"/v0/routers/{source}-{dest}"
        server.client.put(name, json={"source": source, "dest": dest}).raise_for_status()
    server.write("orders", {"data": 1}, {"data": 2})
    expect(view.locator(".graph-box")).to_have_count(6)
    expect(view.get_by_role("table", name="Routers")).to_contain_text("2")
    page.shot("20-routers")

    producer = Producer({"bootstrap.servers": server.kafka, "transactional.id": "payments-1"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", b"x")
    producer.flush(20)
    view.goto(f"{server.url}/#/transactions")
    expect(view.get_by_role("row").get_by_text("payments-1")).to_be_visible()
    page.shot("21-transactions")
    view.get_by_role("button", name="Abort").click()
    view.get_by_role("dialog").get_by_role("button", name="Abort").click()
    expect(view.get_by_role("table").get_by_text("aborted")).to_be_visible()
    assert server.client.get("/v0/transactions").json()["transactions"][0]["phase"] == "aborted"


def pipelines() -> list[dict[str, object]]:
    """What two pipelines would report, one of which failed."""
    enriched = {"output": "large", "target": "orders.large", "batch": 12, "batch_ms": 840, "rows_in": 48}
    summed = {"output": "sums", "target": "orders.sums"}
    return [
        {
            "pipeline": "enrich",
            "run": "host-1",
            "state": "running",
            "started_ms": 1,
            "outputs": [{**enriched, "rows_out": 7, "positions": [["orders", 0, 48]]}],
        },
        {
            "pipeline": "nightly",
            "run": "host-2",
            "state": "failed",
            "started_ms": 1,
            "outputs": [summed],
            "error": "topic 'orders.sums' is gone",
        },
    ]


def test_a_table_that_falls_behind_says_why(server: Server, page: Watched) -> None:
    server.write("orders", {"data": {"n": 1}})
    server.client.put("/v0/topics/orders/table", json={"enabled": True}).raise_for_status()
    error = "table 'orders': OverflowError: date value out of range"
    failure = {"topic": "orders", "error": error, "failures": 3, "at_ms": 1}
    report = {"holder": "driver-1", "state": "idle", "failing": [failure], "tables_error": "no such catalog"}
    server.client.post("/v0/lake/report", json=report).raise_for_status()
    page.page.goto(f"{server.url}/#/topics/orders/table")
    expect(page.page.get_by_role("alert").filter(has_text=error)).to_be_visible()
    page.page.goto(f"{server.url}/#/lake")
    expect(page.page.get_by_role("table", name="Failing topics")).to_contain_text(error)
    expect(page.page.get_by_role("alert").filter(has_text="no such catalog")).to_be_visible()


def test_a_table_shows_columns_by_their_paths_and_is_dropped_only_when_confirmed(
    server: Server, page: Watched
) -> None:
    view = page.page
    server.write("orders", {"data": {"customer": {"city": "Lund"}, "city": "elsewhere"}})
    columns = [{"name": "city", "type": "string", "path": "$.customer.city"}]
    server.client.put("/v0/topics/orders/table", json={"enabled": True, "schema": columns}).raise_for_status()
    lake_pass(server.url)
    view.goto(f"{server.url}/#/topics/orders/table")
    rows = view.get_by_role("table", name="Newest rows")
    expect(rows.get_by_role("columnheader", name="city")).to_be_visible()
    expect(rows.get_by_role("cell", name="Lund", exact=True)).to_be_visible()

    view.get_by_role("button", name="Stop showing as a table").click()
    view.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert server.client.get("/v0/topics/orders/table").json()["enabled"], "it was not confirmed"
    view.get_by_role("button", name="Stop showing as a table").click()
    view.get_by_role("dialog").get_by_role("button", name="Drop table").click()
    expect(view.get_by_text("This topic is not a table")).to_be_visible()
    assert not server.client.get("/v0/topics/orders/table").json()["enabled"]


@pytest.mark.parametrize("scheme", ["light", "dark", "phone"])
def test_every_screen_is_drawn_without_a_complaint(server: Server, open_page: OpenPage, scheme: str) -> None:
    page = open_page(scheme=scheme)
    view = page.page
    if scheme == "phone":
        view.set_viewport_size({"width": 390, "height": 844})
    server.write("orders", *({"data": {"n": n, "text": "long " * 40}, "tag": f"k{n}"} for n in range(60)))
    server.client.patch(
        "/v0/topics/clicks/settings", json={"create": True, "partitions": 4}
    ).raise_for_status()
    producer = Producer({"bootstrap.servers": server.kafka})
    for n in range(100):
        producer.produce("clicks", b'{"page":"/%d"}' % n, key=str(n))
    assert producer.flush(20) == 0
    server.client.put("/v0/topics/orders/table", json={"enabled": True}).raise_for_status()
    server.client.put("/v0/topics/jobs", json={"type": "queue"}).raise_for_status()
    for report in pipelines():
        server.client.post("/v0/pipelines/report", json=report).raise_for_status()
    screens = {
        "overview": "Storage by tier",
        "topics": "clicks",
        "topics/clicks/messages": "100 messages shown",
        "topics/orders/messages": "60 messages shown",
        "topics/orders/table": "Frontier",
        "topics/orders/consumers": "No group has read this topic",
        "groups": "There are no consumer groups",
        "queues": "Ready",
        "queues/jobs": "No job is leased",
        "routers": "There are no routers",
        "transactions": "No transactional ids",
        "lake": "Progress by topic",
        "storage": "Log files",
        "schemas": "No schemas yet",
        "sql": "Every topic is a table",
        "topics/orders/produce": "The same from the command line",
        "topics/orders/partitions": "Bytes per second",
        "topics/orders/config": "cleanup.policy",
        "access/keys": "No keys are stored",
        "access/users": "No users yet",
        "access/rules": "No rules yet",
        "access/namespaces": "Namespace",
        "access/rates": "No rates are set",
        "access/audit": "The audit log is empty",
        "nowhere": "Page not found",
    }
    for place, text in screens.items():
        view.goto(f"{server.url}/#/{place}")
        expect(view.get_by_text(text).first).to_be_visible()
        wide = view.evaluate(
            "[...document.querySelectorAll('html, main')].some((one) => one.scrollWidth > one.clientWidth)"
        )
        assert not wide, f"{place} is wider than the window"
        assert page.violations() == [], place
        page.shot(f"30-{scheme}-{place.replace('/', '-')}")
    view.goto(f"{server.url}/#/lake")
    behind = view.get_by_role("table", name="Pipelines").get_by_role("row").nth(1)
    expect(behind).to_contain_text("enrich")
    assert behind.get_by_role("cell").nth(8).inner_text() == "12", "60 records, 48 of them read"
    expect(view.get_by_text("nightly failed: topic 'orders.sums' is gone")).to_be_visible()


def test_a_key_is_asked_for_and_what_it_may_not_do_is_out_of_reach(
    serve: object, open_page: OpenPage
) -> None:
    server: Server = serve(env={"MAINSTEM_API_KEYS": "boss,looker:r"})  # type: ignore[operator]
    server.client.headers["authorization"] = "Bearer boss"
    server.write("orders", {"data": 1})
    page = open_page(allow=("401",))
    view = page.page
    view.goto(server.url)
    expect(view.get_by_role("heading", name="Sign in")).to_be_visible()
    page.shot("22-sign-in")
    view.get_by_label("API key").fill("wrong")
    view.get_by_role("button", name="Sign in").click()
    expect(view.get_by_text("The server does not accept this key.")).to_be_visible()
    view.get_by_label("API key").fill("looker")
    view.get_by_role("button", name="Sign in").click()
    expect(view.get_by_text("Storage by tier")).to_be_visible()

    view.goto(f"{server.url}/#/topics/orders/produce")
    button = view.get_by_role("button", name="Produce")
    expect(button).to_be_disabled()
    expect(button).to_have_attribute("title", "this key lacks the scope write")
    expect(view.get_by_role("button", name="Delete topic")).to_be_disabled()
    page.shot("23-read-only")
    view.get_by_role("link", name="Messages").click()
    view.get_by_label("Start at").select_option("live")
    expect(view.get_by_text("● live")).to_be_visible()
    server.write("orders", {"data": "seen live"})
    expect(view.locator("tbody tr").first).to_contain_text("seen live")
    assert not [url for url in page.requested if "looker" in url], "the key is in no address"

    view.reload()
    expect(view.locator("tbody tr").first).to_be_visible()
    view.get_by_role("button", name="Sign out").click()
    expect(view.get_by_role("heading", name="Sign in")).to_be_visible()
    assert view.evaluate("sessionStorage.length") == 0


def test_ten_thousand_topics_are_searched_sorted_and_scrolled_at_once(server: Server, page: Watched) -> None:
    view = page.page
    admin = AdminClient({"bootstrap.servers": server.kafka})
    names = [f"topic-{number:05}" for number in range(TOPICS)]
    for first in range(0, TOPICS, 2_500):
        made = admin.create_topics([NewTopic(name, 1) for name in names[first : first + 2_500]])
        for future in made.values():
            future.result(60)
    server.write("topic-07777", {"data": "x" * 1000})
    view.goto(f"{server.url}/#/topics")
    expect(view.get_by_text("10,000 topics")).to_be_visible()
    assert view.locator(".virtual-row").count() < 100, "only what is in sight exists"
    view.get_by_role("button", name="Size").click()
    expect(view.locator("#row-0")).to_contain_text("topic-07777")
    view.get_by_role("button", name="Topic", exact=True).click()
    expect(view.locator("#row-0")).to_contain_text("topic-00000")
    view.get_by_role("grid").focus()
    view.keyboard.press("End")
    expect(view.locator(f"#row-{TOPICS - 1}")).to_contain_text("topic-09999")
    page.shot("24-ten-thousand-topics")
    view.keyboard.press("/")
    view.keyboard.type("4242")
    expect(view.get_by_text("1 topic", exact=True)).to_be_visible()
    expect(view.locator("#row-0")).to_contain_text("topic-04242")
    assert view.locator(".virtual-row").count() == 1
    asked = [url for url in page.requested if "/v0/" in url and "/v0/key" not in url]
    assert all("/v0/overview/topics?" in url and "limit=100" in url for url in asked), "a page at a time"
    assert len(asked) < 30, "scrolling and searching ask for what comes into sight, not for what lies between"


def test_a_query_is_written_run_drawn_and_refused(server: Server, page: Watched) -> None:
    server.write("orders", *({"data": {"city": city}} for city in ("Rome", "Rome", "Oslo")))
    view = page.page
    view.goto(f"{server.url}/#/sql")
    query = "SELECT _value->>'city' AS city, count(*) AS orders FROM orders GROUP BY ALL ORDER BY orders DESC"
    view.get_by_label("Query").fill(query.replace("_value", "decode(_value)"))
    view.get_by_label("Query").press("Control+Enter")
    expect(view.get_by_text("2 rows, in")).to_be_visible(timeout=FIRST_QUERY_MS)
    expect(view.locator("tbody tr").first).to_have_text("Rome2")
    view.get_by_label("Draw orders as bars").check()
    expect(view.get_by_label("orders by city")).to_contain_text("Oslo")
    page.shot("90-sql")
    view.get_by_label("Query").fill("SELECT * FROM nothing")
    view.get_by_role("button", name="Run").click()
    expect(view.get_by_role("alert")).to_contain_text("no topic named 'nothing'")
    page.complaints.clear()  # the refusal, which the browser logs as such


def test_a_schema_is_registered_refused_changed_and_deleted(server: Server, page: Watched) -> None:
    view = page.page
    field = {"name": "id", "type": "long"}
    order = {"type": "record", "name": "Order", "fields": [field]}
    view.goto(f"{server.url}/#/schemas")
    view.get_by_role("button", name="Register schema").click()
    view.get_by_label("Subject", exact=True).fill("orders-value")
    view.get_by_role("textbox", name="Schema", exact=True).fill(json.dumps(order))
    view.get_by_role("button", name="Register", exact=True).click()
    expect(view.get_by_role("heading", name="orders-value")).to_be_visible()

    view.get_by_role("button", name="New version").click()
    text = view.get_by_role("textbox", name="Schema", exact=True)
    assert json.loads(text.input_value()) == order
    text.fill(json.dumps({**order, "fields": [field, {"name": "city", "type": "string"}]}))
    view.get_by_role("button", name="Register", exact=True).click()
    expect(view.get_by_role("dialog").get_by_role("alert")).to_contain_text("city")
    page.complaints.clear()  # the refusal, which the browser logs as such
    text.fill(json.dumps({**order, "fields": [field, {"name": "city", "type": "string", "default": ""}]}))
    view.get_by_role("button", name="Register", exact=True).click()
    expect(view.get_by_label("Version", exact=True)).to_have_value("2")
    expect(view.locator(".diff .added").filter(has_text="city")).to_have_count(1)
    expect(view.locator(".diff .removed").filter(has_text="city")).to_have_count(0)

    view.get_by_label("Compatibility").select_option("NONE")
    expect(view.get_by_text("Later versions are not checked.")).to_be_visible()
    assert server.client.get("/config/orders-value").json()["compatibilityLevel"] == "NONE"
    page.shot("26-schema")
    view.get_by_role("link", name="Schemas").first.click()
    expect(view.get_by_role("row", name="orders-value Avro 2")).to_be_visible()
    view.get_by_role("row", name="orders-value").click()
    view.get_by_role("button", name="Delete subject").click()
    view.get_by_role("dialog").get_by_role("button", name="Delete subject").click()
    expect(view.get_by_text("No schemas yet")).to_be_visible()
