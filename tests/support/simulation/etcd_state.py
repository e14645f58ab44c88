"""The state of an etcd and how calls change it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import Any

from aetcd import rpc

from mainstem.errors import invariant

Listener = Callable[[list[Any]], None]


class EtcdState:
    """Keys, revisions and history. Requests and answers are etcd's own messages."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self.bytes_in_use = 0  # what it claims
        self._pairs: dict[bytes, Any] = {}
        self._sorted: list[bytes] = []
        self._history: list[tuple[int, Any]] = []
        self._listeners: list[tuple[bytes, bytes, Listener]] = []

    def range(self, request: Any) -> Any:
        keys = self._keys(request.key, request.range_end)
        count = len(keys)
        if request.sort_order == rpc.RangeRequest.DESCEND:
            keys = keys[::-1]
        if request.limit:
            keys = keys[: request.limit]
        pairs = [self._pairs[key] for key in keys]
        if request.keys_only:
            pairs = [rpc.KeyValue(key=pair.key, mod_revision=pair.mod_revision) for pair in pairs]
        return rpc.RangeResponse(header=self._header(), kvs=pairs, count=count)

    def txn(self, request: Any) -> Any:
        events: list[Any] = []
        succeeded, responses = self._branch(request, events)
        self._publish(events)
        return rpc.TxnResponse(header=self._header(), succeeded=succeeded, responses=responses)

    def _branch(self, request: Any, events: list[Any]) -> tuple[bool, list[Any]]:
        """etcd selects all branches before it does anything. What is simulated writes nothing that it compares."""
        succeeded = all(self._holds(compare) for compare in request.compare)
        operations = request.success if succeeded else request.failure
        return succeeded, [self._do(operation, events) for operation in operations]

    def delete(self, request: Any) -> Any:
        events: list[Any] = []
        deleted = self._delete(request, events)
        self._publish(events)
        return rpc.DeleteRangeResponse(header=self._header(), deleted=deleted)

    def compact(self, revision: int) -> None:
        """Forget the history before it."""
        self.compacted = max(self.compacted, revision)
        self._history = [(at, event) for at, event in self._history if at >= self.compacted]

    def listen(self, start: bytes, end: bytes, revision: int, listener: Listener) -> Callable[[], None]:
        """Report changes from the revision on. Returns a function to end it. Raises LookupError if it is compacted."""
        if revision < self.compacted:
            raise LookupError("the history asked for is compacted")
        missed = [event for at, event in self._history if at >= revision and start <= event.kv.key < end]
        entry = (start, end, listener)
        self._listeners.append(entry)
        if missed:
            listener(missed)
        return lambda: self._listeners.remove(entry) if entry in self._listeners else None

    def _holds(self, compare: Any) -> bool:
        pair = self._pairs.get(compare.key)
        if compare.target == rpc.Compare.CREATE:
            return bool((pair.create_revision if pair else 0) == compare.create_revision)
        if compare.target == rpc.Compare.MOD:
            return bool((pair.mod_revision if pair else 0) == compare.mod_revision)
        invariant(compare.target == rpc.Compare.VALUE, "only what is used here is simulated")
        if pair is None:
            return False
        if compare.result == rpc.Compare.LESS:
            return bool(pair.value < compare.value)
        return bool(pair.value == compare.value)

    def _do(self, operation: Any, events: list[Any]) -> Any:
        kind = operation.WhichOneof("request")
        if kind == "request_range":
            return rpc.ResponseOp(response_range=self.range(operation.request_range))
        if kind == "request_put":
            self._put(operation.request_put, events)
            return rpc.ResponseOp(response_put=rpc.PutResponse())
        if kind == "request_txn":
            succeeded, responses = self._branch(operation.request_txn, events)
            return rpc.ResponseOp(response_txn=rpc.TxnResponse(succeeded=succeeded, responses=responses))
        invariant(kind == "request_delete_range", "only what is used here is simulated")
        deleted = self._delete(operation.request_delete_range, events)
        return rpc.ResponseOp(response_delete_range=rpc.DeleteRangeResponse(deleted=deleted))

    def _put(self, request: Any, events: list[Any]) -> None:
        before = self._pairs.get(request.key)
        revision = self.revision + 1
        pair = rpc.KeyValue(
            key=request.key,
            value=request.value,
            create_revision=before.create_revision if before else revision,
            mod_revision=revision,
        )
        if before is None:
            insort(self._sorted, request.key)
        self._pairs[request.key] = pair
        events.append(rpc.Event(type=rpc.Event.PUT, kv=pair))

    def _delete(self, request: Any, events: list[Any]) -> int:
        keys = self._keys(request.key, request.range_end)
        for key in keys:
            del self._pairs[key]
            del self._sorted[bisect_left(self._sorted, key)]
            gone = rpc.KeyValue(key=key, mod_revision=self.revision + 1)
            events.append(rpc.Event(type=rpc.Event.DELETE, kv=gone))
        return len(keys)

    def _publish(self, events: Sequence[Any]) -> None:
        if not events:
            return
        self.revision += 1
        self._history += [(self.revision, event) for event in events]
        for start, end, listener in list(self._listeners):
            wanted = [event for event in events if start <= event.kv.key < end]
            if wanted:
                listener(wanted)

    def _keys(self, start: bytes, end: bytes) -> list[bytes]:
        if not end:
            return [start] if start in self._pairs else []
        return self._sorted[bisect_left(self._sorted, start) : bisect_left(self._sorted, end)]

    def _header(self) -> Any:
        return rpc.ResponseHeader(revision=self.revision)
