"""A power loss after every single call that changes the disk: every promise holds."""

from __future__ import annotations

import contextlib
import random

import pytest

from mainstem import limits
from mainstem.errors import MainstemError, invariant
from mainstem.log.recovery import recover
from tests.support.files import Policy, SimFiles, SimulatedCrash
from tests.support.history import History
from tests.support.lanes import step_instead_of_threads
from tests.support.machine import Machine
from tests.support.workload import Workload

pytestmark = pytest.mark.slow

_ROUNDS = 24
_POINTS_OF_A_SLICE = 40
_CALLS_OF_A_START = 14
_POLICIES: tuple[Policy, ...] = ("lost", "kept", "torn")


@pytest.fixture(autouse=True)
def digest_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every replay compares its state with the earlier one many times."""
    monkeypatch.setattr(limits, "DIGEST_EVERY_COMMITS", 4)


async def _work(machine: Machine, seed: int, history: History) -> None:
    """Two runs of a broker with a clean stop between them; a crash may end it anywhere."""
    workload = Workload(history, seed)
    for _ in range(2):
        broker = await machine.open()
        for topic in history.topics:
            topic.forget_volatile()
        await workload.run(broker, _ROUNDS)
        await machine.close()


async def _crashed(monkeypatch: pytest.MonkeyPatch, seed: int, calls: int) -> tuple[Machine, History]:
    step_instead_of_threads(monkeypatch, seed)
    machine, history = Machine(), History()
    machine.files.crash_after(calls)
    with contextlib.suppress(SimulatedCrash, MainstemError):  # callers get one result or the other
        await _work(machine, seed, history)
    return machine, history


async def _digest(machine: Machine, files: SimFiles) -> int:
    """Digest of the recovered state, before the broker adds anything."""
    machine.files = files
    port = await machine.open_port()
    try:
        return (await recover(port)).ledger.digest()
    finally:
        await port.close()


async def _check_recovery_is_a_function_of_the_disk(machine: Machine) -> None:
    disk = machine.files
    copies = [disk.reboot("kept") for _ in range(3)]
    first, second = [await _digest(machine, files) for files in copies[:2]]
    invariant(first == second, "two recoveries of one disk give the same state")
    machine.files = copies[2]


async def _verify(machine: Machine, history: History, *, lossless: bool, seed: int) -> None:
    """All promises hold now, and still do after a kill and a clean stop."""
    await _check_recovery_is_a_function_of_the_disk(machine)
    broker = await machine.open()
    await history.check(broker, all_written_survived=lossless)
    await Workload(history, seed + 1).run(broker, 6)
    await machine.kill()
    await history.check(await machine.open(), all_written_survived=True)
    await history.check(await machine.restart(), all_written_survived=True)
    await machine.close()


async def _total_calls(monkeypatch: pytest.MonkeyPatch, seed: int) -> int:
    step_instead_of_threads(monkeypatch, seed)
    machine, history = Machine(), History()
    try:
        await _work(machine, seed, history)
    finally:
        calls = machine.files.calls
        await machine.kill()
    invariant(sum(len(topic.acked) for topic in history.topics) > 20, "the workload does something")
    return calls


def _points(total: int, seed: int, chaos: bool) -> list[int]:
    points = range(1, total + 1)
    return list(points) if chaos else sorted(random.Random(seed).sample(points, _POINTS_OF_A_SLICE))


@pytest.mark.parametrize("policy", _POLICIES)
async def test_a_power_cut_at_any_moment_breaks_no_promise(
    sweep_seed: int, policy: Policy, chaos: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = await _total_calls(monkeypatch, sweep_seed)
    for point in _points(total, sweep_seed, chaos):
        machine, history = await _crashed(monkeypatch, sweep_seed, point)
        try:
            await machine.crash(policy, point)
            await _verify(machine, history, lossless=policy == "kept", seed=sweep_seed)
        except BaseException as error:
            error.add_note(f"the crash came after call {point} of {total}, {policy}")
            raise
        finally:
            await machine.kill()


@pytest.mark.parametrize("policy", _POLICIES)
async def test_a_crash_during_recovery_breaks_no_promise(
    sweep_seed: int, policy: Policy, chaos: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = await _total_calls(monkeypatch, sweep_seed)
    randomness = random.Random(sweep_seed)
    for point in _points(total, sweep_seed, chaos):
        again = randomness.randint(1, _CALLS_OF_A_START)
        machine, history = await _crashed(monkeypatch, sweep_seed, point)
        try:
            await machine.crash(policy, point)
            machine.files.crash_after(again)
            with contextlib.suppress(SimulatedCrash, MainstemError):
                await machine.open()
            await machine.crash(policy, again)
            await _verify(machine, history, lossless=policy == "kept", seed=sweep_seed)
        except BaseException as error:
            error.add_note(
                f"crashes came after call {point} of {total} and call {again} after that, {policy}"
            )
            raise
        finally:
            await machine.kill()
