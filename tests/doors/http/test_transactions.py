"""Transactions for administrators: which are open, and aborting one that hangs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainstem.broker.transactions.service import ProducerStamp
from mainstem.errors import ProducerFenced

from .conftest import Api, code


async def opened(api: Api, id: str, topic: str, timeout_ms: int = 60_000) -> ProducerStamp:
    info = await api.broker.create_topic(topic, partitions=2)
    stamp = ProducerStamp(id, *await api.broker.transactions.initialise(id, timeout_ms))
    await api.broker.transactions.add_partitions(stamp, [info.streams[1]])
    return stamp


async def test_an_open_transaction_shows_its_start_and_topics_and_hangs_after_half_its_timeout(
    api: Api,
) -> None:
    await opened(api, "tx", "t")
    api.clock.advance(20_000)
    _, body = await api.ask("GET", "/v0/transactions")
    (row,) = body["transactions"]
    assert (row["transaction"], row["phase"], row["open_ms"], row["hanging"]) == ("tx", "open", 20_000, False)
    assert row["partitions"] == [{"topic": "t", "partitions": [1]}]
    api.clock.advance(11_000)
    _, body = await api.ask("GET", "/v0/transactions")
    assert body["transactions"][0]["hanging"]


async def test_aborting_ends_it_for_good_and_fences_its_producer(api: Api) -> None:
    stamp = await opened(api, "tx/1 ä", "t")
    status, body = await api.ask("POST", "/v0/transactions/tx%2F1%20%C3%A4/abort")
    assert (status, body["aborted"]) == (200, True)
    _, body = await api.ask("GET", "/v0/transactions")
    assert [row["phase"] for row in body["transactions"]] == ["aborted"]
    with pytest.raises(ProducerFenced):
        await api.broker.transactions.end(stamp, commit=True)
    status, body = await api.ask("POST", "/v0/transactions/tx%2F1%20%C3%A4/abort")
    assert (status, body["aborted"]) == (200, False), "nothing is open any more"


async def test_an_unknown_id_is_not_found(api: Api) -> None:
    assert code(await api.ask("POST", "/v0/transactions/nope/abort"))[0] == 404


async def test_a_key_sees_and_aborts_only_transactions_in_its_scope(open_api: Callable[..., Any]) -> None:
    async with open_api(api_keys="reader:r,mine:r+a:a.,boss") as api:
        await opened(api, "x", "a.1")
        await opened(api, "y", "b.1")
        seen = (await api.ask("GET", "/v0/transactions", key="mine"))[1]["transactions"]
        assert [row["transaction"] for row in seen] == ["x"]
        assert code(await api.ask("POST", "/v0/transactions/x/abort", key="reader")) == (403, "forbidden")
        assert code(await api.ask("POST", "/v0/transactions/y/abort", key="mine")) == (403, "forbidden")
        assert (await api.ask("POST", "/v0/transactions/x/abort", key="mine"))[1]["aborted"]
