"""A queue and its workers: jobs are leased, given back when they fail, and set aside after three attempts.

Needs a server (`mainstem serve`); MAINSTEM_URL says where if it is not the default.
"""

from __future__ import annotations

import secrets
import threading

import mainstem
from mainstem.client import Job

EMAILS = 50


def main() -> None:
    queue = f"emails-{secrets.token_hex(4)}"
    dead = f"{queue}.dead"
    with mainstem.Client() as client:
        client.create_topic(dead)
        client.create_topic(queue, type="queue", max_deliveries=3, dead_letter=dead)
        client.produce_many(queue, [{"to": f"user-{number}@example.org"} for number in range(EMAILS)])
        client.produce(queue, {"to": "nobody"})
        sent = work(client, queue, dead)
        print(len(sent), "emails sent, each once:", len(set(sent)) == EMAILS)
        client.delete_topic(queue)
        client.delete_topic(dead)


def work(client: mainstem.Client, queue: str, dead: str) -> list[str]:
    """Four threads, until a job was set aside and all others are done."""
    sent: list[str] = []

    @client.worker(queue, concurrency=4)
    def send(job: Job) -> None:
        address = job.value["to"]
        if "@" not in address:
            job.nack()  # to be tried again, by whoever comes next
            return
        sent.append(address)

    workers = threading.Thread(target=send.run)
    workers.start()
    letter = next(iter(client.read(dead, follow=True)))
    print("set aside after three attempts:", letter.value["to"])
    while client.topic(queue).count:
        client.page(dead, from_seq=letter.seq, wait_ms=50)  # waits, as nothing more comes
    send.stop()
    workers.join()
    return sent


if __name__ == "__main__":
    main()
