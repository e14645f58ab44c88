"""A broker that stops sends clients and work to the others first."""

from __future__ import annotations

from mainstem.broker.broker import Broker


async def test_a_broker_that_hands_over_leads_nothing_and_still_serves(two_brokers: list[Broker]) -> None:
    one, two = two_brokers
    for broker, port in ((one, 1), (two, 2)):
        await broker.cluster.join({"kafka": f"localhost:{port}"})
    await one.create_topic("t")
    for broker in two_brokers:
        await broker.log.barrier()
    assert {one.cluster.leader(stream) for stream in range(64)} == {one.log.broker, two.log.broker}
    await two.cluster.hand_over()
    await one.log.barrier()
    for broker in two_brokers:
        assert {broker.cluster.leader(stream) for stream in range(64)} == {one.log.broker}
        assert {broker.cluster.coordinator("group", f"g{n}") for n in range(64)} == {one.log.broker}
    assert not two.cluster.runs_here("upkeep")
    assert (await two.append_values("t", [b"late"])).base_offset == 0
    await one.cluster.hand_over()  # the last one keeps what it has
    assert one.cluster.runs_here("upkeep")
