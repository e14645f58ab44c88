"""Power losses while repacking: every promise holds, and no file is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from mainstem.errors import MainstemError, invariant
from tests.support.files import Policy, SimulatedCrash
from tests.support.history import History
from tests.support.lanes import step_instead_of_threads
from tests.support.machine import Machine
from tests.support.workload import Workload

from .repacking import SMALL, repack_all, repacked_keys, repacker

_POINTS_OF_A_SLICE = 12


async def _work(machine: Machine, seed: int, history: History) -> None:
    """Two runs in which everything is repacked as soon as possible; a crash may end them anywhere."""
    workload = Workload(history, seed)
    for _ in range(2):
        broker = await machine.open()
        for topic in history.topics:
            topic.forget_volatile()
        for _ in range(4):
            await asyncio.gather(workload.run(broker, 6), repacker(broker).step())
            await repack_all(broker)
            await broker.log.collect()
            await repacker(broker).clean()
        await machine.close()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lost", "kept", "torn"])
async def test_a_power_cut_at_any_moment_breaks_no_promise(
    sweep_seed: int, policy: Policy, chaos: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_instead_of_threads(monkeypatch, sweep_seed)
    machine, history = Machine(repack=SMALL), History()
    await _work(machine, sweep_seed, history)
    total = machine.files.calls
    await machine.kill()
    points = range(1, total + 1)
    for point in points if chaos else sorted(random.Random(sweep_seed).sample(points, _POINTS_OF_A_SLICE)):
        step_instead_of_threads(monkeypatch, sweep_seed)
        machine, history = Machine(repack=SMALL), History()
        machine.files.crash_after(point)
        try:
            with contextlib.suppress(SimulatedCrash, MainstemError):
                await _work(machine, sweep_seed, history)
            await machine.crash(policy, point)
            broker = await machine.open()
            await history.check(broker, all_written_survived=policy == "kept")
            await repack_all(broker)
            await history.check(broker, all_written_survived=policy == "kept")
            await broker.log.collect()
            await repacker(broker).clean()
            named = {key for one in broker.log.ledger.repacked.rounds for key in one.keys}
            invariant(
                repacked_keys(machine) == named, "what a crash left behind is deleted, and nothing else"
            )
            await history.check(await machine.restart(), all_written_survived=policy == "kept")
        except BaseException as error:
            error.add_note(f"the crash came after call {point} of {total}, {policy}")
            raise
        finally:
            await machine.kill()
