"""What clients store is text on every page of the console: nothing of it becomes part of the page."""

from __future__ import annotations

import json
from urllib.parse import quote

from confluent_kafka import Consumer, Producer, TopicPartition

from .browser import Watched
from .conftest import Server

_PAGES_MAX = 40
_HOSTILE = (
    """<img class=hostile src=x onerror="window.hostile=1"><script class=hostile>window.hostile=1</script>"""
)
_LINK = "javascript:window.hostile=1"


def _store(server: Server) -> None:
    producer = Producer({"bootstrap.servers": server.kafka, "client.id": _HOSTILE})
    for value in (_HOSTILE, json.dumps({_HOSTILE: _HOSTILE, "link": _LINK}), _LINK):
        producer.produce("orders", value, key=_HOSTILE, headers=[(_HOSTILE, _HOSTILE.encode())])
    producer.flush(30)
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": _HOSTILE, "client.id": _HOSTILE})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1, _HOSTILE)], asynchronous=False)
    consumer.close()
    field = {"name": "x", "type": "int", "doc": _HOSTILE}
    schema = {"type": "record", "name": "r", "doc": _HOSTILE, "fields": [field]}
    subject = quote(f"{_HOSTILE[:40]}-value", safe="")
    for name in (subject, "orders-value"):
        body = {"schema": json.dumps(schema)}
        server.client.post(f"/subjects/{name}/versions", json=body)
    server.client.post("/v0/topics/%3Cimg%20src%3Dx%3E", json={"records": [{}]})  # refused, in the audit log


def test_no_page_runs_what_clients_stored(server: Server, page: Watched) -> None:
    _store(server)
    view, seen = page.page, set[str]()
    waiting = [f"#/topics/orders/{tab}" for tab in ("", "messages", "groups")] + [
        "#/",
        "#/groups",
        "#/schemas",
    ]
    shown = 0
    while waiting and len(seen) < _PAGES_MAX:
        place = waiting.pop(0)
        if place in seen:
            continue
        seen.add(place)
        view.goto(f"{server.url}/{place}")
        view.wait_for_load_state("networkidle")
        assert view.locator(".hostile").count() == 0, place
        assert view.locator('a[href^="javascript:"]').count() == 0, place
        assert view.evaluate("window.hostile") is None, place
        shown += "<img class=hostile" in view.locator("body").inner_text()
        links = view.locator('a[href^="#/"]').evaluate_all("all => all.map(a => a.getAttribute('href'))")
        waiting += [link for link in links if link not in seen]
    assert len(seen) > 5
    assert shown, "some page shows it, as text"
    page.complaints = [line for line in page.complaints if "404" not in line]
