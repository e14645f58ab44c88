"""`mainstem rate …`."""

from __future__ import annotations

import click

from mainstem.cli.output import as_json_option, print_rows
from mainstem.cli.target import Server, takes_server

_KEYS = {
    "produce_bytes": "producer_byte_rate",
    "consume_bytes": "consumer_byte_rate",
    "produce_records": "producer_record_rate",
    "consume_records": "consumer_record_rate",
    "request_percentage": "request_percentage",
    "burst": "burst_s",
}
_ENTITY = ("user", "client", "group", "namespace", "topic")


@click.group()
def rate() -> None:
    """Limit what users, client ids, groups, namespaces and topics produce and consume a second."""


def _takes_entity(command: click.decorators.FC) -> click.decorators.FC:
    for option, help in (
        ("--topic", "The topic that the rate limits."),
        ("--namespace", "The namespace that the rate limits."),
        ("--group", "The consumer group that the rate limits."),
        ("--client", "The client id that the rate limits, alone or with --user."),
        ("--user", "The user that the rate limits."),
    ):
        default = "" if option == "--topic" else ' "" is the default of the others.'
        command = click.option(option, metavar="NAME", help=help + default)(command)
    return command


@rate.command("list")
@takes_server
@as_json_option
def list_rates(server: Server, as_json: bool) -> None:
    """List rates, and what they throttled on this broker."""
    found = server.run(lambda client: client.rates())
    rows: list[dict[str, object]] = []
    for row in found:
        named = {name: getattr(row, name) for name in _ENTITY if getattr(row, name) is not None}
        entity = " ".join(f"{name}={value or '<default>'}" for name, value in named.items())
        for key, value in row.limits.items():
            throttled = {"throttled_total": row.throttled_total, "throttled_ms": row.throttled_ms}
            rows.append({"entity": entity, "limit": key, "value": value, **throttled})
    print_rows(rows, as_json)


@rate.command("set")
@takes_server
@_takes_entity
@click.option("--produce-bytes", type=float, metavar="N", help="Bytes appended a second.")
@click.option("--consume-bytes", type=float, metavar="N", help="Bytes read a second.")
@click.option("--produce-records", type=float, metavar="N", help="Records appended a second.")
@click.option("--consume-records", type=float, metavar="N", help="Records read a second.")
@click.option(
    "--request-percentage", type=float, metavar="N", help="Percent of a core that Kafka requests may use."
)
@click.option("--burst", type=float, metavar="SECONDS", help="Seconds of each rate that can be used at once.")
def set_rate(
    server: Server,
    user: str | None,
    client: str | None,
    group: str | None,
    namespace: str | None,
    topic: str | None,
    **given: float | None,
) -> None:
    """Set limits of a user, a client id, a group, a namespace or a topic. Other limits of it stay."""
    limits = {key: given[option] for option, key in _KEYS.items() if given[option] is not None}
    if not limits:
        raise click.UsageError("give a limit, such as --consume-bytes")
    server.run(
        lambda caller: caller.set_rate(
            limits,  # type: ignore[arg-type]  # the keys are those of the contract
            user=user,
            client=client,
            group=group,
            namespace=namespace,
            topic=topic,
        )
    )


@rate.command()
@takes_server
@_takes_entity
def remove(server: Server, **entity: str | None) -> None:
    """Remove every limit of a user, a client id, a group, a namespace or a topic."""
    server.run(lambda caller: caller.remove_rate(**entity))
