"""`python -m tools.screenshots`: write the pictures of the console in the documents, from a real server and browser.
ffmpeg makes the recording.

With a folder, `python -m tools.screenshots DIR`: every screen instead, wide and on a phone, light and dark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import pulsar
from confluent_kafka import Producer
from playwright.sync_api import Page

from mainstem.client.sync import Client
from mainstem.testing.broker import throw_away_broker
from mainstem.testing.server import ServerProcess
from tests.console.browser import browsing, running

TARGET = Path(__file__).parents[1] / "docs" / "images"
_CITIES = ("Rome", "Oslo", "Lima", "Kyoto", "Accra")
_SIZE = {"width": 1280, "height": 760}
_RECORDED_WIDTH = 960
_DRAWN_MS = 1_200
_PLACES = (
    *(
        "overview",
        "topics",
        "groups",
        "groups/billing",
        "queues",
        "queues/emails",
        "subscriptions",
        "routers",
    ),
    *(
        f"topics/orders/{tab}"
        for tab in ("messages", "produce", "partitions", "consumers", "config", "table")
    ),
    *("transactions", "lake", "storage", "schemas", "sql", "nowhere", "docs"),
    *(f"access/{tab}" for tab in ("keys", "users", "rules", "namespaces", "rates", "audit")),
)
_SETTLE_MS = 12_000  # until the history has a few samples


def main() -> None:
    if len(sys.argv) > 1:
        every_screen(Path(sys.argv[1]))
        return
    TARGET.mkdir(parents=True, exist_ok=True)
    with throw_away_broker() as broker, running() as browser, browsing(browser) as context:
        fill(broker.client)
        page = context.new_page()
        page.set_viewport_size({"width": _SIZE["width"], "height": _SIZE["height"]})
        page.goto(f"{broker.url}/#/topics/orders/messages?json=%24.total+%3E%3D+900")
        page.locator("tbody tr").nth(2).click()
        page.locator("pre.value").wait_for()
        shoot(page, "console")
        for _ in range(_SETTLE_MS // 500):
            write(broker.client, 40)
            page.wait_for_timeout(500)
        page.goto(f"{broker.url}/#/overview")
        page.get_by_text("Storage by tier").wait_for()
        page.wait_for_timeout(2_500)
        shoot(page, "console-overview")
        record(page, broker.client, broker.url)


def record(page: Page, client: Client, url: str) -> None:
    """A short recording: topics, messages as they arrive, a search, a message."""
    folder = Path(tempfile.mkdtemp())
    frames: list[str] = []

    def frame(ms: int) -> None:
        name = f"{len(frames) // 2:02}.png"
        page.screenshot(path=folder / name)
        frames.extend((f"file {name}", f"duration {ms / 1000}"))

    page.goto(f"{url}/#/topics")
    page.get_by_text("invoices").first.wait_for()
    frame(1_800)
    page.goto(f"{url}/#/topics/orders/messages?start=live")
    page.get_by_text("● live").wait_for()
    for _ in range(6):
        write(client, 3)
        page.wait_for_timeout(1_100)
        frame(500)
    page.goto(f"{url}/#/topics/orders/messages")
    path = page.get_by_label("Filter by JSON path")
    for length in (7, 12, 15):
        path.fill("$.total >= 900"[:length])
        page.wait_for_timeout(100)
        frame(400)
    page.wait_for_timeout(1_500)
    frame(900)
    page.locator("tbody tr").nth(2).click()
    page.locator("pre.value").wait_for()
    frame(2_500)
    (folder / "frames").write_text("\n".join(frames) + "\n", encoding="ascii")
    scale = f"scale={_RECORDED_WIDTH}:-1:flags=lanczos"
    subprocess.run(
        [
            *("ffmpeg", "-loglevel", "error", "-y", "-f", "concat", "-i", str(folder / "frames")),
            *("-vf", scale, "-fps_mode", "vfr", "-loop", "0", "-c:v", "libwebp_anim", "-quality", "70"),
            str(TARGET / "console.webp"),
        ],
        check=True,
    )
    shutil.rmtree(folder)


def every_screen(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    server = ServerProcess(Path(tempfile.mkdtemp()) / "data").wait_ready()
    url = f"http://{server.address('http')}"
    with server, running() as browser:
        with Client(url) as client:
            fill(client)
        furnish(server, url)
        for scheme in ("light", "dark"):
            with browsing(browser, scheme) as context:
                page = context.new_page()
                for width, height in ((1440, 900), (390, 844)):
                    page.set_viewport_size({"width": width, "height": height})
                    for place in _PLACES:
                        page.goto(f"{url}/{place if place == 'docs' else '#/' + place}")
                        page.wait_for_timeout(_DRAWN_MS)
                        page.screenshot(path=target / f"{place.replace('/', '-')}-{width}-{scheme}.png")


def furnish(server: ServerProcess, url: str) -> None:
    """Groups, jobs, a transaction, schemas, keys and rules, so that no screen is empty."""
    with Client(url) as client, httpx.Client(base_url=url, timeout=30) as http:
        with client.consumer("orders", group="billing") as consumer:
            for _, _record in zip(range(300), consumer, strict=False):
                pass
            consumer.commit()
        http.patch("/v0/topics/orders/settings", json={"retention.ms": "86400000"})
        for n in range(40):
            client.produce("emails", {"to": f"user-{n}@example.com"}, delay_ms=60_000 if n % 4 == 0 else 0)
        http.post("/v0/topics/emails/claim", json={"node": "worker-1", "max": 5, "lease_ms": 600_000})
        http.put("/v0/topics/orders/table", json={"enabled": True})
        for fields in (["id"], ["id", "city"]):
            schema = {
                "type": "record",
                "name": "Order",
                "fields": [{"name": name, "type": "string", "default": ""} for name in fields],
            }
            http.post("/subjects/orders-value/versions", json={"schema": json.dumps(schema)})
    producer = Producer({"bootstrap.servers": str(server.address("kafka")), "transactional.id": "payments-1"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", b"x")
    producer.flush(20)
    pulsar_client = pulsar.Client(f"pulsar://{server.address('pulsar')}")
    pulsar_client.subscribe("invoices", "ledger", consumer_type=pulsar.ConsumerType.Shared)
    pulsar_producer = pulsar_client.create_producer("invoices")
    for n in range(25):
        pulsar_producer.send(b"invoice %d" % n)


def fill(client: Client) -> None:
    client.create_topic("orders", partitions=3)
    client.create_topic("invoices")
    client.create_topic("emails", type="queue")
    client.put_router("orders-audit", source="orders", dest="audit")
    write(client, 2_000)


def write(client: Client, number: int) -> None:
    with client.producer("orders") as producer:
        for n in range(number):
            value = {"id": n, "city": _CITIES[n % 5], "total": n * 37 % 1_000}
            producer.send(value, key=f"customer-{n % 97}", headers={"source": "shop"})


def shoot(page: Page, name: str) -> None:
    page.screenshot(path=TARGET / f"{name}.png")


if __name__ == "__main__":
    main()
