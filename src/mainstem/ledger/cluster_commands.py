"""Commands about the brokers of one log: who is there, where it is reached, and who is there no more."""

from __future__ import annotations

import msgspec


class JoinBroker(msgspec.Struct, frozen=True, array_like=True, tag=120):
    """A broker that booted is ready to serve. Its next boot, halt or expiry ends it."""

    broker: int
    epoch: int
    addresses: tuple[tuple[str, str], ...]  # door, host:port as clients are told
    zone: str = ""
    node: str = ""


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=121):
    """A broker with nothing else to commit is still there: the commit itself says so."""

    broker: int
    epoch: int


class LeaveBroker(msgspec.Struct, frozen=True, array_like=True, tag=122):
    """A broker serves nobody any more, though it may go on writing."""

    broker: int
    epoch: int


class ExpireBroker(msgspec.Struct, frozen=True, array_like=True, tag=123):
    """Nothing was heard of a broker for too long: its epoch ends, unless it committed anything since.

    `last_commit_id` is the last commit that the proposer saw of it."""

    broker: int
    epoch: int
    last_commit_id: int


class AdmitBroker(msgspec.Struct, frozen=True, array_like=True, tag=124):
    """As Boot, for a broker that was given no number: refused if the number was ever taken."""

    broker: int
    boot_id: str
    node: str = ""
