"""The history checker finds each kind of broken promise, and nothing in a history that keeps them all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mainstem.errors import InvariantBroken
from tests.support.histories import Broken, ClusterHistory, Record

Final = dict[str, list[Record]]


def good_history() -> tuple[ClusterHistory, Final]:
    """Every kind of event, and no promise broken."""
    history = ClusterHistory()
    history.write("w", "s", b"a").acked(0)
    history.write("w", "s", b"unknown, and written")
    history.write("w", "s", b"unknown, and not written")
    history.write("w", "s", b"refused").refused()
    history.write("t", "s", b"committed", transaction="t1").acked(2)
    history.write("t", "s", b"aborted", transaction="t2").acked(3)
    history.committed("t1")
    history.aborted("t2")
    history.read("r", "s", [(0, b"a"), (1, b"unknown, and written")])
    history.read("r", "s", [(2, b"committed")])
    history.end_seen("r", "s", 4)
    history.cursor_asked("g", "s", 1)
    history.cursor_committed("g", "s", 1)
    history.cursor_asked("g", "s", 2)
    history.cursor_fetched("g", "s", 1)
    history.cursor_fetched("g", "s", 2)
    history.lease_taken("l", "one", 0.0, 10.0)
    history.lease_left("l", "one", 4.0)
    history.lease_taken("l", "two", 4.0, 9.0)
    history.lease_taken("l", "one", 9.0, 12.0)
    history.lease_taken("l", "late", 10.0, 8.5)  # the answer took so long that it was over by then
    history.write("w", "s", b"before the fence")
    history.fenced("w")
    history.write("w", "s", b"after the fence, refused").refused()
    final = [(0, b"a"), (1, b"unknown, and written"), (2, b"committed"), (4, b"before the fence")]
    return history, {"s": final}


def test_a_history_that_keeps_every_promise_is_found_good() -> None:
    history, final = good_history()
    assert history.findings(final) == []
    history.check(final)


def drop_first(history: ClusterHistory, final: Final) -> None:
    history.write("x", "s", b"acked late").acked(9)


def move(history: ClusterHistory, final: Final) -> None:
    history.write("x", "s", b"x").acked(9)
    final["s"].append((10, b"x"))


def repeat(history: ClusterHistory, final: Final) -> None:
    final["s"].append((10, b"unknown, and written"))


def rewrite(history: ClusterHistory, final: Final) -> None:
    history.write("x", "s", b"other")
    history.write("x", "s", b"one")
    history.read("r2", "s", [(10, b"one")])
    final["s"].append((10, b"other"))


def invent(history: ClusterHistory, final: Final) -> None:
    final["s"].append((10, b"never written"))


def misdirect(history: ClusterHistory, final: Final) -> None:
    history.write("x", "other", b"for another stream")
    final["s"].append((10, b"for another stream"))


def show_refused(history: ClusterHistory, final: Final) -> None:
    final["s"].append((10, b"refused"))


def read_aborted(history: ClusterHistory, final: Final) -> None:
    history.read("r", "s", [(3, b"aborted")])


def read_uncommitted(history: ClusterHistory, final: Final) -> None:
    history.write("t", "s", b"in doubt", transaction="t3")
    history.read("r", "s", [(5, b"in doubt")])
    history.committed("t3")
    final["s"].append((5, b"in doubt"))


def read_twice(history: ClusterHistory, final: Final) -> None:
    history.read("r", "s", [(1, b"unknown, and written")])


def shrink(history: ClusterHistory, final: Final) -> None:
    history.end_seen("r", "s", 2)


def shuffle(history: ClusterHistory, final: Final) -> None:
    final["s"].reverse()


def rewind_cursor(history: ClusterHistory, final: Final) -> None:
    history.cursor_committed("g", "s", 0)


def forget_cursor(history: ClusterHistory, final: Final) -> None:
    history.cursor_fetched("g", "s", 0)


def share_lease(history: ClusterHistory, final: Final) -> None:
    history.lease_taken("l", "two", 11.0, 20.0)


def show_fenced(history: ClusterHistory, final: Final) -> None:
    history.write("w", "s", b"long after the fence")
    final["s"].append((10, b"long after the fence"))


def forget_read(history: ClusterHistory, final: Final) -> None:
    final["s"].remove((1, b"unknown, and written"))


def lose_committed(history: ClusterHistory, final: Final) -> None:
    final["s"].remove((2, b"committed"))


@pytest.mark.parametrize(
    ("spoil", "broken"),
    [
        (drop_first, Broken.LOST),
        (forget_read, Broken.LOST),
        (lose_committed, Broken.LOST),
        (move, Broken.MISPLACED),
        (repeat, Broken.DUPLICATE),
        (rewrite, Broken.TWO_CONTENTS),
        (invent, Broken.INVENTED),
        (misdirect, Broken.INVENTED),
        (show_refused, Broken.REFUSED_VISIBLE),
        (read_aborted, Broken.ABORTED_READ),
        (read_uncommitted, Broken.UNCOMMITTED_READ),
        (read_twice, Broken.READ_BACKWARDS),
        (shrink, Broken.READ_BACKWARDS),
        (shuffle, Broken.READ_BACKWARDS),
        (rewind_cursor, Broken.CURSOR_BACKWARDS),
        (forget_cursor, Broken.CURSOR_BACKWARDS),
        (share_lease, Broken.LEASE_SHARED),
        (show_fenced, Broken.FENCED_VISIBLE),
    ],
    ids=lambda one: one.__name__ if callable(one) else one.name,
)
def test_a_broken_promise_is_found(spoil: Callable[[ClusterHistory, Final], None], broken: Broken) -> None:
    history, final = good_history()
    spoil(history, final)
    assert broken in {finding.broken for finding in history.findings(final)}
    with pytest.raises(InvariantBroken, match=broken.value):
        history.check(final)


def test_every_promise_has_a_history_that_breaks_it() -> None:
    (marker,) = [mark for mark in test_a_broken_promise_is_found.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    assert {broken for _, broken in marker.args[1]} == set(Broken)


def test_what_was_removed_on_purpose_is_not_lost() -> None:
    history, final = good_history()
    history.removed("s", 2)
    assert history.findings({"s": final["s"][2:]}) == []


def test_a_commit_whose_answer_was_lost_may_hold_or_not() -> None:
    history, final = good_history()
    history.write("t", "s", b"maybe", transaction="t3").acked(5)
    history.committing("t3")
    assert history.findings(final) == []
    assert history.findings({"s": [*final["s"], (5, b"maybe")]}) == []


def test_a_group_that_rewinds_on_purpose_says_so() -> None:
    history, final = good_history()
    history.cursor_reset("g", "s")
    history.cursor_committed("g", "s", 0)
    assert history.findings(final) == []


def test_writers_that_may_repeat_themselves_lose_nothing_all_the_same() -> None:
    history, final = good_history()
    history.repeats("s")
    twice = [*final["s"], (99, b"committed")]
    assert history.findings({"s": twice}) == []
    lost = [record for record in twice if record[1] != b"committed"]
    assert {finding.broken for finding in history.findings({"s": lost})} == {Broken.LOST}


def test_a_value_names_its_write() -> None:
    history, _ = good_history()
    with pytest.raises(ValueError, match="twice"):
        history.write("w", "s", b"a")
