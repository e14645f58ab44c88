"""A simulated world: nodes, what they share, the network between them, one seed for all of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

from mainstem.ports.commitlog.shared.bucket.log import BucketCommitLog
from mainstem.ports.commitlog.shared.etcd.log import EtcdCommitLog, EtcdOptions
from mainstem.ports.loop_thread import LoopThread
from tests.support.simulation.etcd_calls import connect_to
from tests.support.simulation.etcd_state import EtcdState
from tests.support.simulation.faults import Faults
from tests.support.simulation.loop import SimulatedLoop
from tests.support.simulation.network import Network
from tests.support.simulation.nodes import Node, tracked
from tests.support.simulation.objects import SharedObjects, SimulatedObjectStore
from tests.support.simulation.trace import Trace

T = TypeVar("T")

_EPOCH_MS = 1_700_000_000_000
_OPTIONS = EtcdOptions(("simulated:1", "simulated:2"), call_s=1.0, retry_s=10.0)
_LIMIT_S = 3_600.0


class World:
    """Everything in it depends on the seed alone."""

    def __init__(self, seed: int, faults: Faults | None = None, *, limit_s: float = _LIMIT_S) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.loop = SimulatedLoop(random.Random(self.random.random()), limit_s)
        self.trace = Trace(self.loop.time)
        self.faults = faults if faults is not None else Faults.drawn(self.random)
        self.etcd = EtcdState()
        self.shared = SharedObjects(self.now_ms)
        self._network = Network(random.Random(self.random.random()), self.faults, self.trace)
        self._nodes: dict[str, Node] = {}

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        """Run the scenario to its end, then end what is left of every node. Once a world.

        Raises what the scenario raises, or else the first failure of a node's work."""
        try:
            self.loop.set_task_factory(tracked)
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                result = runner.run(scenario)
            for node in self._nodes.values():
                for failure in node.failures:
                    raise failure
            return result
        except BaseException as error:
            error.add_note(f"seed {self.seed}; the last of {self.trace.count} events:\n{self.trace}")
            raise

    async def calm_down(self) -> None:
        """Nothing is lost from now on. Returns when all that was stalled has arrived."""
        faults = self.faults
        faults.lose_request = faults.lose_answer = faults.stall = faults.lose_watch = 0.0
        await self._network.emptied()

    def node(self, name: str) -> Node:
        """The node of that name, made on the first call."""
        if name not in self._nodes:
            self._nodes[name] = Node(name, self.trace)
        return self._nodes[name]

    def now_ms(self) -> int:
        """The true time."""
        return _EPOCH_MS + int(self.loop.time() * 1000)

    def clock(self, node: Node) -> NodeClock:
        """The time as the node has it."""
        return NodeClock(self, node)

    def objects(self, node: Node) -> SimulatedObjectStore:
        """The shared object store, for the node's present life."""
        return SimulatedObjectStore(self.shared, self._network, node.life)

    async def open_log(self, node: Node, *, only_reads: bool = False, **options: Any) -> EtcdCommitLog:
        """The shared commit log, for the node's present life. If it writes, the ones before it are fenced."""
        return await EtcdCommitLog.open(
            _OPTIONS,
            self.objects(node),
            broker=None if only_reads else node.name,
            clock=self.clock(node),
            random=SeededTokens(random.Random(self.random.random())),
            connect=connect_to(self.etcd, self._network, node.life),
            blocking=InlineCalls(self._network),
            **options,
        )

    async def open_bucket(self, node: Node, **options: Any) -> BucketCommitLog:
        """The shared commit log that is in the object store alone, for the node's present life."""
        return await BucketCommitLog.open(
            self.objects(node),
            clock=self.clock(node),
            random=SeededTokens(random.Random(self.random.random())),
            blocking=InlineCalls(self._network),
            **options,
        )


class NodeClock:
    """A node's clock, which may be off."""

    def __init__(self, world: World, node: Node) -> None:
        self._world = world
        self._node = node

    def now_ms(self) -> int:
        return self._world.now_ms() + self._node.skew_ms

    def monotonic(self) -> float:
        return self._world.loop.time()


class SeededTokens:
    def __init__(self, randomness: random.Random) -> None:
        self._random = randomness

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)


class InlineCalls(LoopThread):
    """Blocking calls done on the spot: the whole simulation is one thread, so nothing may really block. A call may do
    several things side by side: a loop of its own takes the steps, at once."""

    def __init__(self, network: Network) -> None:
        super().__init__("simulated")
        self._network = network

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        outer = asyncio.get_running_loop()
        asyncio.events._set_running_loop(None)  # which one thread has one of at a time
        inner = asyncio.new_event_loop()
        self._network.inline = True
        try:
            return inner.run_until_complete(work)
        finally:
            self._network.inline = False
            inner.close()
            asyncio.events._set_running_loop(outer)
