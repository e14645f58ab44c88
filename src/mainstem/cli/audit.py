"""`mainstem audit`."""

from __future__ import annotations

import contextlib
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mainstem.api.access import AUDIT_TOPIC
from mainstem.cli.printing import until_output_closes, write
from mainstem.cli.target import Server, takes_server
from mainstem.errors import NotFound, TopicNotFound

if TYPE_CHECKING:
    from mainstem.client.asynchronous import AsyncClient
    from mainstem.client.watch import Beginning


@click.command()
@takes_server
@click.option("--new", is_flag=True, help="Only records from now on.")
@click.option("-f", "--follow", is_flag=True, help="Wait for new records until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, as stored.")
def audit(server: Server, new: bool, follow: bool, as_json: bool) -> None:
    """Print the audit log: who did which administrative operation, and what was denied.

    The server writes it to the topic __audit while clients must authenticate, or with --audit on.
    """

    async def work(client: AsyncClient) -> None:
        from mainstem.client.responses import ConsumerRecord

        if new or follow:
            start: Beginning = "tail" if new else 0
            async with contextlib.aclosing(client.frames({AUDIT_TOPIC: start})) as frames:
                async for events in frames:
                    for event in events:
                        if isinstance(event, ConsumerRecord):
                            _show(event.value, as_json)
            return
        async with contextlib.aclosing(client.read(AUDIT_TOPIC)) as records:
            async for record in records:
                if isinstance(record, ConsumerRecord):
                    _show(record.value, as_json)

    with until_output_closes():
        try:
            server.run(work)
        except TopicNotFound:
            raise NotFound(
                "no audit log: the server writes one while clients must authenticate, or with --audit on"
            ) from None


def _show(data: Any, as_json: bool) -> None:
    line = msgspec.json.encode(data).decode() if as_json else _line(data)
    write(line.encode() + b"\n")
    sys.stdout.flush()


def _line(data: dict[str, Any]) -> str:
    time = datetime.fromtimestamp(data["time_ms"] / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    count = f" ×{data['count']}" if data.get("count", 1) > 1 else ""
    dropped = f" ({data['dropped']} dropped before)" if data.get("dropped") else ""
    return (
        f"{time} {data['outcome']}{count} {data['operation']} {data['resource']} {data['name']} "
        f"by {data['principal']} from {data['host'] or '?'} over {data['door']}{dropped}"
    )
