"""`mainstem cluster …`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click
import msgspec

from mainstem import limits
from mainstem.cli.doctor_checks import Finding
from mainstem.cli.local_cluster import start
from mainstem.cli.output import as_json_option, print_fields, print_json, print_rows
from mainstem.cli.target import Server, takes_server
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from mainstem.api.server import ClusterView
    from mainstem.client.asynchronous import AsyncClient

_SIGNS = {"ok": "  ok     ", "note": "  note   ", "problem": "! problem"}
_BEHIND_MAX = 1_000  # positions


@click.group()
def cluster() -> None:
    """Show and check the brokers that share a log; start some to try it."""


cluster.add_command(start)


@cluster.command()
@takes_server
@as_json_option
def status(server: Server, as_json: bool) -> None:
    """Show the brokers as one of them sees them."""
    view = server.run(lambda client: client.cluster())
    if as_json:
        print_json(msgspec.to_builtins(view))
        return
    whole = msgspec.to_builtins(view)
    members = whole.pop("brokers")
    print_fields(whole, as_json=False)
    click.echo()
    print_rows(
        [
            {
                "broker": one["broker"],
                "node": one["node"],
                "zone": one["zone"] or None,
                "epoch": one["epoch"],
                "silent": f"{one['silent_s']:.1f} s",
                **{door: one["addresses"].get(door) for door in ("kafka", "http", "text")},
            }
            for one in members
        ],
        as_json=False,
    )


@cluster.command()
@takes_server
@as_json_option
@click.pass_context
def doctor(ctx: click.Context, server: Server, as_json: bool) -> None:
    """Query every broker and check that they agree. Exits with 1 if there is a problem, otherwise with 0."""

    async def work(client: AsyncClient) -> tuple[ClusterView, list[ClusterView | MainstemError]]:
        from mainstem.client.server import ask_each

        seen = await client.cluster()
        return seen, await ask_each(seen, server.api_key, client.url.partition("://")[0])

    seen, answers = server.run(work)
    found = judge(seen, answers)
    sound = all(finding.level != "problem" for finding in found)
    if as_json:
        print_json({"sound": sound, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            advice = f": {finding.advice}" if finding.advice else ""
            click.echo(f"{_SIGNS[finding.level]}  {finding.about}: {finding.what}{advice}")
    if not sound:
        ctx.exit(1)


def judge(seen: ClusterView, answers: list[ClusterView | MainstemError]) -> list[Finding]:
    """Find problems in the answers of the brokers, one answer per broker in `seen`."""
    found = []
    furthest = max((one.position for one in answers if not isinstance(one, MainstemError)), default=0)
    for member, answer in zip(seen.brokers, answers, strict=True):
        about = f"broker {member.broker} ({member.node})"
        if isinstance(answer, MainstemError):
            found.append(
                Finding(
                    "problem",
                    about,
                    f"does not respond: {answer}",
                    "check that it is running, and its --http-advertise",
                )
            )
            continue
        before = len(found)
        if answer.cluster != seen.cluster:
            advice = "give both the same --store and --etcd"
            found.append(Finding("problem", about, "uses another log", advice))
        if {one.broker for one in answer.brokers} != {one.broker for one in seen.brokers}:
            found.append(
                Finding(
                    "note",
                    about,
                    "has a different list of brokers",
                    "run the command again: it may be catching up",
                )
            )
        if answer.refusal is not None:
            found.append(Finding("problem", about, f"rejects writes: {answer.refusal}", ""))
        if furthest - answer.position > _BEHIND_MAX:
            found.append(Finding("note", about, f"is {furthest - answer.position} commits behind", ""))
        if answer.clock_off_ms is not None and abs(answer.clock_off_ms) > limits.CLOCK_SKEW_MS_MAX:
            what = f"its clock differs from the store's by {answer.clock_off_ms} ms"
            found.append(Finding("problem", about, what, "synchronise it, for example with NTP"))
        if len(found) == before:
            found.append(Finding("ok", about, f"at position {answer.position}", ""))
    return found
