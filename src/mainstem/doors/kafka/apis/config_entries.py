"""Kafka's numbers for configurable resources, the sources of a value and value types."""

from __future__ import annotations

from enum import IntEnum

from mainstem.broker.topics.configs import Source
from mainstem.broker.topics.topic_settings import Kind


class Resource(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


GROUP_SOURCE = 8  # a group's own setting
ALL_BROKERS_SOURCE = 3  # changed at run time, for all brokers
SOURCES: dict[Source, int] = {"topic": 1, "server": 4, "default": 5}

TYPES: dict[Kind, int] = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
