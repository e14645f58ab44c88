"""The registry: which sections a ledger has. To add a section, add its line to `Sections`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union, get_type_hints

import msgspec

from mainstem.ledger.access_rules import AccessRules
from mainstem.ledger.api_keys import ApiKeys
from mainstem.ledger.broker_settings import BrokerSettings
from mainstem.ledger.brokers import Brokers
from mainstem.ledger.buckets import Buckets
from mainstem.ledger.compaction_horizons import CompactionHorizons
from mainstem.ledger.compactions import Compactions
from mainstem.ledger.consumer_groups import ConsumerGroups
from mainstem.ledger.credentials import Credentials
from mainstem.ledger.cursors import Cursors
from mainstem.ledger.erasures import Erasures
from mainstem.ledger.generations import Generations
from mainstem.ledger.group_generations import GroupGenerations
from mainstem.ledger.group_settings import GroupSettings
from mainstem.ledger.idempotency import IdempotencyKeys
from mainstem.ledger.members import Members
from mainstem.ledger.namespaces import Namespaces
from mainstem.ledger.producer_epochs import ProducerEpochs
from mainstem.ledger.producers import Producers
from mainstem.ledger.publish_sequences import PublishSequences
from mainstem.ledger.queues import Queues
from mainstem.ledger.rates import Rates
from mainstem.ledger.record_times import RecordTimes
from mainstem.ledger.repacked_objects import RepackedObjects
from mainstem.ledger.reports import Reports
from mainstem.ledger.routers import Routers
from mainstem.ledger.schemas import Schemas
from mainstem.ledger.section import Buffer, Command, Section
from mainstem.ledger.shares import Shares
from mainstem.ledger.sinks import Sinks
from mainstem.ledger.streams import Streams
from mainstem.ledger.subscriptions import Subscriptions
from mainstem.ledger.tables import Tables
from mainstem.ledger.tasks import Tasks
from mainstem.ledger.tiers import Tiers
from mainstem.ledger.topic_schemas import TopicSchemas
from mainstem.ledger.topics import Topics
from mainstem.ledger.transactions import Transactions


class Sections:
    """Each line names a section and its class. A section comes after those it requires.

    The order is fixed: sections are loaded, digested and encoded in it, and react to events in it. The name is the
    attribute of the ledger and the key in a checkpoint."""

    streams: Streams
    namespaces: Namespaces
    topics: Topics
    producers: Producers
    idempotency: IdempotencyKeys
    consumer_groups: ConsumerGroups
    cursors: Cursors
    subscriptions: Subscriptions
    transactions: Transactions
    sinks: Sinks
    brokers: Brokers
    members: Members
    queues: Queues
    record_times: RecordTimes
    shares: Shares
    tasks: Tasks
    compactions: Compactions
    compaction_horizons: CompactionHorizons
    generations: Generations
    routers: Routers
    tables: Tables
    repacked: RepackedObjects
    tiers: Tiers
    group_settings: GroupSettings
    group_generations: GroupGenerations
    credentials: Credentials
    access_rules: AccessRules
    rates: Rates
    reports: Reports
    api_keys: ApiKeys
    schemas: Schemas
    buckets: Buckets
    topic_schemas: TopicSchemas
    producer_epochs: ProducerEpochs
    publish_sequences: PublishSequences
    broker_settings: BrokerSettings
    erasures: Erasures


class Registry:
    """What a list of sections implies: the commands, and the contents of a checkpoint."""

    def __init__(self, sections: type[Sections]) -> None:
        self.sections: dict[str, type[Section[Any]]] = get_type_hints(sections)
        self.commands: dict[int, type[Command]] = {}  # by tag
        for section in self.sections.values():
            for command in section.appliers:
                tag = command.__struct_config__.tag
                if not isinstance(tag, int) or tag in self.commands:
                    raise AssertionError(f"{command.__name__} has no tag of its own")
                self.commands[tag] = command
        union: Any = Union[tuple(self.commands.values())]  # noqa: UP007
        self.decode_command: Callable[[Buffer], Command] = msgspec.msgpack.Decoder(union).decode
        states = [(name, section.state_type) for name, section in self.sections.items()]
        self.states_type: type[msgspec.Struct] = msgspec.defstruct(
            "SectionStates", states, frozen=True, forbid_unknown_fields=True
        )


REGISTRY = Registry(Sections)
