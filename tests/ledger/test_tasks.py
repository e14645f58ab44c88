from __future__ import annotations

import pytest

from mainstem import limits
from mainstem.errors import InvalidInput, StalePlan, TaskHeld
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.tasks import ExtendTask, ReleaseTask, TakeTask, TaskLeased, TaskReleased

from .writer import Writer


def take(writer: Writer, token: int, task: str = "parts/0", lease_ms: int = 1_000) -> object:
    return writer.do(TakeTask(task, f"holder {token}", token, lease_ms))


def test_a_task_is_held_by_one_until_its_time_is_over() -> None:
    writer = Writer()
    assert take(writer, 1) == TaskLeased("parts/0", 1, 2_000)
    refused = take(writer, 2)
    assert isinstance(refused, TaskHeld)
    assert refused.holder == "holder 1"
    assert isinstance(take(writer, 2, "parts/1"), TaskLeased)
    writer.time_ms = 2_000
    assert isinstance(take(writer, 2), TaskLeased)
    assert writer.ledger.tasks.holds("parts/0", 2)


def test_taking_it_again_with_the_same_token_renews_it() -> None:
    writer = Writer()
    take(writer, 1)
    writer.time_ms = 1_500
    assert take(writer, 1) == TaskLeased("parts/0", 1, 2_500)
    assert len(writer.ledger.tasks) == 1


def test_only_its_holder_extends_or_releases_a_task() -> None:
    writer = Writer()
    take(writer, 1)
    assert isinstance(writer.do(ExtendTask("parts/0", 2, 5_000)), StalePlan)
    assert writer.do(ReleaseTask("parts/0", 2)) == TaskReleased("parts/0", False)
    assert writer.do(ExtendTask("parts/0", 1, 5_000)) == TaskLeased("parts/0", 1, 6_000)
    assert writer.do(ExtendTask("parts/0", 1, 1_000)) == TaskLeased("parts/0", 1, 6_000)
    assert writer.do(ReleaseTask("parts/0", 1)) == TaskReleased("parts/0", True)
    assert writer.do(ReleaseTask("parts/0", 1)) == TaskReleased("parts/0", False)
    assert isinstance(writer.do(ExtendTask("parts/0", 1, 1_000)), StalePlan)


def test_a_late_holder_may_go_on_as_long_as_nobody_took_over() -> None:
    writer = Writer()
    take(writer, 1)
    writer.time_ms = 99_000
    assert isinstance(writer.do(ExtendTask("parts/0", 1, 1_000)), TaskLeased)


@pytest.mark.parametrize(
    "command",
    [
        TakeTask("", "me", 1, 1_000),
        TakeTask("x" * 501, "me", 1, 1_000),
        TakeTask("x", "m" * 501, 1, 1_000),
        TakeTask("x", "me", 0, 1_000),
        TakeTask("x", "me", 1 << 63, 1_000),
        TakeTask("x", "me", 1, 0),
        TakeTask("x", "me", 1, limits.LEASE_MS_MAX + 1),
    ],
)
def test_a_lease_that_makes_no_sense_is_refused(command: TakeTask) -> None:
    assert isinstance(Writer().do(command), InvalidInput)


def test_leases_survive_a_checkpoint_and_leave_no_trace_in_the_digest() -> None:
    writer = Writer()
    empty = writer.ledger.digest()
    take(writer, 7)
    held = writer.ledger.digest()
    assert held != empty
    restored = Ledger.decode(writer.ledger.encode())
    assert restored.digest() == held
    assert list(restored.tasks) == list(writer.ledger.tasks)
    writer.do(ReleaseTask("parts/0", 7))
    assert writer.ledger.digest() == empty
