"""Shares: how far every share group is with every stream it reads.

As with queues, each command first lets locks expire by ledger time, so that who has a record is decided at apply.
"""

from __future__ import annotations

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached, MainstemError, ShareNotFound, StreamNotFound
from mainstem.ledger.digest import MASK
from mainstem.ledger.results import ShareAcquired, SharesChanged, ShareSettled
from mainstem.ledger.share import Share, ShareState
from mainstem.ledger.share_commands import AcquireShare, DeleteShare, OpenShare, SettleShare, Verdict
from mainstem.ledger.streams import Streams

_LASTING = (Verdict.GAP, Verdict.ACCEPT, Verdict.REJECT)


class Shares:
    """By group and stream."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._shares: dict[str, dict[int, Share]] = {}
        self._count = 0

    # Reads

    def get(self, group: str, stream: int) -> Share | None:
        return self._shares.get(group, {}).get(stream)

    def has(self, group: str) -> bool:
        return group in self._shares

    def groups(self) -> list[str]:
        return sorted(self._shares)

    def of_group(self, group: str) -> dict[int, Share]:
        return dict(sorted(self._shares.get(group, {}).items()))

    def next_offset(self, share: Share, end: int, in_flight_max: int) -> int | None:
        """The lowest offset below `end` that a member would get now, as far as the last command knew."""
        return share.next_offset(end, in_flight_max, self._streams.holes(share.stream))

    # Commands

    def open(self, command: OpenShare) -> SharesChanged | MainstemError:
        group = command.group
        if not 1 <= len(group) <= limits.NAME_CHARS_MAX:
            return InvalidInput(f"a group name has 1 to {limits.NAME_CHARS_MAX} characters, not {len(group)}")
        for stream, offset in command.starts:
            if not self._streams.exists(stream):
                return StreamNotFound(stream)
            if self._streams.ephemeral(stream):
                return InvalidInput(
                    "an ephemeral topic's records are not in the log: share groups cannot read it"
                )
            if not 0 <= offset <= limits.OFFSET_MAX:
                return InvalidInput(f"{offset} is no offset to begin at")
        known = self._shares.get(group, {})
        wanted = [row for row in dict(command.starts).items() if command.reset or row[0] not in known]
        added = sum(stream not in known for stream, _ in wanted)
        if self._count + added > limits.SHARES_MAX:
            return LimitReached(f"share groups read at most {limits.SHARES_MAX} partitions between them")
        for stream, offset in wanted:
            self._put(Share(group, stream, offset))
        return SharesChanged(len(wanted))

    def acquire(self, command: AcquireShare, now_ms: int) -> ShareAcquired | MainstemError:
        share = self._found(command.group, command.stream, now_ms)
        if isinstance(share, MainstemError):
            return share
        if not 1 <= command.limit <= limits.SHARE_IN_FLIGHT_MAX:
            return InvalidInput(
                f"a member gets 1 to {limits.SHARE_IN_FLIGHT_MAX} records, not {command.limit}"
            )
        if not 0 <= command.in_flight_max <= limits.SHARE_IN_FLIGHT_MAX or command.deliveries_max < 1:
            return InvalidInput("a share group hands out a bounded number of records, each once at least")
        if not limits.LEASE_MS_MIN <= command.lock_ms <= limits.LEASE_MS_MAX:
            return InvalidInput(f"{command.lock_ms} ms is no lock")
        if not 0 <= command.first <= command.end <= int(self._streams.end[command.stream]):
            return InvalidInput(f"there are no records from {command.first} up to {command.end}")
        before = share.archived
        runs, deadline_ms = share.acquire(command, now_ms, self._streams.holes(command.stream))
        return ShareAcquired(runs, deadline_ms, share.archived - before)

    def settle(self, command: SettleShare, now_ms: int) -> ShareSettled | MainstemError:
        share = self._found(command.group, command.stream, now_ms)
        if isinstance(share, MainstemError):
            return share
        if command.lock_ms and not limits.LEASE_MS_MIN <= command.lock_ms <= limits.LEASE_MS_MAX:
            return InvalidInput(f"{command.lock_ms} ms is no lock")
        before = share.archived
        counts = share.settle(command, now_ms)
        if isinstance(counts, MainstemError):
            return counts
        # A lock that is lost with a crash is no worse than one that ran out.
        lasting = any(counts[kind] for kind in _LASTING) or share.archived > before
        return ShareSettled(
            tuple(counts),
            share.archived - before,
            relaxed=not lasting or self._streams.relaxed(command.stream),
        )

    def delete(self, command: DeleteShare) -> SharesChanged:
        streams = command.streams or tuple(self._shares.get(command.group, ()))
        return SharesChanged(sum(self._remove(command.group, stream) for stream in streams))

    def boot(self, broker: int) -> None:
        """A broker starts: what it had handed out is to be had again. Delivery counts stay."""
        for shares in self._shares.values():
            for share in shares.values():
                share.leases.end_leases(broker)

    def forget_streams(self, streams: tuple[int, ...]) -> None:
        """The streams' topic is deleted."""
        for group in list(self._shares):
            for stream in streams:
                self._remove(group, stream)

    def _found(self, group: str, stream: int, now_ms: int) -> Share | MainstemError:
        if not self._streams.exists(stream):
            return StreamNotFound(stream)
        share = self.get(group, stream)
        if share is None:
            return ShareNotFound(group)
        share.leases.settle(now_ms)
        share.cut(self._streams.start(stream))
        return share

    def _put(self, share: Share) -> None:
        shares = self._shares.setdefault(share.group, {})
        self._count += share.stream not in shares
        shares[share.stream] = share

    def _remove(self, group: str, stream: int) -> bool:
        shares = self._shares.get(group, {})
        if shares.pop(stream, None) is None:
            return False
        self._count -= 1
        if not shares:
            del self._shares[group]
        return True

    # State as a whole

    @property
    def digest(self) -> int:
        return sum(share.digest for shares in self._shares.values() for share in shares.values()) & MASK

    def encode(self) -> list[ShareState]:
        return [share.encode() for group in self.groups() for share in self.of_group(group).values()]

    @classmethod
    def decode(cls, states: list[ShareState], streams: Streams) -> Shares:
        shares = cls(streams)
        for state in states:
            shares._put(Share.decode(state))
        return shares
