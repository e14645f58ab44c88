"""`mainstem erase …`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mainstem.cli.confirmation import confirm, yes_option
from mainstem.cli.names import complete_topics
from mainstem.cli.output import as_json_option, print_fields, print_rows
from mainstem.cli.target import Server, takes_server
from mainstem.errors import InvalidInput

if TYPE_CHECKING:
    from mainstem.api.erasures import ErasureView

_POLL_S = 1.0
_GROUP_OPTIONS = ("-h", "--help", "--url", "--api-key")


class EraseGroup(click.Group):
    """`mainstem erase TOPIC …` is short for `mainstem erase start TOPIC …`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0].partition("=")[0] if args else "--help"
        if first not in self.commands and first not in _GROUP_OPTIONS:
            args = ["start", *args]
        return super().parse_args(ctx, args)


@click.group(cls=EraseGroup)
def erase() -> None:
    """Erase records: from readers, files, tables and copies.

    `mainstem erase TOPIC --key KEY` starts an erasure.
    """


@erase.command()
@takes_server
@click.argument("topic", shell_complete=complete_topics)
@click.option("--key", help="Records with this key.")
@click.option("--tag", metavar="TAG|PREFIX*", help="Records with this tag, or with this prefix of a tag.")
@click.option(
    "--where",
    metavar="PATH=VALUE",
    help="Records whose JSON value has this value at this path, such as customer.email=ann@example.com. Numbers, true, "
    "false and null are JSON; quote them to mean text.",
)
@click.option("--wait", is_flag=True, help="Wait until it is done, and print the phases.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --wait: write the signed report to this file.",
)
@yes_option
def start(
    server: Server,
    topic: str,
    key: str | None,
    tag: str | None,
    where: str | None,
    wait: bool,
    report: Path | None,
    yes: bool,
) -> None:
    """Erase records of all partitions of TOPIC, and the copies that routers and dead letters made of them.

    Readers stop seeing the records at once. Their bytes are gone once the erasure is done: the server rewrites its
    files, and keeps replaced ones for some minutes for current readers.
    """
    if sum(one is not None for one in (key, tag, where)) != 1:
        raise click.UsageError("use one of --key, --tag and --where")
    if report is not None and not wait:
        raise click.UsageError("use --report with --wait, or `mainstem erase show ID --report FILE` later")
    condition = None if where is None else _condition(where)
    confirm(f"Erase these records of topic {topic}, and copies of them, for good?", yes)
    found = server.run(lambda client: client.erase(topic, key=key, match=tag, where=condition))
    click.echo(f"erasure {found.id} accepted")
    if not wait:
        return
    found = _wait(server, found)
    if found.phase == "failed":
        raise InvalidInput(f"erasure {found.id} failed: {found.problem}")
    if report is not None:
        report.write_text(found.report, encoding="utf-8")


def _condition(text: str) -> tuple[str, Any]:
    path, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError("--where is PATH=VALUE")
    try:
        return path.strip(), json.loads(value)
    except ValueError:
        return path.strip(), value.strip()


def _wait(server: Server, found: ErasureView) -> ErasureView:
    """Wait until an erasure ends."""
    shown, id = ("", ""), found.id
    while True:
        if (found.phase, found.waits_for) != shown:
            shown = found.phase, found.waits_for
            click.echo(found.phase + (f": {found.waits_for}" if found.waits_for else ""))
        if found.phase in ("done", "failed"):
            return found
        time.sleep(_POLL_S)
        found = server.run(lambda client: client.erasure(id))


@erase.command("list")
@takes_server
@as_json_option
def list_erasures(server: Server, as_json: bool) -> None:
    """List erasures, and how far each one is."""
    found = server.run(lambda client: client.erasures())
    columns = ("id", "topic", "by", "phase", "waits_for")
    print_rows([{name: getattr(row, name) for name in columns} for row in found], as_json)


@erase.command()
@takes_server
@click.argument("id")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the signed report to this file.",
)
@as_json_option
def show(server: Server, id: str, report: Path | None, as_json: bool) -> None:
    """Show how far an erasure is."""
    found = server.run(lambda client: client.erasure(id))
    if report is not None:
        if not found.report:
            raise InvalidInput(f"erasure {id} is not done: its phase is {found.phase}")
        report.write_text(found.report, encoding="utf-8")
        return
    fields: dict[str, Any] = {
        name: getattr(found, name) for name in ("id", "topic", "by", "phase", "waits_for", "problem")
    }
    fields["topics"] = [f"{one.topic}: {one.records_deleted} records ({one.why})" for one in found.topics]
    fields["public_key"] = found.public_key
    if as_json:
        fields["report"] = json.loads(found.report) if found.report else None
    print_fields(fields, as_json)


@erase.command()
@takes_server
@click.argument("report", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--public-key", metavar="HEX", help="Public key of the server. [default: ask the server]")
@as_json_option
def verify(server: Server, report: Path, public_key: str | None, as_json: bool) -> None:
    """Verify the signature of a report, and print it."""
    from mainstem.broker.erasures.reports import verify_report

    signed = report.read_bytes()
    if public_key is None:
        id = _id_of(signed)
        public_key = server.run(lambda client: client.erasure(id)).public_key
    found = verify_report(signed, public_key)
    print_fields(found, as_json)
    click.echo("the signature is valid", err=True)


def _id_of(report: bytes) -> str:
    try:
        return str(json.loads(report)["erasure"])
    except (ValueError, KeyError, TypeError):
        raise InvalidInput("this is not the report of an erasure") from None
