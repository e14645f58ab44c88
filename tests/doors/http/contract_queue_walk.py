"""Walks that also claim and settle jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .contract_model import Lease
from .contract_steps import Step
from .contract_walk import QUEUE, Walk


class QueueWalk(Walk):
    def _no_queue(self, status: int, answer: Any) -> bool:
        topic = self.world.topics.get(QUEUE)
        if topic is None:
            assert (status, answer["error"]["code"]) == (404, "topic_not_found")
        elif topic.settings.type != "queue":
            assert (status, answer["error"]["code"]) == (409, "not_a_queue")
        return topic is None or topic.settings.type != "queue"

    async def step_claim(self, step: Step) -> None:
        body = {"node": step.pick(0, ("w1", "w2")), "max": 1 + step.dice[1] % 3}
        if step.dice[2] % 2:
            body["lease_ms"] = self.lease_ms
        status, answer = await self.ask("POST", f"/v0/topics/{QUEUE}/claim", body)
        now = self.target.now()
        if QUEUE in self.world.topics:
            self.world.drain(QUEUE, now)
        if self._no_queue(status, answer):
            return
        topic = self.world.topics[QUEUE]
        topic.expire(now)
        jobs = topic.jobs
        jobs.settle(now)
        bound = topic.settings.max_deliveries if topic.settings.dead_letter else 0
        free = sorted(topic.records.keys() - jobs.leased.keys() - jobs.delayed.keys())
        free.sort(key=lambda seq: seq not in jobs.deliveries)  # jobs that were leased before come first
        taken: list[int] = []
        spent: list[int] = []
        for seq in free:
            if len(taken) == body["max"]:
                break
            (spent if bound and jobs.deliveries.get(seq, 0) >= bound else taken).append(seq)
        assert status == 200
        assert [job["$seq"] for job in answer["claimed"]] == taken
        for job in answer["claimed"]:
            seq = job["$seq"]
            jobs.deliveries[seq] = jobs.deliveries.get(seq, 0) + 1
            assert job["deliveries"] == jobs.deliveries[seq]
            assert job["data"] == topic.records[seq].data
            if self.target.exact_time:
                assert job["deadline"] == now + body.get("lease_ms", topic.settings.lease_ms)
            jobs.leased[seq] = Lease(body["node"], job["lease_id"], job["deadline"])
        if spent:
            self.world.bury(topic, spent, now)
        assert (answer["count"], answer["ready"]) == (len(taken), topic.ready())

    async def step_ack(self, step: Step) -> None:
        done = await self._settled("ack", step, {})
        if done is not None:
            topic, held, answer = done
            topic.delete(held)
            assert (answer["acked"], answer["in_flight"]) == (len(held), len(topic.jobs.leased))
            assert answer["ready"] == topic.ready()

    async def step_nack(self, step: Step) -> None:
        delay_ms = step.pick(4, (0, 0, 500)) if self.target.exact_time else 0
        done = await self._settled("nack", step, {"delay_ms": delay_ms})
        if done is not None:
            topic, held, answer = done
            for seq in held:
                del topic.jobs.leased[seq]
                if delay_ms:
                    topic.jobs.delayed[seq] = self.target.now() + delay_ms
            assert (answer["nacked"], answer["in_flight"]) == (len(held), len(topic.jobs.leased))
            assert answer["ready"] == topic.ready()

    async def step_extend(self, step: Step) -> None:
        done = await self._settled("extend", step, {"lease_ms": 2 * self.lease_ms})
        if done is not None:
            topic, held, answer = done
            for seq in held:
                until = answer["deadlines"][str(seq)]
                assert until == self.target.now() + 2 * self.lease_ms or not self.target.exact_time
                topic.jobs.leased[seq] = replace(topic.jobs.leased[seq], deadline=until)
            assert (answer["extended"], len(answer["deadlines"])) == (len(held), len(held))

    async def _settled(self, verb: str, step: Step, more: dict[str, Any]) -> Any:
        """Settle jobs of this node, of the other one, and of nobody; returns the leases that it should change."""
        topic = self.world.topics.get(QUEUE)
        node = step.pick(0, ("w1", "w2"))
        known = sorted(topic.ever) if topic is not None else []
        leased = sorted(topic.jobs.leased) if topic is not None else []
        seqs = [step.pick(1, leased or [1]), step.pick(2, leased or [1]), step.pick(3, known or [1])]
        seqs = list(dict.fromkeys(seqs))
        body = {"node": node, "seqs": seqs, **more}
        ids = None
        if step.dice[5] % 2 and topic is not None:
            jobs = topic.jobs
            ids = [jobs.leased[s].lease_id if s in jobs.leased else "lease_" + "0" * 32 for s in seqs]
            body["lease_ids"] = ids
        status, answer = await self.ask("POST", f"/v0/topics/{QUEUE}/{verb}", body)
        if self._no_queue(status, answer):
            return None
        assert topic is not None
        assert status == 200
        topic.jobs.settle(self.target.now())
        held = [seq for seq in seqs if seq in topic.jobs.leased and topic.jobs.leased[seq].node == node]
        assert answer["skipped"] == [seq for seq in seqs if seq not in held]
        return topic, held, answer
