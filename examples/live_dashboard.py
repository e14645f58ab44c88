"""Show the most visited pages live: start from the history, then follow every new visit.

`watch` delivers the records of a topic from the beginning, says when it has caught up, and goes on with new ones. It
reconnects by itself and misses nothing. A browser does the same with Server-Sent Events or a WebSocket.

Needs a running server (`mainstem serve`). Set MAINSTEM_URL if it is not at the default address.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter

import mainstem
from mainstem.client import CaughtUp, Record

HISTORY = [("/", 60), ("/docs", 30), ("/pricing", 10)]
LIVE = [("/docs", 45), ("/pricing", 5)]


def main() -> None:
    visits = f"visits-{secrets.token_hex(4)}"
    with mainstem.Client() as client:
        client.create_topic(visits, partitions=3)
        visit(client, visits, HISTORY)
        visitors = threading.Thread(target=visit, args=(client, visits, LIVE))
        board: Counter[str] = Counter()
        expected = sum(number for _, number in HISTORY + LIVE)
        for event in client.watch({visits: 0}):
            if isinstance(event, Record):
                board[event.value["page"]] += 1
            elif isinstance(event, CaughtUp) and not visitors.ident:
                show("so far", board)
                visitors.start()
            if board.total() == expected:
                break
        show("live", board)
        visitors.join()
        client.delete_topic(visits)


def visit(client: mainstem.Client, topic: str, pages: list[tuple[str, int]]) -> None:
    with client.producer(topic, linger_ms=5) as producer:
        for page, number in pages:
            for _ in range(number):
                producer.send({"page": page}, key=page)


def show(title: str, board: Counter[str]) -> None:
    print(title, *(f"{page}={number}" for page, number in board.most_common()))


if __name__ == "__main__":
    main()
