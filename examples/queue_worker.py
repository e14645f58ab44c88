"""Process a queue: workers lease jobs, return the ones that fail, and a job that fails three times is a dead letter.

Needs a running server (`mainstem serve`). Set MAINSTEM_URL if it is not at the default address.
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
    """Run four threads until one job is a dead letter and all others are done."""
    sent: list[str] = []

    @client.worker(queue, concurrency=4)
    def send(job: Job) -> None:
        address = job.value["to"]
        if "@" not in address:
            job.nack()  # return the job, so that another worker can try it
            return
        sent.append(address)

    workers = threading.Thread(target=send.run)
    workers.start()
    letter = next(iter(client.read(dead, follow=True)))
    print("dead letter after three attempts:", letter.value["to"])
    while client.topic(queue).count:
        client.page(dead, from_seq=letter.seq, wait_ms=50)  # no more dead letters come, so this only waits
    send.stop()
    workers.join()
    return sent


if __name__ == "__main__":
    main()
