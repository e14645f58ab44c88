"""`mainstem`: the commands and how they end.

Exit codes: 0 done, 1 it could not be done (one line on stderr says why), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from mainstem.errors import MainstemError
from mainstem.values import did_you_mean
from mainstem.version import VERSION

# Name → where it lives and what it does. A command's module is imported when it is run, not for the help.
COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("mainstem.cli.serve:serve", "Run a server until it is told to stop."),
    "config": ("mainstem.cli.config:config", "Show every setting and where its value comes from."),
    "topic": ("mainstem.cli.topic:topic", "Create, list, describe, alter and delete topics."),
    "produce": ("mainstem.cli.produce:produce", "Append records from arguments or standard input."),
    "consume": ("mainstem.cli.consume:consume", "Print records."),
    "tail": ("mainstem.cli.tail:tail", "Print records as they come."),
    "group": ("mainstem.cli.group:group", "Consumer groups: lag, reset, delete."),
    "queue": ("mainstem.cli.queue:queue", "Queues: claim jobs and settle them."),
    "router": ("mainstem.cli.router:router", "Copy what comes to one topic to another."),
    "table": ("mainstem.cli.table:table", "Keep topics as Iceberg tables."),
    "lake": ("mainstem.cli.lake:lake", "Make records into tables, on Spark."),
    "pipeline": (
        "mainstem.cli.pipeline:pipeline",
        "Run pipelines of topics and tables, on Spark; see how they do.",
    ),
    "replay": ("mainstem.cli.replay:replay", "Write a stretch of a topic again, on Spark."),
    "sql": ("mainstem.cli.sql:sql", "Ask SQL of topics and tables, on Spark."),
    "backup": ("mainstem.cli.backup:backup", "Copy everything as of now to a folder or a bucket."),
    "restore": ("mainstem.cli.backup:restore", "Bring a backup back into a new data directory."),
    "migrate": ("mainstem.cli.migrate:migrate", "Move a data directory's log to where brokers share it."),
    "cluster": ("mainstem.cli.cluster:cluster", "Brokers that share a log: who is there, do they agree."),
    "check": ("mainstem.cli.check:check", "Look for damage in a data directory, changing nothing."),
    "repair": ("mainstem.cli.repair:repair", "Write a log's checkpoints again after digests disagreed."),
    "dump": ("mainstem.cli.dump:dump", "Show what is in a log or checkpoint file."),
    "doctor": ("mainstem.cli.doctor:doctor", "Look for what keeps Mainstem from working here."),
    "completion": ("mainstem.cli.completion:completion", "Complete commands in bash, zsh or fish."),
    "bench": ("mainstem.cli.bench:bench", "Load a broker and measure its throughput and latency."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
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
def cli() -> None:
    """One durable log, many doors, and every topic is a table."""


def main() -> None:
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, this process's own by default; returns the exit code."""
    try:
        code = cli.main(arguments, prog_name="mainstem", standalone_mode=False)
    except click.ClickException as error:  # wrong usage
        error.show()
        return error.exit_code
    except MainstemError as error:
        click.echo(f"error: {error}", err=True)
        return 1
    except click.Abort:
        click.echo("interrupted", err=True)
        return 130
    return code if isinstance(code, int) else 0
