"""`python -m tools.screenshots`: write the pictures of the console in the documents, from a real server and browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

from mainstem.client.sync import Client
from mainstem.testing.broker import throw_away_broker
from tests.console.browser import browsing, running

TARGET = Path(__file__).parents[1] / "docs" / "images"
_CITIES = ("Rome", "Oslo", "Lima", "Kyoto", "Accra")
_SIZE = {"width": 1280, "height": 760}
_SETTLE_MS = 12_000  # until the history has a few samples


def main() -> None:
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
