"""The broker calls that publication needs; see BrokerClient."""

from __future__ import annotations

from typing import Protocol

from mainstem.api.lake import LakeStatus, Sources, TableCommitRequest, TableWorkPage


class TableBroker(Protocol):
    def settle_tables(self) -> None: ...

    def tables(self) -> TableWorkPage: ...

    def commit_table(self, commit: TableCommitRequest) -> str:
        """Returns the new location of the table's metadata. Raises TableChanged."""
        ...


class DeltaBroker(Protocol):
    def status(self) -> LakeStatus: ...

    def sources(self, topic: str, partition: int, start: int, end: int) -> Sources: ...


class PublishingBroker(TableBroker, DeltaBroker, Protocol): ...
