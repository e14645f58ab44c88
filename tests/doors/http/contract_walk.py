"""Random calls of the HTTP door, each response compared with the model of the contract."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any, Protocol

from .contract_model import (
    CAP,
    SILENT,
    TRIM,
    TTL,
    RouterModel,
    Settings,
    Stored,
    TopicModel,
    Unknowable,
    World,
)
from .contract_steps import Step

LOGS = ("a", "b", "c")
QUEUE = "q"
_DEAD = "dead"
NAMES = (*LOGS, QUEUE, _DEAD)
# Chains and fan-out, but never two sources for one destination.
ROUTERS = {"r1": ("a", "b"), "r2": ("b", "c"), "r3": ("a", QUEUE)}
_NODES = ("n1", "n2", None)
_TAGS = ("x", "x:1", "y", None)
_METAS: tuple[Any, ...] = ({"k": 1}, "plain", None, None)
_MATCHES = ("x", "x*", "y*")
_KEYS = ("k1", "k2", None, None, None)
_LIMITS = (1, 2, 3, 256)


class Target(Protocol):
    """The server under test, in this process or another."""

    exact_time: bool  # whether the walk sets the time, and decides when routers run

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]: ...

    def now(self) -> int: ...

    def wait(self, ms: int) -> None: ...

    async def restart(self, how: int) -> None: ...


@dataclass
class Walk:
    target: Target
    configs: dict[str, tuple[Settings, ...]]
    lease_ms: int = 1000

    def __post_init__(self) -> None:
        self.world = World()
        self.story: list[str] = []
        self._cursors: dict[str, int] = {}  # of a reader that misses nothing, by topic
        self._written = 0

    async def run(self, walk: list[Step]) -> None:
        with contextlib.suppress(Unknowable):  # a walk ends where the contract does
            await self._run(walk)

    async def _run(self, walk: list[Step]) -> None:
        for step in walk:
            await getattr(self, f"step_{step.name}")(step)
            if not self.target.exact_time:
                await self._settle()
        for name in list(self.world.topics):
            await self._check_state(name)
            while await self._read(name):
                continue

    async def _settle(self) -> None:
        """Where routers run by themselves, run them now: the model must know when."""
        for _, dest in ROUTERS.values():
            if dest in self.world.topics:
                await self._check_state(dest)

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        status, answer = await self.target.ask(method, path, body)
        if isinstance(answer, dict):
            answer.pop("performance", None)
            answer.pop("config", None)
        self.story.append(f"{method} {path} {body if body is not None else ''} -> {status} {answer}")
        return status, answer

    # Topics

    async def step_put(self, step: Step) -> None:
        name = step.pick(0, (*LOGS, QUEUE))
        settings: Settings = step.pick(1, self.configs[name])
        topic = self.world.topics.get(name)
        if settings.cap_bytes and topic is not None and not topic.sized:
            # Sizes of records from before the cap are known only by their average: no model can tell which are evicted.
            settings = replace(settings, cap_bytes=0, cap_records=4)
        body = {key: value for key, value in vars(settings).items() if value is not None}
        status, answer = await self.ask("PUT", f"/v0/topics/{name}", {**body, "durability": "fsync"})
        if topic is not None and topic.settings.type != settings.type:
            assert (status, answer["error"]["code"]) == (409, "topic_exists_incompatible")
            return
        assert (status, answer["created"]) == ((201, True) if topic is None else (200, False))
        if topic is None:
            self.world.make(name, settings)
            return
        topic.expire(self.target.now())  # by the previous rule
        topic.take(settings)
        topic.expire(self.target.now())
        topic.evict()

    async def step_drop(self, step: Step) -> None:
        name = step.pick(0, NAMES)
        status, answer = await self.ask("DELETE", f"/v0/topics/{name}")
        known = name in self.world.topics
        removed = self.world.drop(name) if known else []
        assert (status, answer) == (200, {"topic": name, "deleted": known, "routers_removed": removed})
        self._cursors.pop(name, None)

    async def step_state(self, step: Step) -> None:
        await self._check_state(step.pick(0, NAMES))

    async def _check_state(self, name: str) -> None:
        status, answer = await self.ask("GET", f"/v0/topics/{name}")
        topic = self.world.topics.get(name)
        if topic is None:
            assert (status, answer["error"]["code"]) == (404, "topic_not_found")
            return
        now = self.target.now()
        self.world.drain(name, now)
        topic.expire(now)
        assert status == 200
        assert (answer["head_seq"], answer["next_seq"]) == (topic.head, topic.head + 1)
        assert answer["count"] == len(topic.records)
        assert topic.may_start_at(answer["earliest_seq"]), answer["earliest_seq"]
        if topic.sized:
            assert answer["bytes"] == topic.bytes
        if topic.settings.type == "queue":
            topic.jobs.settle(now)
            assert answer["queue"] == {
                "ready": topic.ready(),
                "in_flight": len(topic.jobs.leased),
                "dead_lettered": topic.jobs.buried,
            }

    # Records

    async def step_write(self, step: Step) -> None:
        name = step.pick(0, (*LOGS, *LOGS, QUEUE, _DEAD))
        key, now = step.pick(1, _KEYS), self.target.now()
        records = []
        for at in range(1 + step.dice[2] % 4):
            self._written += 1
            dice = step.other(at)
            records.append(
                Stored(
                    {"v": self._written, "pad": "é" * (dice.dice[3] % 20)},
                    now,
                    dice.pick(4, _TAGS),
                    dice.pick(5, _NODES),
                    dice.pick(3, _METAS),
                )
            )
        body: dict[str, Any] = {"records": [_sent(record) for record in records]}
        if key is not None:
            body["idempotency_key"] = key
        status, answer = await self.ask("POST", f"/v0/topics/{name}", body)
        await self._check_write(name, records, key, status, answer)

    async def _check_write(
        self, name: str, records: list[Stored], key: str | None, status: int, answer: Any
    ) -> None:
        created = name not in self.world.topics
        topic = self.world.make(name) if created else self.world.topics[name]
        now = self.target.now()
        topic.expire(now)
        settings = topic.settings
        if settings.discard == "reject" and 0 < settings.cap_records < len(records):
            assert (status, answer["error"]["code"]) == (400, "record_too_large")
            return
        first, last, then = topic.keys.get(key or "", (0, 0, 0))
        repeated = bool(key and first and now - then <= settings.idempotency_window_ms)
        if not repeated and topic.full(len(records)):
            assert (status, answer["error"]["code"]) == (422, "topic_full")
            assert answer["error"]["detail"]["head_seq"] == topic.head
            return
        if not repeated:
            first, last = topic.append(records)
            if key:
                topic.keys[key] = (first, last, now)
        assert status == (201 if created else 200), answer
        expected = {
            "topic": name,
            "first_seq": first,
            "last_seq": last,
            "seqs": [*range(first, last + 1)],
            "head_seq": last,
            "count": last - first + 1,
            "created": created,
            "deduped": repeated,
        }
        assert answer == expected

    async def step_delete(self, step: Step) -> None:
        name = step.pick(0, NAMES)
        topic = self.world.topics.get(name)
        head = 0 if topic is None else topic.head
        body: dict[str, Any] = {}
        if step.dice[1] % 3:
            body["before_seq"] = step.dice[2] % (head + 2)
        if step.dice[1] % 3 != 1:
            body["match"] = step.pick(3, _MATCHES)
        status, answer = await self.ask("POST", f"/v0/topics/{name}/delete", body)
        if topic is None:
            assert (status, answer["error"]["code"]) == (404, "topic_not_found")
            return
        now = self.target.now()
        self.world.drain(name, now)
        topic.expire(now)
        matching = RouterModel("", "", "", 0, body.get("match"))
        before = body.get("before_seq", topic.head + 1)
        doomed = [s for s, record in topic.records.items() if s < before and matching.covers(record)]
        if "match" not in body:
            topic.clear(min(before, topic.head + 1))
        topic.delete(doomed)
        assert status == 200
        assert (answer["deleted"], answer["head_seq"]) == (len(doomed), topic.head)
        assert answer["count"] == len(topic.records)
        assert topic.may_start_at(answer["earliest_seq"])

    async def step_diff(self, step: Step) -> None:
        name = step.pick(0, NAMES)
        head = self.world.topics[name].head if name in self.world.topics else 0
        from_seq = step.dice[1] % (head + 4) if step.dice[2] % 4 else 0
        await self._read_page(
            name,
            from_seq,
            limit=step.pick(3, _LIMITS),
            node=step.pick(4, ("n1", ["n1", "n2"], None)),
            max_batch_bytes=step.pick(5, (1, 60, 1 << 20)),
            include_tags=bool(step.dice[5] % 2),
        )

    async def step_read_on(self, step: Step) -> None:
        await self._read(step.pick(0, NAMES), step.pick(1, _LIMITS))

    async def _read(self, name: str, limit: int = 3) -> bool:
        """Continue with the reader that misses nothing, and check that nothing is missing silently."""
        before = self._cursors.get(name, 0)
        page = await self._read_page(name, before, limit=limit, include_tags=True)
        if page is None:
            return False
        topic, after = self.world.topics[name], page["next_from_seq"]
        tombstone = page["tombstone"] or {"gap_from": 1, "gap_to": 0}
        told = range(tombstone["gap_from"], tombstone["gap_to"] + 1)
        got = {record["$seq"] for record in page["records"]}
        for seq in range(before + 1, after + 1):
            fate = topic.gone.get(seq)
            if seq in got:
                assert fate is None, f"{seq} is {fate} and was delivered"
            elif seq in told:
                assert fate is not None, f"{seq} is there, and said to be lost"
            else:
                assert fate in SILENT, f"{seq} is {fate} and nothing was said"
        for edge in (told[:1], told[-1:]):
            for seq in edge:
                assert topic.gone.get(seq) in (CAP, TTL, TRIM, *SILENT)
        if told:
            assert topic.gone[told[-1]] in (CAP, TTL, TRIM), "a gap ends with a record that was lost"
        self._cursors[name] = after
        return bool(after > before)

    async def _read_page(self, name: str, from_seq: int, **asked: Any) -> Any:
        body = {"from_seq": from_seq, **{key: value for key, value in asked.items() if value is not None}}
        status, answer = await self.ask("POST", f"/v0/topics/{name}/diff", body)
        topic = self.world.topics.get(name)
        if topic is None:
            assert (status, answer["error"]["code"]) == (404, "topic_not_found")
            return None
        now = self.target.now()
        self.world.drain(name, now)
        topic.expire(now)
        node = asked.get("node") or ()
        nodes = (node,) if isinstance(node, str) else tuple(node)
        tombstone, seqs, at = topic.diff(
            from_seq, asked["limit"], nodes, asked.get("max_batch_bytes", 1 << 20)
        )
        assert status == 200
        shown = [topic.records[seq].shown(seq, tags=asked.get("include_tags", False)) for seq in seqs]
        self._check_records(answer["records"], shown)
        self._check_tombstone(answer["tombstone"], tombstone, topic)
        assert topic.may_start_at(answer["earliest_seq"])
        assert (answer["head_seq"], answer["next_from_seq"]) == (topic.head, at)
        assert (answer["caught_up"], answer["lag"]) == (at == topic.head, topic.head - at)
        return answer

    def _check_records(self, given: list[Any], expected: list[Any]) -> None:
        assert [record["$seq"] for record in given] == [record["$seq"] for record in expected]
        for record, wanted in zip(given, expected, strict=True):
            stamp = (
                (record.get("meta") or {}).get("_topics_router")
                if isinstance(record.get("meta"), dict)
                else None
            )
            if stamp is not None:
                whole = {
                    "idempotency_key",
                    "router",
                    "source_topic",
                    "source_topic_id",
                    "source_epoch",
                    "source_seq",
                }
                assert set(stamp) == whole
                for extra in ("idempotency_key", "source_topic_id", "source_epoch"):
                    del stamp[extra]
            if not self.target.exact_time:
                wanted = {**wanted, "$ts": record["$ts"]}
            assert record == wanted

    def _check_tombstone(self, given: Any, expected: Any, topic: TopicModel) -> None:
        assert (given is None) == (expected is None), (given, expected)
        if given is None:
            return
        assert (given["gap_from"], given["gap_to"]) == (expected["gap_from"], expected["gap_to"])
        assert given["missed_estimate"] == max(0, given["gap_to"] - given["gap_from"] + 1)
        # With a cap, expired records may have been evicted before anybody looked.
        blurred = {TTL: (TTL, "mixed", CAP), "mixed": ("mixed", CAP)} if topic.capped else {}
        assert given["reason"] in blurred.get(expected["reason"], (expected["reason"],))

    # Routers

    async def step_put_router(self, step: Step) -> None:
        name = step.pick(0, list(ROUTERS))
        source, dest = ROUTERS[name]
        wanted = {
            "source": source,
            "dest": dest,
            "filter": step.pick(1, (None, None, *_MATCHES)),
            "preserve_node": bool(step.dice[2] % 3),
            "preserve_tag": bool(step.dice[3] % 3),
            "guarantee": "exactly_once" if step.dice[4] % 4 == 0 else "at_least_once",
        }
        status, answer = await self.ask("PUT", f"/v0/routers/{name}", wanted)
        old = self.world.routers.get(name)
        if old is not None and old.passed:
            raise Unknowable("records that match by now may have been passed before")
        for topic in (source, dest):
            if topic not in self.world.topics:
                self.world.make(topic)
        assert (status, answer["created"]) == ((201, True) if old is None else (200, False))
        self.world.routers[name] = RouterModel(
            name,
            source,
            dest,
            self.world.topics[source].head if old is None else old.cursor,
            wanted["filter"],
            wanted["preserve_node"],
            wanted["preserve_tag"],
            wanted["guarantee"] == "exactly_once",
            0 if old is None else old.total,
        )

    async def step_get_router(self, step: Step) -> None:
        name = step.pick(0, list(ROUTERS))
        status, answer = await self.ask("GET", f"/v0/routers/{name}")
        router = self.world.routers.get(name)
        if router is None:
            assert (status, answer["error"]["code"]) == (404, "router_not_found")
            return
        self.world.drain(router.dest, self.target.now())
        assert (status, answer["source"], answer["dest"]) == (200, router.source, router.dest)
        assert answer["forwarded_total"] == router.total

    async def step_drop_router(self, step: Step) -> None:
        name = step.pick(0, list(ROUTERS))
        status, answer = await self.ask("DELETE", f"/v0/routers/{name}")
        known = self.world.routers.pop(name, None) is not None
        assert (status, answer) == (200, {"router": name, "deleted": known})

    # Time and crashes

    async def step_wait(self, step: Step) -> None:
        self.target.wait(step.pick(0, (1, 100, 499, 500, 501, 1000, 1001, 3000, 120_000)))

    async def step_restart(self, step: Step) -> None:
        await self.target.restart(step.dice[0])
        self.story.append(f"restart {step.dice[0]}")
        for topic in self.world.topics.values():
            if not topic.settings.leases_durable:
                topic.jobs.leased.clear()


def _sent(record: Stored) -> dict[str, Any]:
    fields = {"data": record.data, "tag": record.tag, "node": record.node, "meta": record.meta}
    return {name: value for name, value in fields.items() if value is not None or name == "data"}
