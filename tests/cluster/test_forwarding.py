"""A page that may call one broker only: that broker forwards what the coordinator of a group must answer."""

from __future__ import annotations

import httpx

from mainstem.address import Address
from mainstem.broker.broker import Broker
from mainstem.broker.namespaces import view_of
from mainstem.doors.http.door import HttpDoor

_FORWARD = {"mainstem-forward": "true"}


async def test_a_broker_forwards_calls_about_groups_that_another_one_coordinates(
    two_brokers: list[Broker],
) -> None:
    doors = [HttpDoor(broker) for broker in two_brokers]
    places = [await door.start(Address("127.0.0.1", 0)) for door in doors]
    for broker, place in zip(two_brokers, places, strict=True):
        await broker.cluster.join({"http": str(place)}, watch_peers=False)
    await two_brokers[0].barrier()
    other = two_brokers[1].log.broker
    group = next(
        name
        for name in (f"g{number}" for number in range(100))
        if two_brokers[0].cluster.coordinator("group", name) == other
    )
    url = f"/v0/groups/{group}"
    async with (
        httpx.AsyncClient(base_url=f"http://{places[0]}") as one,
        httpx.AsyncClient(base_url=f"http://{places[1]}") as two,
    ):
        await two.put("/v0/topics/t", json={})
        joined = await two.post(f"{url}/join", json={"topics": ["t"]})
        assert joined.status_code == 200, joined.text

        redirected = await one.get(url)
        assert redirected.status_code == 307
        assert redirected.headers["location"] == f"http://{places[1]}{url}"

        shown = await one.get(url, headers=_FORWARD)
        assert shown.status_code == 200, shown.text
        assert (len(shown.json()["members"]), shown.json()["coordinator"]) == (1, None)
        assert shown.headers["content-type"] == "application/json"

        refused = await one.delete(url, headers=_FORWARD)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "group_not_empty")

        await doors[1].stop(0)
        gone = await one.get(url, headers=_FORWARD)
        assert (gone.status_code, gone.json()["error"]["code"]) == (503, "not_ready")
        assert str(places[1]) in gone.json()["error"]["message"]
        assert (await one.get(f"{url}?redirect=false")).json()["coordinator"] == str(places[1])
    await doors[0].stop(0)


async def test_a_forwarded_request_stays_in_the_namespace_of_its_listener(
    two_brokers: list[Broker],
) -> None:
    bound, unbound = (HttpDoor(broker) for broker in two_brokers)
    await two_brokers[0].namespaces.create("acme/shop")
    places = [
        await bound.start(Address("127.0.0.1", 0, namespace="acme/shop")),
        await unbound.start(Address("127.0.0.1", 0)),
    ]
    for broker, place in zip(two_brokers, places, strict=True):
        await broker.cluster.join({"http": str(place)}, watch_peers=False)
    await two_brokers[0].barrier()
    other = two_brokers[1].log.broker
    group = next(
        name
        for name in (f"g{number}" for number in range(1000))
        if all(
            two_brokers[0].cluster.coordinator("group", id) == other
            for id in (name, view_of("acme/shop").id(name))
        )
    )
    async with (
        httpx.AsyncClient(base_url=f"http://{places[0]}") as inside,
        httpx.AsyncClient(base_url=f"http://{places[1]}") as outside,
    ):
        await outside.put("/v0/topics/t", json={})
        joined = await outside.post(f"/v0/groups/{group}/join", json={"topics": ["t"]})
        assert joined.status_code == 200, joined.text
        shown = await inside.get(f"/v0/groups/{group}", headers=_FORWARD)
        assert shown.status_code == 404, shown.text
        left = await inside.get(f"/v0/groups/{group}")
        assert left.status_code == 307
        assert left.headers["location"].endswith("?namespace=acme/shop")
    await bound.stop(0)
    await unbound.stop(0)
