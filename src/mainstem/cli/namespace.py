"""`mainstem namespace …`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import click
import msgspec

from mainstem.api.namespaces import NamespaceDescriptionBody
from mainstem.api.topics import BacklogPolicy, InactiveMode
from mainstem.cli.confirmation import confirm, yes_option
from mainstem.cli.output import as_json_option, print_fields, print_rows
from mainstem.cli.target import Server, takes_server


@click.group()
def namespace() -> None:
    """Create, show, change and delete namespaces of topics."""


_POLICIES: tuple[tuple[str, Any, str], ...] = (
    ("retention_ms", int, "retention.ms of new topics; -1: off."),
    ("retention_bytes", int, "retention.bytes of new topics; -1: off."),
    ("ttl_ms", int, "Lifetime of records in new topics; 0: off."),
    ("durability", click.Choice(["ephemeral", "memory", "disk", "fsync"]), "Durability of new topics."),
    ("partitions", int, "Partitions of new topics."),
    ("keep_backlog", bool, "Whether retention of new topics keeps what subscriptions have not acknowledged."),
    ("subscription_ttl_ms", int, "Age at which subscriptions of new topics skip a record; 0: never."),
    ("backlog_bytes", int, "Backlog quota of new topics, in bytes; 0: no limit."),
    ("backlog_bytes_policy", click.Choice(get_args(BacklogPolicy)), "What happens above that quota."),
    ("backlog_ms", int, "Backlog quota of new topics, as the age of a record; 0: no limit."),
    ("backlog_ms_policy", click.Choice(get_args(BacklogPolicy)), "What happens above that quota."),
    ("deduplication", bool, "Whether new topics store a message of a Pulsar producer once."),
    ("producers_max", int, "Pulsar producers of a partition of new topics; 0: no limit."),
    ("consumers_max", int, "Consumers of a partition of new topics, in all subscriptions; 0: no limit."),
    ("subscriptions_max", int, "Subscriptions of a partition of new topics; 0: no limit."),
    ("subscription_consumers_max", int, "Consumers of a subscription of new topics; 0: no limit."),
    ("consumer_unacked_max", int, "Messages a consumer of new topics may hold; 0: the server's limit."),
    ("subscription_unacked_max", int, "Messages its consumers may hold together; 0: the server's limit."),
    ("subscription_expiry_ms", int, "Time without consumers that ends a subscription; 0: never."),
    ("inactive_ms", int, "Time without clients that deletes a new topic; 0: never."),
    ("inactive_mode", click.Choice(get_args(InactiveMode)), "When a topic counts as one without clients."),
    ("topics_max", int, "Maximum number of topics; 0: no limit."),
    ("partitions_max", int, "Maximum partitions of all topics together; 0: no limit."),
    ("bytes_max", int, "Maximum bytes of live records; 0: no limit."),
)


def _takes_policies(command: Callable[..., None]) -> Callable[..., None]:
    command = click.option(
        "--principal", "principals", multiple=True, help="Who may use it, as User:NAME; repeatable."
    )(command)
    for field, kind, help in reversed(_POLICIES):
        command = click.option(f"--{field.replace('_', '-')}", field, type=kind, help=help)(command)
    return command


def _body(policies: dict[str, Any]) -> NamespaceDescriptionBody:
    given = {field: value for field, value in policies.items() if value not in (None, ())}
    return NamespaceDescriptionBody(**given)


@namespace.command()
@takes_server
@click.argument("name")
@_takes_policies
@as_json_option
def create(server: Server, name: str, as_json: bool, **policies: Any) -> None:
    """Create a namespace."""
    _put(server, name, policies, as_json)


@namespace.command()
@takes_server
@click.argument("name")
@_takes_policies
@as_json_option
def alter(server: Server, name: str, as_json: bool, **policies: Any) -> None:
    """Change policies of a namespace. The others stay."""
    server.run(lambda client: client.namespace(name))  # it exists
    _put(server, name, policies, as_json)


def _put(server: Server, name: str, policies: dict[str, Any], as_json: bool) -> None:
    body = _body(policies)
    done = server.run(lambda client: client.put_namespace(name, body))
    print_fields(msgspec.to_builtins(done.namespace), as_json)


@namespace.command("list")
@takes_server
@as_json_option
def list_namespaces(server: Server, as_json: bool) -> None:
    """List namespaces."""
    found = server.run(lambda client: client.namespaces())
    print_rows([msgspec.to_builtins(row) for row in found], as_json)


@namespace.command()
@takes_server
@click.argument("name")
@as_json_option
def show(server: Server, name: str, as_json: bool) -> None:
    """Show the policies of a namespace, and how much it holds."""
    found = server.run(lambda client: client.namespace(name))
    print_fields(msgspec.to_builtins(found), as_json)


@namespace.command()
@takes_server
@click.argument("name")
@click.option("--force", is_flag=True, help="Delete its topics and their records too.")
@yes_option
@as_json_option
def delete(server: Server, name: str, force: bool, yes: bool, as_json: bool) -> None:
    """Delete a namespace."""
    confirm(f"Delete namespace {name}{' with all its topics and their records' if force else ''}?", yes)
    done = server.run(lambda client: client.delete_namespace(name, force=force))
    print_fields({"namespace": done.namespace, "topics_deleted": done.topics_deleted}, as_json)
