"""`mainstem queue …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from mainstem.cli.output import as_json_option, print_fields, print_json, print_rows
from mainstem.cli.target import Server, takes_server
from mainstem.errors import InvalidInput, LeaseLost, NotAQueue, TopicNotFound

if TYPE_CHECKING:
    from mainstem.client.asynchronous import AsyncClient
    from mainstem.client.responses import JobBody, TopicDescription

_node = click.option("--node", default="cli", show_default=True, help="Who claims, or holds the lease.")
_SETTLED_AT_ONCE = 1_000


@click.group()
def queue() -> None:
    """Queues: how full they are, claiming jobs and settling them by hand."""


@queue.command("list")
@takes_server
@click.option("--prefix", default="", help="Only queues whose name starts with this.")
@as_json_option
def list_queues(server: Server, prefix: str, as_json: bool) -> None:
    """List queues and how many jobs they have."""

    async def work(client: AsyncClient) -> list[dict[str, Any]]:
        rows = []
        for row in await client.topics(prefix):
            try:
                found = await client.topic(row.topic, touch=False)
            except TopicNotFound:
                continue  # deleted since it was listed
            if found.queue is not None:
                rows.append({"queue": found.topic, **msgspec.to_builtins(found.queue)})
        return rows

    print_rows(server.run(work), as_json)


@queue.command()
@takes_server
@click.argument("name")
@as_json_option
def show(server: Server, name: str, as_json: bool) -> None:
    """Show a queue's jobs in numbers, and its rules."""

    async def work(client: AsyncClient) -> TopicDescription:
        return await client.topic(name, touch=False)

    found = server.run(work)
    if found.queue is None:
        raise NotAQueue(name)
    config = found.config
    print_fields(
        {
            "queue": name,
            **msgspec.to_builtins(found.queue),
            "lease_ms": config.lease_ms,
            "max_deliveries": config.max_deliveries,
            "dead_letter": config.dead_letter,
            "leases_durable": config.leases_durable,
        },
        as_json,
    )


@queue.command()
@takes_server
@click.argument("name")
@_node
@click.option(
    "-n",
    "--max",
    "count",
    type=click.IntRange(1, _SETTLED_AT_ONCE),
    default=1,
    show_default=True,
    help="At most so many.",
)
@click.option("--lease-ms", type=click.IntRange(min=1), help="How long they are yours; else the queue's own.")
@as_json_option
def claim(server: Server, name: str, node: str, count: int, lease_ms: int | None, as_json: bool) -> None:
    """Lease jobs, and print them. Ack or nack them with the same --node before the lease ends."""
    jobs = server.run(lambda client: client.claim(name, node=node, max=count, lease_ms=lease_ms))
    if as_json:
        print_json([_job(job) for job in jobs])
        return
    print_rows(
        [
            {
                "seq": job.seq,
                "deliveries": job.deliveries,
                "deadline": job.deadline_ms,
                "key": job.key,
                "data": (job.bytes or b"null").decode("utf-8", "backslashreplace"),
            }
            for job in jobs
        ],
        as_json,
    )


def _job(job: JobBody) -> dict[str, object]:
    """As the server tells it."""
    whole: dict[str, object] = msgspec.json.decode(msgspec.json.encode(job))
    return whole


@queue.command()
@takes_server
@click.argument("name")
@click.argument("seqs", nargs=-1, required=True, type=int)
@_node
def ack(server: Server, name: str, seqs: tuple[int, ...], node: str) -> None:
    """Jobs are done: delete them for good."""
    settled = server.run(lambda client: client.ack(name, seqs, node=node))
    _tell(name, "acked", settled.acked, settled.skipped)


@queue.command()
@takes_server
@click.argument("name")
@click.argument("seqs", nargs=-1, required=True, type=int)
@_node
@click.option("--delay-ms", type=click.IntRange(min=0), default=0, help="Nobody gets them before that.")
def nack(server: Server, name: str, seqs: tuple[int, ...], node: str, delay_ms: int) -> None:
    """Give jobs back."""
    settled = server.run(lambda client: client.nack(name, seqs, node=node, delay_ms=delay_ms))
    _tell(name, "given back", settled.nacked, settled.skipped)


def _tell(queue: str, verb: str, count: int, skipped: list[int]) -> None:
    click.echo(f"{count:,} {verb}", err=True)
    if skipped:
        raise LeaseLost(queue, skipped)


@queue.command("requeue-dead")
@takes_server
@click.argument("name")
@click.option("-n", "--max", "count", type=click.IntRange(min=1), help="At most so many.")
def requeue_dead(server: Server, name: str, count: int | None) -> None:
    """Put what a queue gave up on, and moved to its dead-letter topic, back into it."""
    moved = server.run(lambda client: _requeue(client, name, count))
    click.echo(f"{moved:,} moved back to {name}", err=True)


async def _requeue(client: AsyncClient, name: str, count: int | None) -> int:
    found = await client.topic(name, touch=False)
    if found.queue is None:
        raise NotAQueue(name)
    dead = found.config.dead_letter
    if dead is None:
        raise InvalidInput(f"queue {name!r} has no dead_letter topic, so it never gives a job up")
    from mainstem.client.responses import ConsumerRecord

    moved, last_seq = 0, 0
    async for record in client.read(dead, on_gap="skip"):
        if not isinstance(record, ConsumerRecord) or not _of_queue(record.meta, name):
            continue
        if count is not None and moved >= count:
            break
        meta = {key: value for key, value in record.meta.items() if not key.startswith("$dead_letter")}
        # Named after the dead record: a second run moves nothing twice within the idempotency window.
        key = f"requeue:{dead}:{record.seq}:{record.timestamp_ms}"
        value = record.bytes if record.packed is not None else msgspec.Raw(record.data)
        await client.produce(
            name, value, key=record.key, node=record.node, meta=meta or None, idempotency_key=key
        )
        moved, last_seq = moved + 1, record.seq
    if moved:
        await _forget(client, dead, name, last_seq)
    return moved


def _of_queue(meta: Any, name: str) -> bool:
    return isinstance(meta, dict) and meta.get("$dead_letter_from") == name


async def _forget(client: AsyncClient, dead: str, name: str, last_seq: int) -> None:
    """Delete what was moved, where nothing else would go with it."""
    from mainstem.client.responses import ConsumerRecord

    async for record in client.read(dead, on_gap="skip"):
        if not isinstance(record, ConsumerRecord) or record.seq > last_seq:
            break
        if not _of_queue(record.meta, name):
            click.echo(
                f"note: {dead} holds records of others, so what was moved stays there as well", err=True
            )
            return
    await client.delete_records(dead, before_seq=last_seq + 1)
