"""What one broker finds out about tables, the others tell too."""

from __future__ import annotations

from mainstem.broker.broker import Broker
from mainstem.ledger.config import TopicConfig


async def test_every_broker_tells_why_a_table_cannot_be_settled(two_brokers: list[Broker]) -> None:
    one, two = two_brokers
    for name in ("a-b", "a_b"):  # both would be the table a_b
        await one.create_topic(name, config=TopicConfig(table=True))
    problems = await one.topic_tables.maintain()
    assert list(problems) == ["a_b"]
    await two.log.barrier()
    assert two.topic_tables.works().problems == problems
    await one.delete_topic("a-b")
    assert await two.topic_tables.maintain() == {}
    await one.log.barrier()
    assert one.topic_tables.works().problems == {}
