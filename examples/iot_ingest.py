"""Ingest readings of many sensors, keep the order of each, and find the ones that are too hot.

Sensors write in parallel, keyed by device, so each device's readings stay in order. A consumer group raises alarms and
commits its offsets together with them, so a crash neither loses nor repeats an alarm. SQL summarises the same records.

Needs a running server (`mainstem serve`). Set MAINSTEM_URL if it is not at the default address.
"""

from __future__ import annotations

import secrets
import threading

import mainstem

DEVICES = 8
READINGS = 200  # of each device
HOT_C = 90.0


def main() -> None:
    readings = f"readings-{secrets.token_hex(4)}"
    alarms = f"{readings}.alarms"
    with mainstem.Client() as client:
        client.create_topic(readings, partitions=4, ttl_ms=7 * 86_400_000)
        client.create_topic(alarms)
        sensors = [threading.Thread(target=sense, args=(client, readings, number)) for number in range(DEVICES)]
        for sensor in sensors:
            sensor.start()
        for sensor in sensors:
            sensor.join()
        print(client.topic(readings).count, "readings from", DEVICES, "devices")
        raise_alarms(client, readings, alarms)
        for alarm in client.read(alarms):
            print("too hot:", alarm.key, alarm.value["celsius"])
        hottest = client.sql(
            f"""SELECT decode(_key) AS device, max((decode(_value)->>'celsius')::DOUBLE) AS celsius
                FROM "{readings}" GROUP BY ALL ORDER BY celsius DESC LIMIT 1"""
        )
        print("the hottest:", hottest.rows()[0]["device"])
        client.delete_topic(readings)
        client.delete_topic(alarms)


def sense(client: mainstem.Client, topic: str, number: int) -> None:
    """One device. The producer sends batches in order, each exactly once."""
    with client.producer(topic, linger_ms=20) as producer:
        for tick in range(READINGS):
            celsius = 20.0 + number * 10 + tick / 100
            producer.send({"tick": tick, "celsius": celsius}, key=f"device-{number}")


def raise_alarms(client: mainstem.Client, readings: str, alarms: str) -> None:
    """Read everything once. Write the first hot reading of each device."""
    left, reported, ticks = DEVICES * READINGS, set[str](), dict[str, int]()
    with client.consumer(readings, group=f"{readings}.alarms", auto_commit=False) as consumer:
        while left:
            batch = consumer.poll()
            with client.transaction(f"{readings}.alarms-1") as transaction:
                for record in batch:
                    device, value = str(record.key), record.value
                    assert value["tick"] == ticks.get(device, -1) + 1, "the readings of a device stay in order"
                    ticks[device] = value["tick"]
                    if value["celsius"] >= HOT_C and device not in reported:
                        reported.add(device)
                        transaction.produce(alarms, value, key=device)
                transaction.commit_offsets(consumer)
            left -= len(batch)


if __name__ == "__main__":
    main()
