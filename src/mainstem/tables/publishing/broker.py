"""The broker calls that publication needs; see BrokerClient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mainstem.api.lake import LakeStatus, Sources, TableCommitRequest, TableWorkPage
from mainstem.errors import MainstemError


class TableBroker(Protocol):
    def settle_tables(self) -> None: ...

    def tables(self) -> TableWorkPage: ...

    def commit_tables(self, commits: Sequence[TableCommitRequest]) -> list[str | MainstemError]:
        """The new location of each table's metadata, or its refusal."""
        ...


class CopyBroker(Protocol):
    def status(self) -> LakeStatus: ...

    def sources(self, topic: str, partition: int, start: int, end: int) -> Sources: ...


class PublishingBroker(TableBroker, CopyBroker, Protocol): ...
