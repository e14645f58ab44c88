"""Namespaces: names and ids that never collide, limits on what they hold, and what may be removed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.errors import (
    InvalidInput,
    InvalidName,
    LimitReached,
    NamespaceExists,
    NamespaceInUse,
    NamespaceNotFound,
)
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.namespaces import (
    AddNamespace,
    AlterNamespace,
    NamespacePolicies,
    RemoveNamespace,
    TopicNamespace,
    bad_namespace,
    qualify,
    qualify_id,
    split,
    split_id,
)
from mainstem.ledger.topics import AddPartitions, CreateTopic, DeleteTopic, Topic

from .writer import Writer

WORD = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", fullmatch=True)
NAMESPACE = st.one_of(
    st.just("default"),
    WORD,
    st.builds("{}/{}".format, WORD.filter(lambda word: word != "default"), WORD),
)
TOPIC = st.from_regex(r"[A-Za-z0-9._:-]{1,40}", fullmatch=True)
ID = st.text(st.characters(exclude_characters="\x1f", exclude_categories=["Cs"]), max_size=40)


@given(NAMESPACE, TOPIC)
def test_full_names_split_into_what_they_were_made_of(namespace: str, name: str) -> None:
    assert bad_namespace(namespace) is None
    assert split(qualify(namespace, name)) == (namespace, name)


@given(NAMESPACE, ID)
def test_stored_ids_split_into_what_they_were_made_of(namespace: str, id: str) -> None:
    assert split_id(qualify_id(namespace, id)) == (namespace, id)


@given(
    st.tuples(NAMESPACE, TOPIC),
    st.tuples(NAMESPACE, TOPIC),
    st.tuples(NAMESPACE, ID),
    st.tuples(NAMESPACE, ID),
)
def test_no_two_names_or_ids_collide(
    one: tuple[str, str], other: tuple[str, str], id: tuple[str, str], other_id: tuple[str, str]
) -> None:
    assert (qualify(*one) == qualify(*other)) == (one == other)
    assert (qualify_id(*id) == qualify_id(*other_id)) == (id == other_id)


@pytest.mark.parametrize(
    "name", ["", "/", "a/", "/a", "a/b/c", "a b", "a.b", "default/a", "é", "a" * 65, "-a", "a\x1fb", "a\n"]
)
def test_other_namespaces_are_refused(name: str) -> None:
    assert isinstance(Writer().do(AddNamespace(name, NamespacePolicies())), InvalidName)


def with_namespace(**policies: int) -> Writer:
    writer = Writer()
    writer.do(AddNamespace("acme/shop", NamespacePolicies(**policies)))  # type: ignore[arg-type]
    return writer


def create(writer: Writer, name: str, partitions: int = 1, namespace: str = "acme/shop") -> object:
    id = f"{namespace}/{name}".encode().ljust(16, b".")[:16]
    return writer.do(CreateTopic(name, id, partitions, TopicConfig(), namespace))


def test_a_topic_needs_its_namespace() -> None:
    writer = Writer()
    assert isinstance(create(writer, "a"), NamespaceNotFound)
    writer.do(AddNamespace("acme/shop", NamespacePolicies()))
    topic = create(writer, "a")
    assert isinstance(topic, Topic)
    assert (topic.name, topic.plain_name, topic.namespace) == ("acme/shop/a", "a", "acme/shop")
    assert isinstance(writer.do(AddNamespace("acme/shop", NamespacePolicies())), NamespaceExists)


def test_default_always_exists_and_can_be_altered_but_not_removed() -> None:
    writer = Writer()
    assert [namespace.name for namespace in writer.ledger.namespaces] == ["default"]
    assert isinstance(writer.do(RemoveNamespace("default")), InvalidInput)
    assert isinstance(writer.do(AddNamespace("default", NamespacePolicies())), NamespaceExists)
    writer.do(AlterNamespace("default", NamespacePolicies(topics_max=1)))
    assert isinstance(create(writer, "a", namespace="default"), Topic)
    assert isinstance(create(writer, "b", namespace="default"), LimitReached)


def test_limits_bind_topics_and_partitions_and_a_delete_makes_room() -> None:
    writer = with_namespace(topics_max=2, partitions_max=4)
    first = create(writer, "a", 3)
    assert isinstance(first, Topic)
    assert isinstance(create(writer, "b", 2), LimitReached)
    assert isinstance(create(writer, "b", 1), Topic)
    assert isinstance(create(writer, "c", 1), LimitReached)
    assert isinstance(writer.do(AddPartitions(first.topic_id, 4)), LimitReached)
    writer.do(DeleteTopic(first.topic_id))
    third = create(writer, "c", 2)
    assert isinstance(third, Topic)
    assert isinstance(writer.do(AddPartitions(third.topic_id, 3)), Topic)
    assert (
        writer.ledger.namespaces.topics_of("acme/shop"),
        writer.ledger.namespaces.partitions_of("acme/shop"),
    ) == (
        2,
        4,
    )


def test_a_namespace_with_topics_stays() -> None:
    writer = with_namespace()
    topic = create(writer, "a")
    assert isinstance(topic, Topic)
    assert isinstance(writer.do(RemoveNamespace("acme/shop")), NamespaceInUse)
    writer.do(DeleteTopic(topic.topic_id))
    assert isinstance(writer.do(RemoveNamespace("acme/shop")), TopicNamespace)
    assert isinstance(writer.do(RemoveNamespace("acme/shop")), NamespaceNotFound)


@pytest.mark.parametrize(
    "policies",
    [
        NamespacePolicies(ttl_ms=-1),
        NamespacePolicies(retention_ms=-2),
        NamespacePolicies(topics_max=-1),
        NamespacePolicies(partitions=0),
        NamespacePolicies(principals=("alice",)),
    ],
)
def test_policies_out_of_range_are_refused(policies: NamespacePolicies) -> None:
    writer = with_namespace()
    assert isinstance(writer.do(AlterNamespace("acme/shop", policies)), InvalidInput)
    assert isinstance(writer.do(AddNamespace("other", policies)), InvalidInput)


def test_a_checkpoint_keeps_namespaces_and_what_they_hold() -> None:
    writer = with_namespace(bytes_max=7, partitions_max=3)
    create(writer, "a", 3)
    loaded = Ledger.decode(writer.ledger.encode())
    assert list(loaded.namespaces) == list(writer.ledger.namespaces)
    assert loaded.namespaces.byte_limits == {"acme/shop": 7}
    assert loaded.namespaces.partitions_of("acme/shop") == 3
    assert loaded.digest() == writer.ledger.digest()
