"""`mainstem topic …`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from mainstem.cli.directory import with_broker
from mainstem.cli.settings import takes_settings
from mainstem.cli.tables import print_table
from mainstem.config import Resolved

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker, PartitionState, TopicInfo

_configs = click.option(
    "-c",
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A topic setting, such as retention.ms=86400000 or mainstem.durability=disk. May be repeated.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command()
@takes_settings("data_dir", "durability")
@click.argument("names", nargs=-1, required=True)
@click.option("-p", "--partitions", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--if-not-exists", is_flag=True, help="Leave a topic that exists as it is.")
@_configs
def create(
    resolved: Resolved,
    names: tuple[str, ...],
    partitions: int,
    if_not_exists: bool,
    settings: tuple[str, ...],
) -> None:
    """Create topics."""
    wanted = _parsed(settings)

    async def work(broker: Broker) -> None:
        from mainstem.broker.configs import parse
        from mainstem.broker.options import broker_options

        config = parse(wanted, broker_options(resolved.config).default_config)
        for name in names:
            await broker.create_topic(name, partitions=partitions, config=config, exist_ok=if_not_exists)

    with_broker(resolved.config, work, create=True)


@topic.command("list")
@takes_settings("data_dir")
@click.option("--prefix", default="", help="Only topics whose name starts with this.")
@_as_json
def list_topics(resolved: Resolved, prefix: str, as_json: bool) -> None:
    """List topics."""

    async def work(broker: Broker) -> list[tuple[TopicInfo, list[PartitionState]]]:
        return [(info, _states(broker, info)) for info in broker.topics(prefix)]

    found = [
        {
            "name": info.name,
            "partitions": info.partitions,
            "records": sum(state.records for state in states),
            "bytes": sum(state.bytes for state in states),
            "type": info.config.type,
            "durability": info.config.durability,
        }
        for info, states in with_broker(resolved.config, work)
    ]
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif found:
        print_table([*found[0]], [[*row.values()] for row in found])


@topic.command()
@takes_settings("data_dir")
@click.argument("name")
@_as_json
def describe(resolved: Resolved, name: str, as_json: bool) -> None:
    """Show a topic's partitions and settings."""

    async def work(broker: Broker) -> tuple[TopicInfo, list[PartitionState]]:
        info = broker.topic(name)
        return info, _states(broker, info)

    from mainstem.broker import configs

    info, states = with_broker(resolved.config, work)
    settings = configs.describe(info.config)
    partitions = [
        {
            "partition": state.partition,
            "start": state.start,
            "end": state.end,
            "records": state.records,
            "bytes": state.bytes,
            "max_timestamp_ms": state.max_timestamp_ms,
        }
        for state in states
    ]
    if as_json:
        shown = {"name": info.name, "id": info.topic_id.hex(), "partitions": partitions, "settings": settings}
        click.echo(json.dumps(shown, indent=2))
        return
    click.echo(f"{info.name}  ({info.topic_id.hex()})\n")
    print_table([*partitions[0]], [[*row.values()] for row in partitions])
    click.echo()
    print_table(["setting", "value"], [*settings.items()])


@topic.command()
@takes_settings("data_dir")
@click.argument("name")
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="Grow to this many partitions.")
@_configs
def alter(resolved: Resolved, name: str, partitions: int | None, settings: tuple[str, ...]) -> None:
    """Change a topic's settings; those not named stay as they are."""
    changes = _parsed(settings)
    if not changes and partitions is None:
        raise click.UsageError("nothing to change: give -c KEY=VALUE or --partitions N")

    async def work(broker: Broker) -> None:
        from mainstem.broker.configs import parse

        config = parse(changes, broker.topic(name).config)
        if partitions is not None:
            await broker.add_partitions(name, partitions)
        if changes:
            await broker.alter_topic(name, config)

    with_broker(resolved.config, work)


@topic.command()
@takes_settings("data_dir")
@click.argument("names", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(resolved: Resolved, names: tuple[str, ...], yes: bool) -> None:
    """Delete topics and all their records."""
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(names)} and all records?", abort=True, err=True)

    async def work(broker: Broker) -> None:
        for name in names:
            broker.topic(name)  # all are there, or none is deleted
        for name in names:
            await broker.delete_topic(name)

    with_broker(resolved.config, work)


def _states(broker: Broker, info: TopicInfo) -> list[PartitionState]:
    return [broker.partition(info.name, partition) for partition in range(info.partitions)]


def _parsed(settings: tuple[str, ...]) -> dict[str, str]:
    parsed: dict[str, str] = {}
    for pair in settings:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"-c takes KEY=VALUE, not {pair!r}")
        parsed[key.strip()] = value.strip()
    return parsed
