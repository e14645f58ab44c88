"""Publishes to RabbitMQ without waiting for each confirm, which only the asynchronous client supports."""

from __future__ import annotations

import time
from typing import Any

import pika

_IN_FLIGHT = 1000


class Publisher:
    """Publishes to one queue for a while; `run` returns how many were confirmed."""

    def __init__(
        self, parameters: pika.ConnectionParameters, queue: str, payload: bytes, seconds: float
    ) -> None:
        self._queue = queue
        self._payload = payload
        self._seconds = seconds
        self._until = 0.0
        self._published = 0
        self._settled = 0  # highest tag below which all are confirmed
        self._apart: set[int] = set()  # confirmed beyond it
        self._refused = 0
        self._kept = pika.BasicProperties(delivery_mode=2)
        self._channel: Any = None
        self._connection = pika.SelectConnection(parameters, on_open_callback=self._opened)

    def run(self) -> int:
        self._connection.ioloop.start()
        return self._settled - self._refused

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._ready)

    def _ready(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._confirmed)
        self._until = time.perf_counter() + self._seconds
        self._fill()

    def _fill(self) -> None:
        waiting = self._published - self._settled - len(self._apart)
        if time.perf_counter() < self._until:
            for _ in range(_IN_FLIGHT - waiting):
                self._channel.basic_publish("", self._queue, self._payload, self._kept)
                self._published += 1
        elif waiting == 0:
            self._connection.ioloop.stop()
            self._connection.close()

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        self._refused += isinstance(method, pika.spec.Basic.Nack)
        if method.multiple:
            self._settled = max(self._settled, method.delivery_tag)
            self._apart = {tag for tag in self._apart if tag > self._settled}
        else:
            self._apart.add(method.delivery_tag)
        while self._settled + 1 in self._apart:
            self._settled += 1
            self._apart.remove(self._settled)
        self._fill()
