"""Deleting records (section 5 of the contract)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainstem.ledger.streams import MarkLost

from .conftest import Api, code

BOTH = pytest.mark.parametrize("durability", ["disk", "ephemeral"])


async def _filled(api: Api, durability: str = "disk") -> None:
    await api.put("t", durability=durability)
    tags = ["a:1", "a:2", "b:1", None, "a:1", "a*", "b:1"]
    await api.records("t", *[{"data": n, "tag": tag} if tag else {"data": n} for n, tag in enumerate(tags)])


async def _left(api: Api) -> list[int]:
    return [record["$seq"] for record in (await api.diff("t"))["records"]]


@BOTH
@pytest.mark.parametrize(
    ("body", "left"),
    [
        ({"before_seq": 3}, [3, 4, 5, 6, 7]),
        ({"before_seq": 0}, [1, 2, 3, 4, 5, 6, 7]),
        ({"before_seq": 1}, [1, 2, 3, 4, 5, 6, 7]),
        ({"before_seq": 8}, []),
        ({"before_seq": 2**63}, []),
        ({"match": ["tag", "Eq", "a:1"]}, [2, 3, 4, 6, 7]),
        ({"match": "a:1"}, [2, 3, 4, 6, 7]),
        ({"match": ["tag", "Glob", "a:*"]}, [3, 4, 6, 7]),
        ({"match": "a:*"}, [3, 4, 6, 7]),
        ({"match": ["tag", "Glob", "a**"]}, [1, 2, 3, 4, 5, 7]),
        ({"match": ["tag", "Eq", "a*"]}, [1, 2, 3, 4, 5, 7]),
        ({"match": "*"}, [4]),
        ({"match": "a:1", "before_seq": 5}, [2, 3, 4, 5, 6, 7]),
        ({"match": "none"}, [1, 2, 3, 4, 5, 6, 7]),
    ],
)
async def test_which_records_a_delete_removes(
    api: Api, body: dict[str, object], left: list[int], durability: str
) -> None:
    await _filled(api, durability)
    status, answer = await api.ask("POST", "/v0/topics/t/delete", body)
    assert status == 200
    assert list(answer) == ["topic", "deleted", "earliest_seq", "head_seq", "count", "bytes", "performance"]
    assert (answer["deleted"], answer["count"], answer["bytes"]) == (7 - len(left), len(left), len(left))
    assert (answer["head_seq"], answer["earliest_seq"]) == (7, left[0] if left else 8)
    assert await _left(api) == left
    assert (await api.diff("t"))["tombstone"] is None
    assert (await api.state("t"))["count"] == len(left)
    again = (await api.ask("POST", "/v0/topics/t/delete", body))[1]
    assert again["deleted"] == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"before_seq": None},
        {"before_seq": -1},
        {"before_seq": "3"},
        {"match": 5},
        {"match": []},
        {"match": ["tag", "Eq"]},
        {"match": ["node", "Eq", "x"]},
        {"match": ["tag", "Regex", "x"]},
        {"match": ["tag", "Glob", "a"]},
        {"match": ["tag", "Eq", 5]},
    ],
)
async def test_invalid_deletes_are_refused(api: Api, wrong: dict[str, object]) -> None:
    await _filled(api)
    assert code(await api.ask("POST", "/v0/topics/t/delete", wrong)) == (400, "invalid_request")
    assert len(await _left(api)) == 7


async def test_an_absent_topic_and_wrong_methods(api: Api) -> None:
    assert code(await api.ask("POST", "/v0/topics/t/delete", {"before_seq": 1})) == (404, "topic_not_found")
    for method in ("GET", "DELETE", "PUT"):
        assert code(await api.ask(method, "/v0/topics/t/delete")) == (405, "method_not_allowed")


async def test_later_records_are_not_touched(api: Api) -> None:
    await _filled(api)
    await api.ask("POST", "/v0/topics/t/delete", {"match": "a:1"})
    await api.records("t", {"data": 8, "tag": "a:1"})
    assert 8 in await _left(api)


async def test_bytes_stay_exact_when_sizes_differ(api: Api) -> None:
    await api.records("t", *[{"data": "x" * n, "tag": str(n % 3), "meta": {"n": n}} for n in range(200)])

    def size(numbers: list[int]) -> int:
        return sum(n + 2 + len(f'{{"n":{n}}}') for n in numbers)

    answer = (await api.ask("POST", "/v0/topics/t/delete", {"match": "1"}))[1]
    left = [n for n in range(200) if n % 3 != 1]
    assert (answer["count"], answer["bytes"]) == (len(left), size(left))
    answer = (await api.ask("POST", "/v0/topics/t/delete", {"before_seq": 101}))[1]
    left = [n for n in left if n >= 100]
    assert (answer["count"], answer["bytes"]) == (len(left), size(left))


async def test_a_delete_does_not_hide_earlier_damage(api: Api) -> None:
    await _filled(api)
    await api.broker.log.propose(MarkLost(api.broker.streams.of("t", 0), 2, 4))
    await api.ask("POST", "/v0/topics/t/delete", {"before_seq": 7})
    for reader, gap in ((0, (1, 4)), (3, (4, 4)), (4, None)):
        page = await api.diff("t", reader)
        told = page["tombstone"]
        assert gap == (told and (told["gap_from"], told["gap_to"]))
        assert told is None or told["reason"] == "lost"
        assert [record["$seq"] for record in page["records"]] == [7]


def test_deletes_survive_a_restart(serve: Callable[..., Any]) -> None:
    with serve() as server:
        records = [{"data": n, "tag": str(n % 2)} for n in range(10)]
        server.ask("POST", "/v0/topics/t", {"records": records})
        server.ask("POST", "/v0/topics/t/delete", {"match": "1"})
        server.process.kill()
    with serve() as server:
        body = server.ask("POST", "/v0/topics/t/diff", {})[1]
        assert [record["data"] for record in body["records"]] == [0, 2, 4, 6, 8]
