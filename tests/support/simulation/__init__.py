"""Ground for deterministic simulations: several nodes, one seed, no real time.

    def test_something() -> None:
        world = World(seed=7)
        world.run(scenario(world))       # virtual time; the same seed gives the same world.trace.digest()

`world.node("a")` gives a node that can crash, stall and be cut off; `world.open_log(node)` a real commit log over a
simulated etcd, and `world.objects(node)` an object store, both as that node reaches them.
"""

from tests.support.simulation.faults import Faults
from tests.support.simulation.loop import Deadlock
from tests.support.simulation.nodes import Node
from tests.support.simulation.trace import Trace
from tests.support.simulation.world import World

__all__ = ["Deadlock", "Faults", "Node", "Trace", "World"]
