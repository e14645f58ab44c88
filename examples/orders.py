"""The Python client: make a topic, write many records, read them on, and follow what is new.

Needs a server (`mainstem serve`); MAINSTEM_URL says where if it is not the default.
"""

from __future__ import annotations

import secrets
import threading

import mainstem
from mainstem.client import ConsumerRecord


def main() -> None:
    topic = f"orders-{secrets.token_hex(4)}"
    with mainstem.Client() as client:
        client.create_topic(topic, durability="fsync")
        write(client, topic)
        print(client.topic(topic).count, "orders written")
        by_customer: dict[str | None, float] = {}
        for order in client.read(topic):
            by_customer[order.key] = by_customer.get(order.key, 0.0) + order.value["total"]
        print("the best customer is", max(by_customer, key=lambda name: by_customer[name]))
        follow(client, topic)
        client.delete_topic(topic)


def write(client: mainstem.Client, topic: str) -> None:
    """Batches, in order, each once however often it has to be sent."""
    with client.producer(topic) as producer:
        for number in range(1, 1001):
            producer.send({"id": number, "total": number / 10}, key=f"customer-{number % 9}")


def follow(client: mainstem.Client, topic: str) -> None:
    """What comes from now on."""
    late = threading.Timer(0.2, client.produce, (topic, {"id": 1001, "total": 0.0}), {"key": "late"})
    late.start()
    for event in client.watch({topic: "tail"}):
        if isinstance(event, ConsumerRecord):
            print("then came", event.value["id"])
            break
    late.join()


if __name__ == "__main__":
    main()
