"""Messages by their schemas, and the API reference: requests tried from it."""

from __future__ import annotations

import json

from confluent_kafka import Producer
from playwright.sync_api import expect

from mainstem.schemas.avro import AvroSchema

from .browser import Watched
from .conftest import Server


def test_a_message_is_shown_by_its_schema(server: Server, page: Watched) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "city", "type": "string"}]}
    answer = server.client.post("/subjects/orders-value/versions", json={"schema": json.dumps(schema)})
    id = answer.raise_for_status().json()["id"]
    payload = b"\0" + id.to_bytes(4, "big") + AvroSchema(json.dumps(schema)).encode({"city": "Kyoto"})
    producer = Producer({"bootstrap.servers": server.kafka})
    producer.produce("orders", payload, key="k")
    assert producer.flush(20) == 0
    view = page.page
    view.goto(f"{server.url}/#/topics/orders/messages?json=%24.city%20%3D%20Kyoto")
    row = view.get_by_role("table", name="Messages").locator("tbody tr")
    expect(row).to_contain_text('{"city":"Kyoto"}')
    row.click()
    detail = view.get_by_role("complementary", name="Message")
    expect(detail).to_contain_text(f"value: Avro, id {id}")
    expect(detail.locator("pre")).to_have_text('{\n  "city": "Kyoto"\n}')
    detail.get_by_role("button", name="Hex").click()
    expect(detail.locator("pre")).to_contain_text("4b 79 6f 74 6f")
    assert page.violations() == []


def test_a_request_is_tried_from_the_reference(server: Server, page: Watched) -> None:
    view = page.page
    view.goto(f"{server.url}/docs")
    view.get_by_role("button", name="Try PUT /v0/topics/{topic}", exact=True).click()
    dialog = view.get_by_role("dialog")
    dialog.get_by_label("topic", exact=True).fill("tried")
    dialog.get_by_label("Body").fill('{"ttl_ms": 5000}')
    assert page.violations() == []
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_role("status")).to_contain_text("201 Created")
    assert server.client.get("/v0/topics/tried").json()["config"]["ttl_ms"] == 5000
    dialog.get_by_role("button", name="Close").click()
    view.get_by_role("button", name="Try GET /v0/topics", exact=True).click()
    dialog.get_by_label("prefix").fill("nothing")
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_role("status")).to_contain_text('"topics": []')
