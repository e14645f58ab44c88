"""Patterns of clients: linear time, refused if RE2 does not know them."""

import pytest

from mainstem.broker.groups.subscription import matching
from mainstem.errors import InvalidRegex, UndecodablePayload
from mainstem.regexes import InvalidPattern, compiled_pattern
from mainstem.schemas.patterns import Patterns


def matches(pattern: str, text: str) -> bool:
    return Patterns(lambda steps: None).matches(pattern, text)


def test_a_pattern_of_topics_matches_whole_names() -> None:
    names = ["orders", "orders-eu", "übersicht", "payments", "a\nb"]
    assert matching("orders|pay", names) == {"orders"}
    assert matching("orders.*", names) == {"orders", "orders-eu"}
    assert matching(".bersicht", names) == {"übersicht"}
    assert matching("a.b", names) == set()


def test_a_pattern_of_a_schema_matches_a_part() -> None:
    assert matches("^[a-z]+$", "abc")
    assert matches("b", "abc")
    assert not matches("^b", "abc")


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)", "[z-a]", "(a{1000}){1000}"])
def test_what_re2_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        compiled_pattern(pattern)
    with pytest.raises(InvalidRegex):
        matching(pattern, ["a"])
    with pytest.raises(UndecodablePayload):
        matches(pattern, "a")


def test_a_pattern_that_takes_exponential_time_elsewhere_is_answered() -> None:
    assert not matches("^(a+)+$", "a" * 50_000 + "b")
