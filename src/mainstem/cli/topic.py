"""`mainstem topic …`."""

from __future__ import annotations

from dataclasses import asdict

import click

from mainstem.cli.confirmation import confirm, yes_option
from mainstem.cli.context import set_variable
from mainstem.cli.names import complete_settings, complete_topics
from mainstem.cli.output import as_json_option, print_json, print_rows
from mainstem.cli.store import Store
from mainstem.cli.tables import print_table
from mainstem.cli.target import Target, takes_target
from mainstem.client.environment import NAMESPACE_ENV

_configs = click.option(
    "-c",
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_settings,
    help="Topic setting, for example retention.ms=86400000 or mainstem.durability=disk. May be repeated.",
)


@click.group()
@click.option("-n", "--namespace", help="Namespace of the topics, on a server; else MAINSTEM_NAMESPACE.")
@click.pass_context
def topic(ctx: click.Context, namespace: str | None) -> None:
    """Create, list, describe, alter and delete topics."""
    if namespace:
        set_variable(ctx, NAMESPACE_ENV, namespace)


@topic.command()
@takes_target("durability")
@click.argument("names", nargs=-1, required=True)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of partitions.",
)
@click.option("--if-not-exists", is_flag=True, help="Leave an existing topic unchanged.")
@_configs
def create(
    target: Target,
    names: tuple[str, ...],
    partitions: int,
    if_not_exists: bool,
    settings: tuple[str, ...],
) -> None:
    """Create topics."""
    wanted = _parsed(settings)
    if not target.offline and target.resolved.sources["durability"] == "flag":
        wanted.setdefault("mainstem.durability", target.resolved.config.durability)

    async def work(store: Store) -> None:
        for name in names:
            await store.create(name, partitions, wanted, if_not_exists)

    target.run(work, create=True)


@topic.command("list")
@takes_target()
@click.option("--prefix", default="", help="Only topics whose name starts with this.")
@as_json_option
def list_topics(target: Target, prefix: str, as_json: bool) -> None:
    """List topics."""
    found = target.run(lambda store: store.topics(prefix))
    print_rows([asdict(line) for line in found], as_json)


@topic.command()
@takes_target()
@click.argument("name", shell_complete=complete_topics)
@as_json_option
def describe(target: Target, name: str, as_json: bool) -> None:
    """Show the partitions and settings of a topic."""
    found = target.run(lambda store: store.describe(name))
    partitions = [asdict(line) for line in found.partitions]
    if as_json:
        print_json(
            {"name": found.name, "id": found.id, "partitions": partitions, "settings": dict(found.settings)}
        )
        return
    click.echo(f"{found.name}  ({found.id})\n")
    print_rows(partitions, as_json)
    click.echo()
    print_table(["setting", "value"], [*found.settings.items()])


@topic.command()
@takes_target()
@click.argument("name", shell_complete=complete_topics)
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="Grow to this many partitions.")
@_configs
def alter(target: Target, name: str, partitions: int | None, settings: tuple[str, ...]) -> None:
    """Change settings of a topic. Other settings stay the same."""
    changes = _parsed(settings)
    if not changes and partitions is None:
        raise click.UsageError("nothing to change: use -c KEY=VALUE or --partitions N")
    target.run(lambda store: store.alter(name, changes, partitions))


@topic.command()
@takes_target()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_topics)
@yes_option
def delete(target: Target, names: tuple[str, ...], yes: bool) -> None:
    """Delete topics and all their records."""
    confirm(f"Delete {', '.join(names)} and all records?", yes)

    async def work(store: Store) -> None:
        for name in names:
            await store.describe(name)  # check that all exist before deleting any
        for name in names:
            await store.delete(name)

    target.run(work)


def _parsed(settings: tuple[str, ...]) -> dict[str, str]:
    parsed: dict[str, str] = {}
    for pair in settings:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"-c takes KEY=VALUE, not {pair!r}")
        parsed[key.strip()] = value.strip()
    return parsed
