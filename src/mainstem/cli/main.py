"""`mainstem`: the commands and their exit codes.

Exit codes: 0 success, 1 failure (one line on stderr says why), 2 invalid usage, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from mainstem.cli.context import CONTEXT_ENV, flag_to_environment
from mainstem.cli.context import enter as enter_context
from mainstem.cli.names import complete_contexts
from mainstem.client.environment import KEY_ENV, NAMESPACE_ENV, URL_ENV
from mainstem.errors import MainstemError, Unauthorized
from mainstem.values import did_you_mean
from mainstem.version import VERSION

# Name → (location, help). The module of a command is imported when the command runs, not for the help.
COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("mainstem.cli.serve:serve", "Run a server."),
    "config": ("mainstem.cli.config:config", "Show every setting, its value and its source."),
    "topic": ("mainstem.cli.topic:topic", "Create, list, describe, alter and delete topics."),
    "produce": ("mainstem.cli.produce:produce", "Append records from arguments or standard input."),
    "consume": ("mainstem.cli.consume:consume", "Print records."),
    "tail": ("mainstem.cli.tail:tail", "Print new records as they are written."),
    "namespace": (
        "mainstem.cli.namespace:namespace",
        "Create, show, change and delete namespaces of topics.",
    ),
    "group": ("mainstem.cli.group:group", "List, describe, reset and delete consumer groups."),
    "subscription": (
        "mainstem.cli.subscription:subscription",
        "List, move, peek at and delete Pulsar subscriptions.",
    ),
    "queue": ("mainstem.cli.queue:queue", "List queues, claim jobs and settle them."),
    "router": ("mainstem.cli.router:router", "Copy the records of one topic to another."),
    "rate": ("mainstem.cli.rate:rate", "Limit what clients, groups and namespaces produce and consume."),
    "audit": ("mainstem.cli.audit:audit", "Print the audit log: administrative and denied operations."),
    "erase": ("mainstem.cli.erase:erase", "Erase records: from readers, files, tables and copies."),
    "table": ("mainstem.cli.table:table", "Publish topics as Iceberg tables."),
    "lake": ("mainstem.cli.lake:lake", "Convert records to tables with Spark."),
    "pipeline": (
        "mainstem.cli.pipeline:pipeline",
        "Run pipelines of topics and tables with Spark; show their state.",
    ),
    "replay": ("mainstem.cli.replay:replay", "Write a range of a topic again, with Spark."),
    "sql": ("mainstem.cli.sql:sql", "Query topics and tables with SQL."),
    "backup": ("mainstem.cli.backup:backup", "Back up the whole log to a folder or a bucket."),
    "restore": ("mainstem.cli.backup:restore", "Restore a backup into a new data directory."),
    "migrate": ("mainstem.cli.migrate:migrate", "Move the log of a data directory to a cluster."),
    "cluster": ("mainstem.cli.cluster:cluster", "Show and check the brokers that share a log."),
    "context": ("mainstem.cli.context:context", "Name servers, and choose the one that commands talk to."),
    "key": ("mainstem.cli.security:key", "Create, list, rotate and revoke API keys."),
    "user": ("mainstem.cli.security:user", "Create, list and delete users, and change passwords."),
    "acl": ("mainstem.cli.security:acl", "Add, list and remove access rules."),
    "check": ("mainstem.cli.check:check", "Check a data directory for damage, without changing it."),
    "repair": ("mainstem.cli.repair:repair", "Rewrite the checkpoints of a log after a digest mismatch."),
    "dump": ("mainstem.cli.dump:dump", "Show the contents of a log or checkpoint file."),
    "doctor": ("mainstem.cli.doctor:doctor", "Check this machine for problems."),
    "shell": ("mainstem.cli.shell:shell", "Run commands one after the other, with history."),
    "completion": (
        "mainstem.cli.completion:completion",
        "Print the completion script for bash, zsh or fish.",
    ),
    "bench": ("mainstem.cli.bench:bench", "Load a broker and measure throughput and latency."),
}

_WITHOUT_SERVER = frozenset(
    {"serve", "config", "context", "completion", "check", "repair", "dump", "restore", "migrate", "bench"}
)


def _server_options() -> list[click.Parameter]:
    """--url and --api-key before the name of a command, where they hold for it."""
    return [
        click.Option(
            [flag, name], expose_value=False, callback=flag_to_environment, metavar=metavar, help=help
        )
        for flag, name, metavar, help in (
            ("--url", "_url", "URL", "URL of the server. [MAINSTEM_URL]"),
            ("--api-key", "_api_key", "KEY", "API key. [MAINSTEM_API_KEY]"),
        )
    ]


class LazyGroup(click.Group):
    """A group that imports each command when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        if isinstance(command, click.Group) and not any(one.name == "_url" for one in command.params):
            command.params += _server_options()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no command {args[0]!r}{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="mainstem")
@click.option(
    "--context",
    "chosen",
    metavar="NAME",
    shell_complete=complete_contexts,
    help="Use the server of this context. [MAINSTEM_CONTEXT]",
)
@click.pass_context
def cli(ctx: click.Context, chosen: str | None) -> None:
    """Kafka-compatible log, queues and Iceberg tables in one Python process."""
    if ctx.invoked_subcommand not in _WITHOUT_SERVER:
        enter_context(ctx, chosen)


cli.params += _server_options()


def main() -> None:
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of this process, and return the exit code."""
    server = {name: os.environ.get(name) for name in (URL_ENV, KEY_ENV, NAMESPACE_ENV, CONTEXT_ENV)}
    try:
        return _run(arguments)
    finally:  # a shell runs many commands in one process
        for name, value in server.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = cli.main(arguments, prog_name="mainstem", standalone_mode=False)
    except click.ClickException as error:  # invalid usage
        error.show()
        return error.exit_code
    except Unauthorized as error:
        click.echo(f"error: {error}\nname the key with --api-key or MAINSTEM_API_KEY", err=True)
        return 1
    except MainstemError as error:
        click.echo(f"error: {error}", err=True)
        return 1
    except click.Abort:
        click.echo("interrupted", err=True)
        return 130
    return code if isinstance(code, int) else 0
