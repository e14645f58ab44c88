"""Random principals, rules and calls: every route and every other door decides as a small model of the rules does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from kio.index import load_request_schema

from mainstem.api import routes as R
from mainstem.api.access import ALLOW, DENY, LITERAL, PREFIXED
from mainstem.api.route import Route, Scope
from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.passwords import parse_users
from mainstem.broker.groups.offsets import OffsetToCommit
from mainstem.broker.transactions.service import ProducerStamp
from mainstem.ledger.access_rules import AccessRule
from tests.doors.http.watching import EventStream, WebSocket
from tests.doors.kafka.messages import make
from tests.doors.kafka.requests import fetch, metadata
from tests.support.batches import batch

from .test_all_doors import WRITE, House, basic, house, produced

ROUNDS = 12

TOPIC, GROUP, CLUSTER, ID = 2, 3, 4, 5
QUEUE, ROUTER, TABLE, SPACE, SUBJECT, BUCKET = 101, 102, 103, 104, 105, 106
ALL, READ, WRITES, CREATE, DELETE, ALTER, DESCRIBE, SHOW_CONFIGS, ALTER_CONFIGS, IDEMPOTENT = (
    *range(2, 9),
    *range(10, 13),
)


_IMPLIED_BY = {DESCRIBE: (READ, WRITES, DELETE, ALTER), SHOW_CONFIGS: (ALTER_CONFIGS,)}
_ALSO = {QUEUE: (QUEUE, TOPIC), TABLE: (TABLE, TOPIC)}  # the rules of the topic hold for these as well


class Model:
    """What one client may do, by the rules that are about it. A denial wins; what nothing allows is denied."""

    def __init__(self, user: str, rules: Iterable[AccessRule], scopes: int = 0, prefixes: Any = ()) -> None:
        self.has_key = bool(scopes)
        self.rules = [
            (
                rule.resource_type,
                rule.resource_name,
                rule.pattern_type == PREFIXED,
                rule.operation,
                rule.permission,
            )
            for rule in rules
            if rule.principal in (f"User:{user}", "User:*") and rule.host in ("*", "")
        ]
        reads, administers = (READ, DESCRIBE, SHOW_CONFIGS), (CREATE, ALTER, ALTER_CONFIGS)
        granted: list[tuple[int, Iterable[int], Iterable[int]]] = [
            (1, (TOPIC, GROUP, ROUTER, TABLE, ID, SPACE, SUBJECT, BUCKET), reads),
            (2, (TOPIC,), (WRITES, CREATE)),
            (2, (ID,), (WRITES, DESCRIBE)),
            (2, (SUBJECT, BUCKET), (WRITES,)),
            (4, (TOPIC, ROUTER, SUBJECT, BUCKET), (DELETE,)),
            (8, (TOPIC, ROUTER, SUBJECT, BUCKET), administers),
            (8, (TABLE, SPACE), (*administers, DELETE)),
            (8, (GROUP,), (DELETE, ALTER_CONFIGS)),
            (8, (ID,), (ALTER,)),
        ]
        for scope, kinds, operations in granted:
            for kind in kinds if scopes & scope else ():
                for name in prefixes or ("*",):
                    self.rules += [(kind, name, bool(prefixes), one, ALLOW) for one in operations]
        if scopes & 2:
            self.rules.append((CLUSTER, "kafka-cluster", False, IDEMPOTENT, ALLOW))
        if scopes & 8 and not prefixes:
            self.rules.append((CLUSTER, "kafka-cluster", False, ALL, ALLOW))

    def _matching(self, kind: int, name: str) -> list[tuple[int, int]]:
        return [
            (operation, permission)
            for about, named, prefixed, operation, permission in self.rules
            if about in _ALSO.get(kind, (kind,))
            and (name.startswith(named) if prefixed else named in (name, "*"))
        ]

    def denied(self, operation: int, kind: int, name: str) -> bool:
        return any(one in (operation, ALL) and say == DENY for one, say in self._matching(kind, name))

    def may(self, operation: int, kind: int, name: str) -> bool:
        by = (operation, ALL, *_IMPLIED_BY.get(operation, ()))
        allowed = any(one in by and say == ALLOW for one, say in self._matching(kind, name))
        return allowed and not self.denied(operation, kind, name)

    def some(self, operation: int, kind: int) -> bool:
        """Whether there could be a resource of this type that it may do this to."""
        names = {
            named + "\x1f" * prefixed if named != "*" else "\x1f" for _, named, prefixed, _, _ in self.rules
        }
        return any(self.may(operation, kind, name) for name in names)


# What exists: names that begin with a, and names that begin with b

LOGS, QUEUES, BRIEF, NEW = ("a.t", "b.t"), ("a.q", "b.q"), ("a.d", "b.d", "b.e"), ("a.new", "b.new")
TOPICS = (*LOGS, *QUEUES, *BRIEF)
READ_BY = {"a.g": ("a.t",), "b.g": ("b.t",), "a.both": ("a.t", "b.t"), "x.a": ("a.t",)}
WRITTEN_BY = {"a.x": ("a.t",), "b.x": ("b.t",), "x.a": ("a.t",)}
ENDS = {"a.r": ("a.t", "a.d"), "b.r": ("b.t", "b.d"), "a.cross": ("a.t", "b.e")}
SPACES = ("a", "b")
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "x", "type": "long", "required": False}]}
FREE = (("default", "a_f"), ("default", "b_f"), ("a", "b_f"), ("b", "a_f"))  # tables that show no topic


def subject(space: str, table: str) -> str:
    """A table as rules name it."""
    if (space, table) in SHOWN:
        return SHOWN[space, table]
    return table if space == "default" else f"{space}.{table}"


SHOWN = {("default", "a_t"): "a.t", ("default", "b_t"): "b.t"}


class Call(NamedTuple):
    """A request, and whether the model lets this client make it: by status, or by what a list shows."""

    path: str
    allowed: Callable[[Model], bool]
    body: Any = None
    listed: Callable[[Any], set[str]] | None = None
    shows: Callable[[Model], set[str]] | None = None
    hidden: Callable[[Model], bool] | None = None  # 404 instead of 403


def on(kind: int, *operations: int, among: tuple[str, ...] = TOPICS, body: Any = None) -> Any:
    """A route whose path names one resource."""

    def made(route: Route[Any], chance: random.Random) -> Call:
        name = chance.choice(among)
        return Call(route.url(name), lambda who: all(who.may(one, kind, name) for one in operations), body)

    return made


def on_cluster(operation: int, body: Any = None) -> Any:
    def made(route: Route[Any], chance: random.Random) -> Call:
        path = route.url(*["none"] * route.path.count("{"))
        return Call(path, lambda who: who.may(operation, CLUSTER, "kafka-cluster"), body)

    return made


def some(operation: int, kind: int, body: Any = None) -> Any:
    return lambda route, chance: Call(route.path, lambda who: who.some(operation, kind), body)


def free(*parameters: str) -> Any:
    return lambda route, chance: Call(route.url(*parameters), lambda who: True)


def creates(who: Model, topic: str) -> bool:
    exists = topic in TOPICS
    return exists or who.may(CREATE, CLUSTER, "kafka-cluster") or who.may(CREATE, TOPIC, topic)


def sees(who: Model, *topics: str) -> bool:
    return all(who.may(DESCRIBE, TOPIC, name) for name in topics)


def put_topic(route: Route[Any], chance: random.Random) -> Call:
    name, letters = chance.choice((*LOGS, *NEW)), chance.choice((None, "a.dl", "b.dl"))

    def allowed(who: Model) -> bool:
        into = letters is None or who.may(ALTER_CONFIGS, TOPIC, letters) or who.may(WRITES, TOPIC, letters)
        return who.may(ALTER_CONFIGS, TOPIC, name) and creates(who, name) and into

    return Call(route.url(name), allowed, {"dead_letter": letters})


def patch_settings(route: Route[Any], chance: random.Random) -> Call:
    name, more = chance.choice(TOPICS), chance.choice((None, 1))
    body = {"settings": {"retention.ms": "1000000000"}} if more is None else {"partitions": 1}

    def allowed(who: Model) -> bool:
        return who.may(ALTER_CONFIGS, TOPIC, name) and (more is None or who.may(ALTER, TOPIC, name))

    return Call(route.url(name), allowed, body)


def write(body: Any) -> Any:
    def made(route: Route[Any], chance: random.Random) -> Call:
        name = chance.choice((*LOGS, *NEW))
        return Call(route.url(name), lambda who: who.may(WRITES, TOPIC, name) and creates(who, name), body)

    return made


def requeue(route: Route[Any], chance: random.Random) -> Call:
    name, to = chance.choice(QUEUES), chance.choice((None, *QUEUES))

    def allowed(who: Model) -> bool:
        here = who.may(WRITES, QUEUE, name) and who.may(DELETE, QUEUE, name)
        return here and (to is None or who.may(WRITES, TOPIC, to))

    return Call(route.url(name), allowed, {"seqs": [], "queue": to})


# Groups and transactions: by their names; for keys also by all of their topics, unless a rule denies it


def covered(who: Model, operation: int, kind: int, name: str, topics: tuple[str, ...]) -> bool:
    if who.may(operation, kind, name):
        return True
    by_topics = who.has_key and who.some(operation, kind) and not who.denied(operation, kind, name)
    return by_topics and sees(who, *topics)


def group_seen(who: Model, group: str) -> bool:
    return covered(who, DESCRIBE, GROUP, group, READ_BY[group]) and sees(who, *READ_BY[group])


def get_group(route: Route[Any], chance: random.Random) -> Call:
    name = chance.choice((*READ_BY,))
    return Call(
        route.url(name), lambda who: who.some(READ, GROUP), hidden=lambda who: not group_seen(who, name)
    )


def list_groups(route: Route[Any], chance: random.Random) -> Call:
    return Call(
        route.path,
        lambda who: who.some(READ, GROUP),
        listed=lambda body: {row["group"] for row in body["groups"]} & {*READ_BY},
        shows=lambda who: {name for name in READ_BY if group_seen(who, name)},
    )


def delete_group(route: Route[Any], chance: random.Random) -> Call:
    name = chance.choice((*READ_BY,))
    return Call(
        route.url(name),
        lambda who: who.some(DELETE, GROUP) and covered(who, DELETE, GROUP, name, READ_BY[name]),
    )


def move_group(operation: int, body: Callable[[str], Any]) -> Any:
    def made(route: Route[Any], chance: random.Random) -> Call:
        name, topic = chance.choice((*READ_BY,)), chance.choice(LOGS)

        def allowed(who: Model) -> bool:
            group = who.some(operation, GROUP) and covered(who, operation, GROUP, name, READ_BY[name])
            return group and who.may(READ, TOPIC, topic)

        return Call(route.url(name), allowed, body(topic))

    return made


def in_group(operation: int, body: Any) -> Any:
    def made(route: Route[Any], chance: random.Random) -> Call:
        name = chance.choice((*READ_BY,))
        return Call(
            route.url(name),
            lambda who: who.some(operation, GROUP) and covered(who, operation, GROUP, name, READ_BY[name]),
            body,
        )

    return made


def transact(route: Route[Any], chance: random.Random) -> Call:
    """Writes without records, and offsets of a partition that does not exist: checked first, then refused."""
    topic, group, read = chance.choice(LOGS), chance.choice((*READ_BY,)), chance.choice(LOGS)
    if chance.random() < 0.5:
        writes = [{"topic": topic, "records": []}]
        return Call(
            route.path,
            lambda who: who.some(WRITES, TOPIC) and who.may(WRITES, TOPIC, topic),
            {"transaction": "x", "key": "k", "writes": writes},
        )
    offsets = [{"group": group, "offsets": [{"topic": read, "partition": 99, "offset": 0}]}]
    return Call(
        route.path,
        lambda who: (
            who.some(WRITES, TOPIC)
            and covered(who, READ, GROUP, group, READ_BY[group])
            and who.may(READ, TOPIC, read)
        ),
        {"transaction": "x", "key": "k", "offsets": offsets},
    )


def consumers(route: Route[Any], chance: random.Random) -> Call:
    topic = chance.choice(LOGS)
    return Call(
        route.url(topic),
        lambda who: who.may(READ, TOPIC, topic),
        listed=lambda body: {row["group"] for row in body["consumers"]} & {*READ_BY},
        shows=lambda who: {name for name in READ_BY if topic in READ_BY[name] and group_seen(who, name)},
    )


def list_transactions(route: Route[Any], chance: random.Random) -> Call:
    return Call(
        route.path,
        lambda who: who.some(READ, TOPIC),
        listed=lambda body: {row["transaction"] for row in body["transactions"]} & {*WRITTEN_BY},
        shows=lambda who: {id for id in WRITTEN_BY if covered(who, DESCRIBE, ID, id, WRITTEN_BY[id])},
    )


def abort(route: Route[Any], chance: random.Random) -> Call:
    id = chance.choice((*WRITTEN_BY,))
    return Call(
        route.url(id), lambda who: who.some(ALTER, ID) and covered(who, ALTER, ID, id, WRITTEN_BY[id])
    )


# Lists


def list_topics(field: str, among: tuple[str, ...] = TOPICS) -> Any:
    def made(route: Route[Any], chance: random.Random) -> Call:
        return Call(
            route.path,
            lambda who: who.some(READ, TOPIC),
            listed=lambda body: {row["topic"] for row in body[field]} & {*among},
            shows=lambda who: {name for name in among if sees(who, name)},
        )

    return made


def list_routers(route: Route[Any], chance: random.Random) -> Call:
    return Call(
        route.path,
        lambda who: who.some(READ, ROUTER),
        listed=lambda body: {row["router"] for row in body["routers"]},
        shows=lambda who: {
            name for name in ENDS if who.may(DESCRIBE, ROUTER, name) and sees(who, *ENDS[name])
        },
    )


def router(operation: int) -> Any:
    def made(route: Route[Any], chance: random.Random) -> Call:
        name = chance.choice((*ENDS,))
        return Call(route.url(name), lambda who: who.may(operation, ROUTER, name) and sees(who, *ENDS[name]))

    return made


def put_router(route: Route[Any], chance: random.Random) -> Call:
    name, source, dest = chance.choice((*ENDS,)), chance.choice(LOGS), chance.choice((*BRIEF, *NEW))

    def end(who: Model, operation: int, topic: str) -> bool:
        return (who.may(ALTER_CONFIGS, TOPIC, topic) or who.may(operation, TOPIC, topic)) and creates(
            who, topic
        )

    def allowed(who: Model) -> bool:
        return who.may(CREATE, ROUTER, name) and end(who, READ, source) and end(who, WRITES, dest)

    # Of another shape than the rights need: it is refused after the check, and the router stays as it is.
    return Call(route.url(name), allowed, {"source": source, "dest": dest, "filter": 5})


def post_watch(route: Route[Any], chance: random.Random) -> Call:
    names = chance.sample(LOGS, chance.randint(1, 2))
    body: Any = {"topics": {name: {} for name in names}}
    return Call(route.path, lambda who: all(who.may(READ, TOPIC, name) for name in names), body)


def sources(route: Route[Any], chance: random.Random) -> Call:
    name = chance.choice(LOGS)
    return Call(route.path, lambda who: who.may(READ, TOPIC, name), {"topic": name, "from": 0})


def report(route: Route[Any], chance: random.Random) -> Call:
    names = chance.sample(LOGS, chance.randint(1, 2))
    body = {
        "pipeline": "+".join(sorted(names)),
        "run": "r",
        "state": "running",
        "started_ms": 0,
        "topics": names,
    }
    return Call(route.path, lambda who: all(who.may(WRITES, TOPIC, name) for name in names), body)


def list_pipelines(route: Route[Any], chance: random.Random) -> Call:
    told: set[str] = set()

    def listed(body: Any) -> set[str]:
        told.update(row["pipeline"] for row in body["pipelines"])
        return told

    return Call(
        route.path,
        lambda who: who.some(READ, TOPIC),
        listed=listed,
        shows=lambda who: {name for name in told if sees(who, *name.split("+"))},
    )


# The Iceberg catalog. Before its names it asks for the operation on some table.


def space_seen(who: Model, space: str) -> bool:
    tables = [*FREE, *SHOWN]
    inside = any(who.may(DESCRIBE, TABLE, subject(*one)) for one in tables if one[0] == space)
    return space == "default" or who.may(DESCRIBE, SPACE, space) or inside


def look_at_space(route: Route[Any], chance: random.Random) -> Call:
    space = chance.choice(("default", *SPACES))
    return Call(
        route.url(space), lambda who: who.some(READ, TABLE), hidden=lambda who: not space_seen(who, space)
    )


def list_spaces(route: Route[Any], chance: random.Random) -> Call:
    return Call(
        route.path,
        lambda who: who.some(READ, TABLE),
        listed=lambda body: {".".join(levels) for levels in body["namespaces"]},
        shows=lambda who: {space for space in ("default", *SPACES) if space_seen(who, space)},
    )


def list_tables(route: Route[Any], chance: random.Random) -> Call:
    space = chance.choice(("default", *SPACES))
    return Call(
        route.url(space),
        lambda who: who.some(READ, TABLE),
        listed=lambda body: {row["name"] for row in body["identifiers"]},
        shows=lambda who: {
            one[1] for one in (*FREE, *SHOWN) if one[0] == space and who.may(DESCRIBE, TABLE, subject(*one))
        },
    )


def list_views(route: Route[Any], chance: random.Random) -> Call:
    return Call(route.url(chance.choice(("default", *SPACES))), lambda who: who.some(READ, TABLE))


def query_topic(route: Route[Any], chance: random.Random) -> Call:
    topic = chance.choice(TOPICS)
    allowed = lambda who: who.some(READ, TOPIC) and who.may(READ, TOPIC, topic)  # noqa: E731
    return Call(route.path, allowed, {"query": f'DESCRIBE "{topic}"'})


def create_space(route: Route[Any], chance: random.Random) -> Call:
    space = chance.choice(SPACES)
    allowed = lambda who: who.some(ALTER, TABLE) and who.may(CREATE, SPACE, space)  # noqa: E731
    return Call(route.path, allowed, {"namespace": [space]})


def change_space(operation: int, body: Any = None) -> Any:
    def made(route: Route[Any], chance: random.Random) -> Call:
        space = chance.choice(SPACES)
        return Call(
            route.url(space), lambda who: who.some(ALTER, TABLE) and who.may(operation, SPACE, space), body
        )

    return made


def table(before: int, operation: int, body: Any = None, new: int = 0) -> Any:
    def made(route: Route[Any], chance: random.Random) -> Call:
        one = chance.choice((*FREE, *SHOWN, ("a", "none"), ("default", "b_none")))
        wanted = operation if one in FREE or one in SHOWN else new or operation
        return Call(
            route.url(*one),
            lambda who: who.some(before, TABLE) and who.may(wanted, TABLE, subject(*one)),
            body,
        )

    return made


def create_table(more: Any) -> Any:
    def made(route: Route[Any], chance: random.Random) -> Call:
        space, name = chance.choice(FREE)
        return Call(
            route.url(space),
            lambda who: who.some(ALTER, TABLE) and who.may(CREATE, TABLE, subject(space, name)),
            {"name": name, **more},
        )

    return made


def rename(route: Route[Any], chance: random.Random) -> Call:
    (space, name), (to_space, to_name) = chance.sample(FREE, 2)
    body = {
        "source": {"namespace": [space], "name": name},
        "destination": {"namespace": [to_space], "name": to_name},  # it exists, so nothing is renamed
    }

    def allowed(who: Model) -> bool:
        source = who.may(ALTER, TABLE, subject(space, name))
        return who.some(ALTER, TABLE) and source and who.may(CREATE, TABLE, subject(to_space, to_name))

    return Call(route.path, allowed, body)


def commit_some(route: Route[Any], chance: random.Random) -> Call:
    named = chance.sample(FREE, 2)
    changes = [
        {"identifier": {"namespace": [space], "name": name}, "requirements": [], "updates": []}
        for space, name in named
    ]

    def allowed(who: Model) -> bool:
        return who.some(ALTER, TABLE) and all(who.may(ALTER, TABLE, subject(*one)) for one in named)

    return Call(route.path, allowed, {"table-changes": changes})


# The schema registry

SUBJECTS = ("a.s", "b.s", ":.a:a.s")
OTHER_SPELLINGS = {":.:a.s": "a.s", ":.:b.s": "b.s"}  # of the same subjects: the same rules hold
SHARED_BY = ("a.s", "b.s")  # have the same schema, of id 1


def registered(*operations: int, body: Any = None, more: str = "") -> Any:
    """A route whose path names a subject, maybe in another spelling, and maybe a version."""

    def made(route: Route[Any], chance: random.Random) -> Call:
        written = chance.choice((*SUBJECTS, *OTHER_SPELLINGS))
        name = OTHER_SPELLINGS.get(written, written)
        path = route.url(*(written, "1")[: route.path.count("{")]) + more
        return Call(path, lambda who: all(who.may(one, SUBJECT, name) for one in operations), body)

    return made


def put_table(route: Route[Any], chance: random.Random) -> Call:
    """The columns may come from a subject, which the client must be able to read."""
    name, other = chance.choice(BRIEF), chance.choice((None, *SUBJECTS))
    schema = {"schema": {"subject": other}} if other else {}
    return Call(
        route.url(name),
        lambda who: who.may(ALTER_CONFIGS, TABLE, name) and (not other or who.may(READ, SUBJECT, other)),
        {"enabled": False, **schema},
    )


def with_reference(route: Route[Any], chance: random.Random) -> Call:
    name, other = chance.choice(SUBJECTS), chance.choice(SUBJECTS)
    body = {"schema": '"bogus"', "references": [{"name": "x", "subject": other, "version": 1}]}
    return Call(
        route.url(name),
        lambda who: who.may(WRITES, SUBJECT, name) and who.may(READ, SUBJECT, beside(name, other)),
        body,
    )


def beside(name: str, other: str) -> str:
    """What a reference names: in the context of the schema, unless it says which."""
    return f":.a:{other}" if name.startswith(":.a:") and not other.startswith(":") else other


def list_subjects(route: Route[Any], chance: random.Random) -> Call:
    return Call(
        route.path,
        lambda who: who.some(READ, SUBJECT),
        listed=set,
        shows=lambda who: {name for name in SUBJECTS if who.may(DESCRIBE, SUBJECT, name)},
    )


def list_schemas(route: Route[Any], chance: random.Random) -> Call:
    return Call(
        route.path,
        lambda who: who.some(READ, SUBJECT),
        listed=lambda body: {row["subject"] for row in body},
        shows=lambda who: {name for name in SUBJECTS if who.may(READ, SUBJECT, name)},
    )


def schema(route: Route[Any], chance: random.Random) -> Call:
    """A schema by its id: who may read one of its subjects finds it."""
    unreadable = lambda who: not any(who.may(READ, SUBJECT, name) for name in SHARED_BY)  # noqa: E731
    return Call(route.url("1"), lambda who: who.some(READ, SUBJECT), hidden=unreadable)


def schema_by_guid(route: Route[Any], chance: random.Random) -> Call:
    unreadable = lambda who: not any(who.may(READ, SUBJECT, name) for name in SUBJECTS)  # noqa: E731
    return Call(route.url(GUID), lambda who: who.some(READ, SUBJECT), hidden=unreadable)


GUID = "f00d19c3-bac9-a177-6ce5-2987d4c27823"  # of the schema "string"
_SCHEMA_BODY = {"schema": '"string"'}

_SETTLE = {"node": "n", "seqs": []}
_WRONG: Any = []  # no body that the route takes: rights are checked first, and then it is refused
CALLS: dict[Route[Any], Callable[[Route[Any], random.Random], Call]] = {
    R.LIST_TOPICS: list_topics("topics"),
    R.GET_TOPIC: on(TOPIC, READ),
    R.PUT_TOPIC: put_topic,
    R.DELETE_TOPIC: on(TOPIC, DELETE, among=BRIEF),
    R.POST_RECORDS: write(WRITE),
    R.POST_DIFF: on(TOPIC, READ),
    R.POST_DELETE: on(TOPIC, DELETE, body={"before_seq": 0}),
    R.POST_ERASE: on(TOPIC, DELETE, body=_WRONG),
    R.LIST_ERASURES: on_cluster(ALTER),
    R.GET_ERASURE: lambda route, chance: Call(route.url("none"), lambda who: who.some(DELETE, TOPIC)),
    R.POST_CLAIM: on(QUEUE, READ, WRITES, among=QUEUES, body={"node": "n"}),
    R.POST_ACK: on(QUEUE, WRITES, among=QUEUES, body=_SETTLE),
    R.POST_NACK: on(QUEUE, WRITES, among=QUEUES, body=_SETTLE),
    R.POST_EXTEND: on(QUEUE, WRITES, among=QUEUES, body={**_SETTLE, "lease_ms": 1000}),
    R.GET_WORK: on(QUEUE, READ, WRITES, among=QUEUES),
    R.GET_OFFSETS: on(TOPIC, READ),
    R.GET_BATCHES: on(TOPIC, READ),
    R.POST_BACKUP: on_cluster(ALTER, _WRONG),
    R.POST_PLAN: on_cluster(ALTER, _WRONG),
    R.POST_PUBLISH: on_cluster(ALTER, _WRONG),
    R.EXTEND_TASK: on_cluster(ALTER, _WRONG),
    R.RELEASE_TASK: on_cluster(ALTER, _WRONG),
    R.POST_COLLECT: on_cluster(ALTER),
    R.REPORT_DRIVER: on_cluster(ALTER, _WRONG),
    R.GET_LAKE_STATUS: list_topics("topics", LOGS),
    R.LIST_PIPELINES: list_pipelines,
    R.REPORT_PIPELINE: report,
    R.POST_SOURCES: sources,
    R.POST_BATCHES: on(TOPIC, WRITES, among=LOGS, body=bytes(batch(b"1")[0])),
    R.BEGIN_SINK_TASK: some(WRITES, TOPIC, _WRONG),
    R.COMMIT_SINK: some(WRITES, TOPIC, _WRONG),
    R.EXTEND_SINK: some(WRITES, TOPIC, _WRONG),
    R.ABORT_SINK: some(WRITES, TOPIC, _WRONG),
    R.COMMIT_OFFSETS: move_group(
        READ, lambda topic: {"offsets": [{"topic": topic, "partition": 99, "offset": 0}]}
    ),
    R.GET_SETTINGS: on(TOPIC, READ),
    R.PATCH_SETTINGS: patch_settings,
    R.POST_RAW: write(bytes(batch(b"1")[0])),
    R.JOIN_GROUP: move_group(READ, lambda topic: {"topics": [topic], "assignor": "unknown"}),
    R.HEARTBEAT_GROUP: in_group(READ, {"member_id": "m", "epoch": 1}),
    R.LEAVE_GROUP: in_group(READ, {"member_id": "m"}),
    R.COMMIT_TRANSACTION: transact,
    R.LIST_GROUPS: list_groups,
    R.GET_GROUP: get_group,
    R.GET_GROUP_HISTORY: get_group,
    R.DELETE_GROUP: delete_group,
    R.RESET_GROUP: move_group(DELETE, lambda topic: {"topic": topic, "to": "earliest", "dry_run": True}),
    R.LIST_RATES: on_cluster(SHOW_CONFIGS),
    R.PUT_RATE: on_cluster(ALTER_CONFIGS, _WRONG),
    R.DELETE_RATE: on_cluster(ALTER_CONFIGS),
    R.GET_OVERVIEW: some(READ, TOPIC),
    R.GET_CLIENTS: on_cluster(DESCRIBE),
    R.GET_SERVER_HISTORY: some(READ, TOPIC),
    R.GET_TOPIC_HISTORY: on(TOPIC, READ),
    R.LIST_SETTINGS: some(READ, TOPIC),
    R.GET_TOPIC_SUMMARIES: list_topics("topics"),
    R.GET_KEY: free(),
    R.GET_STORAGE: some(READ, TOPIC),
    R.GET_TOPIC_STORAGE: on(TOPIC, READ),
    R.GET_MESSAGES: on(TOPIC, READ),
    R.GET_CONSUMERS: consumers,
    R.GET_LEASES: on(QUEUE, READ, among=QUEUES),
    R.POST_REQUEUE: requeue,
    R.LIST_TRANSACTIONS: list_transactions,
    R.ABORT_TRANSACTION: abort,
    R.LIST_ROUTERS: list_routers,
    R.GET_ROUTER: router(READ),
    R.PUT_ROUTER: put_router,
    R.DELETE_ROUTER: router(DELETE),
    R.POST_WATCH: post_watch,
    R.GET_WEBSOCKET: free(),  # its commands: see `at_other_doors`
    R.GET_HEALTH: free(),
    R.GET_METRICS: some(READ, TOPIC),
    R.PUT_TABLE: put_table,
    R.POST_SQL: query_topic,
    R.GET_TABLE: on(TABLE, READ),
    R.DELETE_TABLE: on(TABLE, ALTER_CONFIGS, among=BRIEF),
    R.GET_TABLE_WORK: on_cluster(ALTER),
    R.SETTLE_TABLES: on_cluster(ALTER),
    R.COMMIT_TABLES: on_cluster(ALTER, _WRONG),
    R.POST_OAUTH_TOKEN: free(),
    R.SIGN_S3_REQUEST: some(READ, TABLE, {"uri": "http://127.0.0.1/", "method": "GET"}),
    R.GET_CATALOG_CONFIG: some(READ, TABLE),
    R.LIST_NAMESPACES: list_spaces,
    R.CREATE_NAMESPACE: create_space,
    R.GET_NAMESPACE: look_at_space,
    R.HEAD_NAMESPACE: look_at_space,
    R.DROP_NAMESPACE: change_space(DELETE),
    R.POST_PROPERTIES: change_space(ALTER, {"updates": {}, "removals": []}),
    R.LIST_CATALOG_TABLES: list_tables,
    R.CREATE_CATALOG_TABLE: create_table({"schema": SCHEMA}),
    R.REGISTER_CATALOG_TABLE: create_table({"metadata-location": "nowhere"}),
    R.GET_CATALOG_TABLE: table(READ, READ),
    R.HEAD_CATALOG_TABLE: table(READ, READ),
    R.DROP_CATALOG_TABLE: table(ALTER, DELETE),
    R.COMMIT_CATALOG_TABLE: table(ALTER, ALTER, {"requirements": [], "updates": []}, new=CREATE),
    R.RENAME_CATALOG_TABLE: rename,
    R.COMMIT_CATALOG: commit_some,
    R.LIST_VIEWS: list_views,
    R.CREATE_VIEW: create_table({}),
    R.GET_VIEW: table(READ, READ),
    R.HEAD_VIEW: table(READ, READ),
    R.COMMIT_VIEW: table(ALTER, ALTER, {"requirements": [], "updates": []}),
    R.DROP_VIEW: table(ALTER, DELETE),
    R.RENAME_VIEW: rename,
    R.LIST_NAMESPACES_OF_TOPICS: on_cluster(DESCRIBE),
    R.GET_NAMESPACE_POLICIES: on_cluster(DESCRIBE),
    R.PUT_NAMESPACE: on_cluster(ALTER, _WRONG),
    R.DELETE_NAMESPACE: on_cluster(ALTER),
    R.ISSUE_S3_CREDENTIALS: free(),
    R.LIST_KEYS: on_cluster(DESCRIBE),
    R.CREATE_KEY: on_cluster(ALTER, _WRONG),
    R.ROTATE_KEY: on_cluster(ALTER),
    R.REVOKE_KEY: on_cluster(ALTER),
    R.LIST_USERS: on_cluster(DESCRIBE),
    R.PUT_USER: on_cluster(ALTER, _WRONG),
    R.DELETE_USER: on_cluster(ALTER),
    R.LIST_RULES: on_cluster(DESCRIBE),
    R.ADD_RULES: on_cluster(ALTER, _WRONG),
    R.DELETE_RULES: on_cluster(ALTER, _WRONG),
    R.LIST_SUBJECTS: list_subjects,
    R.LOOK_UP_SCHEMA: registered(READ, body=_SCHEMA_BODY),
    R.DELETE_SUBJECT: registered(
        DELETE, more="?permanent=true"
    ),  # which is refused: it was not deleted softly
    R.LIST_SCHEMA_VERSIONS: registered(READ),
    R.REGISTER_SCHEMA: with_reference,
    R.GET_SCHEMA_VERSION: registered(READ),
    R.GET_VERSION_TEXT: registered(READ),
    R.LIST_SCHEMA_REFERRERS: registered(READ),
    R.DELETE_SCHEMA_VERSION: registered(DELETE, more="?permanent=true"),
    R.LIST_SCHEMAS: list_schemas,
    R.LIST_SCHEMA_TYPES: some(READ, SUBJECT),
    R.GET_SCHEMA: schema,
    R.GET_SCHEMA_TEXT: schema,
    R.LIST_ID_SUBJECTS: schema,
    R.LIST_ID_VERSIONS: schema,
    R.GET_SCHEMA_BY_GUID: schema_by_guid,
    R.LIST_GUID_IDS: schema_by_guid,
    R.CHECK_COMPATIBILITY: registered(READ, body=_SCHEMA_BODY),
    R.CHECK_SUBJECT_COMPATIBILITY: registered(READ, body=_SCHEMA_BODY),
    R.GET_REGISTRY_CONFIG: some(READ, SUBJECT),
    R.PUT_REGISTRY_CONFIG: on_cluster(ALTER_CONFIGS, _WRONG),
    R.DELETE_REGISTRY_CONFIG: on_cluster(ALTER_CONFIGS),
    R.GET_SUBJECT_CONFIG: registered(READ),
    R.PUT_SUBJECT_CONFIG: registered(ALTER_CONFIGS, body=_WRONG),
    R.DELETE_SUBJECT_CONFIG: registered(ALTER_CONFIGS),
    R.GET_REGISTRY_MODE: some(READ, SUBJECT),
    R.PUT_REGISTRY_MODE: on_cluster(ALTER_CONFIGS, _WRONG),
    R.DELETE_REGISTRY_MODE: on_cluster(ALTER_CONFIGS),
    R.GET_SUBJECT_MODE: registered(READ),
    R.PUT_SUBJECT_MODE: registered(ALTER_CONFIGS, body=_WRONG),
    R.DELETE_SUBJECT_MODE: registered(ALTER_CONFIGS),
    R.LIST_CONTEXTS: some(READ, SUBJECT),
    R.GET_CONSOLE: free(),
    R.GET_CONSOLE_ASSET: free("none"),
    R.GET_HEALTHZ: free(),
    R.GET_READY: free(),
    R.GET_CLUSTER: some(READ, TOPIC),
    R.GET_READYZ: free(),
    R.GET_OPENAPI: free(),
    R.GET_DOCS: free(),
}
_SESSIONS = {R.GET_WATCH}  # names a session that its owner began: see `at_other_doors`
_STREAMS = {R.GET_WORK}

# Differences that are intended:
# - HTTP asks for READ where Kafka asks for DESCRIBE to look at a topic, its offsets and its settings. Before it lists
#   or describes groups or tables it asks for READ on some of them, and for ALTER on some before it changes a table.
# - The prefixes of an API key cover a group or transaction by its topics as well as by its name. At the Kafka door,
#   which has no keys of its own, only the name counts.
# - Who may change the configuration of a topic may let dead letters and routers write to it and read it.


def test_the_walk_knows_every_route() -> None:
    """A new route needs a line in CALLS that says what its callers must be allowed to do."""
    assert {*CALLS, *_SESSIONS} == set(R.ROUTES)


class Client(NamedTuple):
    user: str  # as the model's rules name it
    headers: dict[str, str]
    text: str  # what AUTH takes
    login: tuple[str, str]  # by SASL PLAIN
    model: Model


async def test_every_route_and_door_decides_as_the_model_does(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    access = AccessOptions(
        users=tuple(parse_users("boss:boss,ann:ann,bob:bob")),
        logins=True,
        super_users=frozenset({"User:boss"}),
    )
    async with house(tmp_path, access) as doors:
        await prepare(doors)
        for _ in range(ROUNDS):
            rules = [rule(chance) for _ in range(chance.randrange(20))]
            await doors.broker.security.delete_rules(list(doors.broker.security.access_rules))
            await doors.broker.security.put_rules(rules)
            for who in await clients(doors, chance, rules):
                told = f"seed {seed}: {who.user} {who.model.rules}"
                for route, make_call in CALLS.items():
                    await restore(doors)
                    await at_http(doors, who, route, make_call(route, chance), told)
                await restore(doors)
                await at_other_doors(doors, who, chance, told)


def rule(chance: random.Random) -> AccessRule:
    kind = chance.choice(
        (TOPIC, TOPIC, TOPIC, GROUP, CLUSTER, ID, QUEUE, ROUTER, TABLE, SPACE, SUBJECT, SUBJECT)
    )
    name = chance.choice(
        ("*", "a", "b", "a.", "a.t", "b.q", "a.g", "a.x", "a.r", "a_f", "a.b_f", "x.a", "a.s")
    )
    name = "kafka-cluster" if kind == CLUSTER else name
    operation = chance.choice(
        (ALL, ALL, READ, WRITES, CREATE, DELETE, ALTER, DESCRIBE, SHOW_CONFIGS, ALTER_CONFIGS)
    )
    return AccessRule(
        kind,
        name,
        LITERAL if name == "*" else chance.choice((LITERAL, PREFIXED)),
        chance.choice(("User:ann", "User:bob", "User:key", "User:*")),
        chance.choice(("*", "*", "*", "10.0.0.1")),
        operation,
        chance.choice((ALLOW, ALLOW, DENY)),
    )


async def clients(doors: House, chance: random.Random, rules: list[AccessRule]) -> list[Client]:
    """Two users, and an API key of random rights."""
    found = [
        Client(user, basic(user, user), f"{user} {user}", (user, user), Model(user, rules))
        for user in ("ann", "bob")
    ]
    for old in doors.broker.administration.listed_keys():
        await doors.broker.security.revoke_key(old.id)
    scopes = chance.randint(1, 15)
    prefixes = chance.choice(((), ("a",), ("a.",), ("a.t", "b.q"), ("b",)))
    key, secret = await doors.broker.administration.create_key("key", Scope(scopes), prefixes)
    bearer = {"authorization": f"Bearer {secret}"}
    found.append(Client("key", bearer, secret, (key.id, secret), Model("key", rules, scopes, prefixes)))
    return found


async def prepare(doors: House) -> None:
    boss = basic("boss", "boss")
    ask = doors.api.client.request
    for name in LOGS:
        await doors.broker.create_topic(name)
        assert (await ask("PUT", f"/v0/topics/{name}/table", json={}, headers=boss)).status_code == 200
    for name in QUEUES:
        assert (
            await ask("PUT", f"/v0/topics/{name}", json={"type": "queue"}, headers=boss)
        ).status_code == 201
    assert (await ask("POST", "/v0/lake/tables/settle", headers=boss)).status_code == 200
    tables = (await ask("GET", "/iceberg/v1/namespaces/default/tables", headers=boss)).json()["identifiers"]
    assert {(row["namespace"][0], row["name"]) for row in tables} == {*SHOWN}
    for id in WRITTEN_BY:
        await begin_transaction(doors, id)
    for name in SUBJECTS:
        answer = await ask("POST", R.REGISTER_SCHEMA.url(name), json=_SCHEMA_BODY, headers=boss)
        assert answer.json()["guid"] == GUID, answer.text


async def begin_transaction(doors: House, id: str) -> None:
    """Open the transaction of an id."""
    broker = doors.broker
    stamp = ProducerStamp(id, *await broker.transactions.initialise(id, 900_000))
    await broker.transactions.add_partitions(stamp, [broker.stream(name) for name in WRITTEN_BY[id]])


async def restore(doors: House) -> None:
    """Make again what a call deleted, and delete what it made."""
    broker = doors.broker
    for name in NEW:
        if broker.streams.get(name) is not None:
            await broker.delete_topic(name)
    for name in BRIEF:
        if broker.streams.get(name) is None:
            await broker.create_topic(name)
    groups = doors.api.broker.groups
    for group, topics in READ_BY.items():
        if groups.topics_of(group) != {*topics}:
            await groups.commit(group, [OffsetToCommit(name, 0, 0) for name in topics])
    for id in WRITTEN_BY:
        if not broker.transactions.describe(id).partitions:
            await begin_transaction(doors, id)
    boss = basic("boss", "boss")
    client = doors.api.client
    if {info.name for info in broker.routers.all()} != {*ENDS}:
        for name, (source, dest) in ENDS.items():
            body = {"source": source, "dest": dest}
            answer = await client.put(f"/v0/routers/{name}", json=body, headers=boss)
            assert answer.status_code in (200, 201), answer.text
    for space in SPACES:
        if space not in broker.catalog.namespaces():
            await broker.catalog.create_namespace(space, {})
    for space, name in FREE:
        if name not in {one.name for one in broker.catalog.tables(space)}:
            await broker.catalog.create(space, {"name": name, "schema": SCHEMA})


async def at_http(doors: House, who: Client, route: Route[Any], call: Call, told: str) -> None:
    allowed = call.allowed(who.model)
    told = f"{route.method} {call.path} {call.body} allowed: {allowed}; {told}"
    if route in _STREAMS:
        async with EventStream(
            doors.api.context, call.path, accept="text/event-stream", **who.headers
        ) as stream:
            assert (stream.status == 403) != allowed, told
        return
    content: dict[str, Any] = {}
    if isinstance(call.body, bytes):
        content = {"content": call.body, "headers": {**who.headers, "content-type": R.OCTETS}}
    else:
        content = {"headers": who.headers} | ({} if call.body is None else {"json": call.body})
    # Not the client that checks the contract: some of these requests are invalid on purpose.
    answer = await httpx.AsyncClient.send(
        doors.api.client, doors.api.client.build_request(route.method, call.path, **content)
    )
    assert answer.status_code < 500, f"{answer.status_code} {answer.text[:300]} {told}"
    assert answer.status_code != 401, told
    if call.hidden is not None and allowed:
        assert (answer.status_code == 404) == call.hidden(who.model), f"{answer.status_code} {told}"
        return
    assert (answer.status_code == 403) != allowed, f"{answer.status_code} {answer.text[:300]} {told}"
    if allowed and call.listed is not None and call.shows is not None:
        assert answer.status_code == 200, f"{answer.text[:300]} {told}"
        listed = call.listed(answer.json())
        assert listed == call.shows(who.model), f"{listed} {told}"


async def at_other_doors(doors: House, who: Client, chance: random.Random, told: str) -> None:
    model, name = who.model, chance.choice(LOGS)
    reads, writes = model.may(READ, TOPIC, name), model.may(WRITES, TOPIC, name)
    told = f"{name} {told}"
    # WebSocket
    async with WebSocket(doors.api.context, **who.headers) as socket:
        answer = await socket.ask(op="subscribe", topic=name, tail=True)
        assert (answer["op"] == "subscribed") == reads, f"{answer} {told}"
        if reads:
            await socket.ask(op="unsubscribe")
        while (answer := await socket.ask(op="ping"))["op"] != "pong":
            continue
    async with WebSocket(doors.api.context, **who.headers) as socket:
        answer = await socket.ask(op="publish", topic=name, **WRITE)
        assert (answer["op"] == "ack") == writes, f"{answer} {told}"
    # Server-sent events
    if reads:
        body = {"topics": {name: {}}}
        url = (await doors.api.client.post("/v0/watch", json=body, headers=who.headers)).json()["stream_url"]
        async with EventStream(doors.api.context, url, **who.headers) as stream:
            assert stream.status == 200, told
        await denied(doors, who, name, url, told)
    # Text
    wire = await doors.text(who.text)
    try:
        assert ((await wire.ask(f"GET {name}")) != "ERR forbidden") == reads, told
        assert ((await wire.ask(f"PUT {name} 1")) == "OK") == writes, told
        assert ((await wire.ask(f"STATE {name}")) != "ERR forbidden") == sees(model, name), told
        assert ((await wire.ask(f"REGISTER {NEW[0]}")) == "OK") == creates(model, NEW[0]), told
    finally:
        await wire.close()
    await at_kafka(doors, who, name, told)


async def denied(doors: House, who: Client, name: str, url: str, told: str) -> None:
    """A session that a client began does not outlive its right to read."""
    deny = AccessRule(TOPIC, name, LITERAL, f"User:{who.user}", "*", READ, DENY)
    if deny in doors.broker.security.access_rules:
        return
    await doors.broker.security.put_rules([deny])
    async with EventStream(doors.api.context, url, **who.headers) as stream:
        assert stream.status == 403, told
    await doors.broker.security.delete_rules([deny])


_GROUP_COMMIT, _GROUP_OFFSETS, _JOIN = (
    load_request_schema(8, 8),
    load_request_schema(9, 7),
    load_request_schema(11, 7),
)


async def at_kafka(doors: House, who: Client, name: str, told: str) -> None:
    model = who.model
    reads, writes = model.may(READ, TOPIC, name), model.may(WRITES, TOPIC, name)
    wire = await doors.kafka(*who.login)
    try:
        assert (await produced(wire, name) == 0) == writes, told
        answer = await wire.ask(fetch(11, name, (0, 0)))
        assert (answer.responses[0].partitions[0].error_code == 0) == reads, told
        answer = await wire.ask(metadata(8, name, create=False))
        assert (answer.topics[0].error_code == 0) == sees(model, name), told
        for group in READ_BY:
            uses = model.may(READ, GROUP, group)
            position = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}
            position["committed_metadata"] = ""  # type: ignore[assignment]
            body = {
                "group_id": group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "group_instance_id": None,
            }
            topics = [{"name": READ_BY[group][0], "partitions": [position]}]
            answer = await wire.ask(make(_GROUP_COMMIT, {**body, "topics": topics}))
            committed = answer.topics[0].partitions[0].error_code == 0
            assert committed == (uses and model.may(READ, TOPIC, READ_BY[group][0])), f"{group} {told}"
            asked = {"group_id": group, "topics": None, "require_stable": False}
            answer = await wire.ask(make(_GROUP_OFFSETS, asked))
            assert (answer.error_code == 0) == model.may(DESCRIBE, GROUP, group), f"{group} {told}"
            if not answer.error_code:
                shown = {topic.name for topic in answer.topics}
                assert shown == {topic for topic in READ_BY[group] if sees(model, topic)}, f"{group} {told}"
            joining = {
                "group_id": group,
                "session_timeout": timedelta(seconds=10),
                "rebalance_timeout": timedelta(seconds=10),
                "member_id": "",
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            }
            answer = await wire.ask(make(_JOIN, joining))  # answered with a member id to come back with
            assert (answer.error_code != 30) == uses, f"{group} {told}"
    finally:
        await wire.close()


# What the walk found, each by itself


def _denial(kind: int, name: str, operation: int = ALL, user: str = "key") -> AccessRule:
    return AccessRule(kind, name, LITERAL, f"User:{user}", "*", operation, DENY)


async def _keyed(doors: House, scopes: int, *prefixes: str) -> dict[str, str]:
    _, secret = await doors.broker.administration.create_key("key", Scope(scopes), prefixes)
    return {"authorization": f"Bearer {secret}"}


def _logins() -> AccessOptions:
    return AccessOptions(
        users=tuple(parse_users("boss:boss")), logins=True, super_users=frozenset({"User:boss"})
    )


async def test_rules_about_queues_and_tables_hold_where_the_path_names_a_topic(tmp_path: Path) -> None:
    async with house(tmp_path, _logins()) as doors:
        ask, boss = doors.api.client.request, basic("boss", "boss")
        await ask("PUT", "/v0/topics/jobs", json={"type": "queue"}, headers=boss)
        key = await _keyed(doors, Scope.ALL)
        claim, table = ("POST", "/v0/topics/jobs/claim"), ("GET", "/v0/topics/jobs/table")
        assert (await ask(*claim, json={"node": "n"}, headers=key)).status_code == 200
        await doors.broker.security.put_rules([_denial(QUEUE, "jobs"), _denial(TABLE, "jobs")])
        assert (await ask(*claim, json={"node": "n"}, headers=key)).status_code == 403
        assert (await ask(*table, headers=key)).status_code == 403
        assert (await ask("GET", "/v0/topics/jobs", headers=key)).status_code == 200


async def test_a_denial_of_a_group_or_transaction_holds_for_keys_with_prefixes(tmp_path: Path) -> None:
    async with house(tmp_path, _logins()) as doors:
        ask = doors.api.client.request
        await prepare(doors)
        await restore(doors)
        key = await _keyed(doors, Scope.ALL, "a.")
        assert (await ask("GET", "/v0/groups/x.a", headers=key)).status_code == 200
        await doors.broker.security.put_rules([_denial(GROUP, "x.a"), _denial(ID, "x.a")])
        assert (await ask("GET", "/v0/groups/x.a", headers=key)).status_code == 404
        assert (await ask("DELETE", "/v0/groups/x.a", headers=key)).status_code == 403
        assert (await ask("POST", "/v0/transactions/x.a/abort", headers=key)).status_code == 403


async def test_streams_end_when_the_right_to_read_does(tmp_path: Path) -> None:
    async with house(tmp_path, _logins()) as doors:
        await doors.broker.create_topic("t")
        key = await _keyed(doors, Scope.READ)
        body = {"topics": {"t": {}}}
        url = (await doors.api.client.post("/v0/watch", json=body, headers=key)).json()["stream_url"]
        async with (
            EventStream(doors.api.context, url, **key) as stream,
            WebSocket(doors.api.context, **key) as socket,
        ):
            await stream.until("caught-up")
            await socket.ask(op="subscribe", topic="t")
            while (await socket.next())["op"] != "caught_up":
                continue
            await doors.broker.security.put_rules([_denial(TOPIC, "t", READ)])
            await doors.broker.append_values("t", [b"1"])
            told = await stream.until("error")
            assert told[-1].data["code"] == "forbidden"
            assert "record" not in {event.name for event in told}
            answer = await socket.next()
            assert (answer["op"], answer["code"]) == ("error", "forbidden")
            await stream.ended()


async def test_a_worker_gets_no_more_jobs_when_it_may_not_have_them(tmp_path: Path) -> None:
    async with house(tmp_path, _logins()) as doors:
        ask, boss = doors.api.client.request, basic("boss", "boss")
        await ask("PUT", "/v0/topics/jobs", json={"type": "queue"}, headers=boss)
        key = await _keyed(doors, Scope.READ | Scope.WRITE)
        async with EventStream(doors.api.context, "/v0/topics/jobs/work?node=n", **key) as stream:
            assert stream.status == 200
            await doors.broker.security.put_rules([_denial(QUEUE, "jobs")])
            await doors.broker.append_values("jobs", [b"1"])
            await stream.ended()
            sent = b"".join(message.get("body", b"") for message in stream.messages)
            assert b"event: error" in sent
            assert b"event: job" not in sent
        state = (await ask("GET", "/v0/topics/jobs", headers=boss)).json()["queue"]
        assert (state["ready"], state["in_flight"]) == (1, 0)


async def test_a_table_does_not_lie_in_the_folder_of_another_clients_table(tmp_path: Path) -> None:
    async with house(tmp_path, _logins()) as doors:
        await prepare(doors)
        await restore(doors)
        ask, boss = doors.api.client.request, basic("boss", "boss")
        key = await _keyed(doors, Scope.ALL, "a_", "a.")
        tables = "/iceberg/v1/namespaces/default/tables"
        theirs = (await ask("GET", f"{tables}/b_f", headers=boss)).json()
        folder, metadata_file = theirs["metadata"]["location"], theirs["metadata-location"]
        for place in (folder, f"{folder}/data", folder.rpartition("/")[0]):
            body = {"name": "a_new", "schema": SCHEMA, "location": place}
            assert (await ask("POST", tables, json=body, headers=key)).status_code == 403
            moved = {"requirements": [], "updates": [{"action": "set-location", "location": place}]}
            assert (await ask("POST", f"{tables}/a_f", json=moved, headers=key)).status_code == 403
        body = {"name": "a_new", "metadata-location": metadata_file}
        answer = await ask("POST", "/iceberg/v1/namespaces/default/register", json=body, headers=key)
        assert answer.status_code == 403
        body = {"name": "a_new", "schema": SCHEMA}
        assert (await ask("POST", tables, json=body, headers=key)).status_code == 200
        elsewhere = "/iceberg/v1/namespaces/b/tables"  # a name of its own in a namespace of others
        assert (await ask("POST", elsewhere, json=body, headers=key)).status_code == 403
