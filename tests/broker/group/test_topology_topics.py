"""What a Streams topology needs of the topics."""

from __future__ import annotations

import pytest

from mainstem.broker.groups.topology_topics import (
    InternalTopic,
    StatusCode,
    Subtopology,
    Topology,
    Workload,
    check_topology,
    fit_topics,
)
from mainstem.errors import InvalidTopology


def internal(name: str, partitions: int = 0) -> InternalTopic:
    return InternalTopic(name, partitions, ())


def part(
    name: str,
    *sources: str,
    changelogs: tuple[str, ...] = (),
    sinks: tuple[str, ...] = (),
    repartitioned: tuple[InternalTopic, ...] = (),
    together: tuple[tuple[str, ...], ...] = (),
) -> Subtopology:
    return Subtopology(name, sources, tuple(map(internal, changelogs)), sinks, repartitioned, together)


WORDS = Topology(
    0,
    (
        part("0", "lines", sinks=("words",)),
        part("1", changelogs=("store",), repartitioned=(internal("words"),)),
    ),
)


def test_internal_topics_have_as_many_partitions_as_what_flows_into_them() -> None:
    fitted = fit_topics(WORDS, {"lines": 5}.get)
    assert fitted.workloads == {"0": Workload(5, False), "1": Workload(5, True)}
    assert [(topic.name, topic.partitions) for topic in fitted.missing] == [("store", 5), ("words", 5)]
    assert fitted.problem is not None
    assert fitted.problem.code is StatusCode.MISSING_INTERNAL_TOPICS
    assert fit_topics(WORDS, {"lines": 5, "store": 5, "words": 5}.get).ready


def test_a_declared_number_of_partitions_counts() -> None:
    topology = Topology(
        0,
        (
            part("0", "lines", sinks=("words",)),
            part("1", changelogs=("store",), repartitioned=(internal("words", 3),)),
        ),
    )
    assert fit_topics(topology, {"lines": 5}.get).partitions == {"words": 3, "store": 3}


def test_a_missing_source_is_a_status() -> None:
    fitted = fit_topics(WORDS, {}.get)
    assert fitted.problem is not None
    assert (fitted.problem.code, fitted.workloads) == (StatusCode.MISSING_SOURCE_TOPICS, {})
    assert "lines" in fitted.problem.detail


@pytest.mark.parametrize(
    ("sizes", "code"),
    [
        ({"a": 2, "b": 2}, None),
        ({"a": 2, "b": 3}, StatusCode.INCORRECTLY_PARTITIONED_TOPICS),
    ],
)
def test_topics_that_are_joined_need_equal_numbers_of_partitions(
    sizes: dict[str, int], code: StatusCode | None
) -> None:
    problem = fit_topics(Topology(0, (part("0", "a", "b", together=(("a", "b"),)),)), sizes.get).problem
    assert (None if problem is None else problem.code) == code


def test_a_repartition_topic_follows_the_topic_that_it_is_joined_with() -> None:
    topology = Topology(
        0,
        (
            part("0", "many", sinks=("r",)),
            part("1", "few", repartitioned=(internal("r"),), together=(("few", "r"),)),
        ),
    )
    assert fit_topics(topology, {"many": 7, "few": 2}.get).partitions == {"r": 2}


def test_an_existing_topic_of_another_size_is_a_status() -> None:
    problem = fit_topics(WORDS, {"lines": 5, "store": 4}.get).problem
    assert problem is not None
    assert problem.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


@pytest.mark.parametrize(
    "topology",
    [
        Topology(0, ()),
        Topology(0, (part("0", "a"), part("0", "b"))),
        Topology(0, (part("", "a"),)),
        Topology(0, (part("0"),)),
        Topology(0, (Subtopology("0", ("a",), (internal("c", 3),), (), (), ()),)),
    ],
)
def test_what_no_topics_could_serve_is_refused(topology: Topology) -> None:
    with pytest.raises(InvalidTopology):
        check_topology(topology)


@pytest.mark.parametrize(
    "topology",
    [
        Topology(0, (part("0", sinks=("r",), repartitioned=(internal("r"),)),)),  # a loop
        Topology(0, (part("0", "a", repartitioned=(internal("r"),)),)),  # nothing writes to r
    ],
)
def test_partitions_that_follow_from_nothing_are_refused(topology: Topology) -> None:
    with pytest.raises(InvalidTopology):
        fit_topics(topology, {"a": 1}.get)
