"""PyIceberg's files in an object store."""

from __future__ import annotations

import asyncio

import pytest

from mainstem.errors import NotFound
from mainstem.ports.objectstore.blocking import BlockingStore
from mainstem.tables.file_io import StoreIO
from tests.support.memory_store import MemoryObjectStore

LOCATION = "s3://bucket/tables/t/metadata/one.avro"


def opened() -> StoreIO:
    return StoreIO(BlockingStore(MemoryObjectStore(), asyncio.get_running_loop(), timeout_s=5), "s3://bucket")


async def test_an_output_is_stored_when_it_is_closed() -> None:
    files = opened()
    output = files.new_output(LOCATION)

    def write() -> bytes:
        with output.create() as stream:
            stream.write(b"content")
        return files.get(LOCATION)

    assert await asyncio.to_thread(write) == b"content"
    assert len(output) == len(b"content")


async def test_an_output_that_nothing_closes_is_not_stored() -> None:
    """PyIceberg leaves the stream of a writer that failed to the garbage collector, which runs on any thread."""
    files = opened()
    files.new_output(LOCATION).create().write(b"half")  # collected here: storing it would block the loop
    with pytest.raises(NotFound):
        await asyncio.to_thread(files.get, LOCATION)


async def test_an_output_whose_block_fails_is_not_stored() -> None:
    files = opened()

    def fail() -> None:
        with files.new_output(LOCATION).create() as stream:
            stream.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(NotFound):
        await asyncio.to_thread(files.get, LOCATION)
