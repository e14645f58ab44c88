"""Workers of one queue, over HTTP: jobs are added, claimed and settled; no worker gets a job that another one holds."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from typing import Any

from tests.support.chaos.client import ChaosClient
from tests.support.chaos.notes import Notes

QUEUE = "queue"
LEASE_MS = 2_000
CONFIG = {"type": "queue", "lease_ms": LEASE_MS, "leases_durable": True}
_TIMEOUT_S = 10.0

Addresses = Callable[[], list[str]]


def ask(address: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """One request. Status 0: no response, so the outcome is unknown."""
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_S)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    except (OSError, http.client.HTTPException, ValueError):
        return 0, None
    finally:
        connection.close()


class Jobs:
    """The outcome of every job, as known to all workers. The lock of the notes guards it."""

    def __init__(self) -> None:
        self.put: set[str] = set()  # acknowledged
        self.asked: set[str] = set()  # … or not
        self.settled: set[int] = set()  # by number: an ack was confirmed
        self.names: dict[int, str] = {}  # of all that were ever claimed
        self.maybe_settled: set[int] = set()  # an ack was sent

    def lost(self) -> set[str]:
        """Jobs that were added and never delivered."""
        return self.put - set(self.names.values())


class QueueWorker(ChaosClient):
    """Adds and claims jobs, each time through any broker."""

    def __init__(self, name: str, seed: int, notes: Notes, addresses: Addresses, jobs: Jobs) -> None:
        super().__init__(name, seed, notes)
        self._addresses = addresses
        self._jobs = jobs
        self._number = 0

    def step(self) -> None:
        if self.random.random() < 0.5:
            self._put()
        else:
            self.work()
        self.stopping.wait(0.02)

    def work(self) -> int:
        """Claim some and settle them, or not. Returns how many came."""
        with self.notes:
            settled = frozenset(self._jobs.settled)  # before it asks: answers may be late
        status, body = self._ask("claim", {"node": self.name, "max": self.random.randint(1, 4)})
        if status != 200:
            return -1
        for job in body["claimed"]:
            self._claimed(job, settled)
        for job in body["claimed"]:
            if self.random.random() < 0.8:
                self._settle(job)
        return len(body["claimed"])

    def _put(self) -> None:
        job = f"{self.name}:{self._number}"
        self._number += 1
        with self.notes:
            self._jobs.asked.add(job)
        status, _ = self._ask("", {"records": [{"data": job}]})
        if status in (200, 201):
            with self.notes:
                self._jobs.put.add(job)
            self.notes.count("jobs put")
            self.progress += 1

    def _claimed(self, job: dict[str, Any], settled: frozenset[int]) -> None:
        number, name = job["$seq"], job["data"]
        now = time.time()
        with self.notes as history:
            history.lease_taken(f"job {number}", job["lease_id"], now, job["deadline"] / 1000)
            known = self._jobs.names.setdefault(number, name)
            wrong = []
            if known != name:
                wrong.append(f"job {number} was {known} and is {name}")
            if name not in self._jobs.asked:
                wrong.append(f"job {number} is {name}, which nobody added")
            if number in settled:
                wrong.append(f"job {number} came back after it was settled")
        for one in wrong:
            self.notes.found(one)
        self.notes.count("jobs claimed")

    def _settle(self, job: dict[str, Any]) -> None:
        number = job["$seq"]
        with self.notes as history:
            # From now on it may be settled, and so may the lease be over.
            history.lease_left(f"job {number}", job["lease_id"], time.time())
            self._jobs.maybe_settled.add(number)
        asked = {"node": self.name, "seqs": [number], "lease_ids": [job["lease_id"]]}
        status, body = self._ask("ack", asked)
        if status == 200 and body["acked"] == 1:
            with self.notes:
                twice = number in self._jobs.settled
                self._jobs.settled.add(number)
            if twice:
                self.notes.found(f"job {number} was settled twice")
            self.notes.count("jobs settled")

    def _ask(self, verb: str, body: object) -> tuple[int, Any]:
        address = self.random.choice(self._addresses())
        return ask(address, "POST", f"/v0/topics/{QUEUE}{'/' if verb else ''}{verb}", body)
