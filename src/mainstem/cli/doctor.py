"""`mainstem doctor`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import click

from mainstem.cli import doctor_access_checks, doctor_checks, doctor_store_checks
from mainstem.cli.doctor_checks import Finding
from mainstem.cli.output import print_json
from mainstem.cli.target import Target, takes_target
from mainstem.config import Config
from mainstem.errors import InvalidInput, MainstemError, Unauthorized, Unreachable
from mainstem.version import VERSION

if TYPE_CHECKING:
    from mainstem.api.security import KeyDescription
    from mainstem.client.transport import ServerResponse, Transport

_SKEW_S_MAX = 2.0
_ANSWER_S = 5.0
_SIGNS = {"ok": "  ok     ", "note": "  note   ", "problem": "! problem"}


@click.command()
@takes_target(
    "http",
    "text",
    "kafka",
    "kafka_advertise",
    "pulsar",
    "store",
    "etcd",
    "objects",
    *doctor_access_checks.SETTINGS,
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def doctor(ctx: click.Context, target: Target, as_json: bool) -> None:
    """Check this machine for problems: ports, disk, permissions, stores, clocks, versions, Java, access.

    Takes the same settings as `mainstem serve`. Exits with 1 if there is a problem, otherwise with 0.
    """
    config = target.resolved.config
    state = _ServerState()
    found = [*_local(config), *_server(target, state)]
    found += doctor_access_checks.access(config, target.resolved.sources, restricted=state.restricted)
    found += doctor_access_checks.stored_keys(state.keys, int(time.time() * 1000))
    sound = all(finding.level != "problem" for finding in found)
    if as_json:
        print_json({"sound": sound, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            advice = f": {finding.advice}" if finding.advice else ""
            click.echo(f"{_SIGNS[finding.level]}  {finding.about}: {finding.what}{advice}")
    if not sound:
        ctx.exit(1)


@dataclass(slots=True)
class _ServerState:
    """What a running server says about access."""

    restricted: bool = False
    keys: list[KeyDescription] = field(default_factory=list)


def _local(config: Config) -> Iterator[Finding]:
    yield from doctor_checks.data_directory(config.data_dir)
    yield from doctor_checks.disk(config.data_dir)
    yield from doctor_checks.ports(config)
    yield from doctor_checks.advertised(config)
    yield from doctor_store_checks.store(config)
    yield from doctor_checks.java()


def _server(target: Target, state: _ServerState) -> Iterator[Finding]:
    """Check the version and the clock of the server. Notes in `state` what it says about access."""
    import asyncio
    import os

    from mainstem.client.environment import URL_ENV
    from mainstem.client.transport import Transport

    about = "server"
    named = target.url is not None or bool(os.environ.get(URL_ENV))
    try:
        transport = Transport(target.url, api_key=target.api_key, timeout_s=_ANSWER_S, retries=False)
    except InvalidInput as wrong:
        yield Finding("problem", about, str(wrong), "correct --url")
        return

    async def ask() -> tuple[ServerResponse, float, dict[str, object]]:
        try:
            began = time.time()
            answer = await transport.send("GET", "/v0/health")
            asked_at = (began + time.time()) / 2
            await _ask_access(transport, state)
            return answer, asked_at, await _metrics(transport)
        finally:
            await transport.close()

    try:
        answer, asked_at, metrics = asyncio.run(ask())
    except Unreachable as silent:
        advice = "start it with `mainstem serve`, or correct --url"
        yield Finding("problem" if named else "note", about, str(silent), advice)
    except Unauthorized as refused:
        yield Finding("problem", about, str(refused), "set --api-key or MAINSTEM_API_KEY")
    except MainstemError as wrong:
        yield Finding("problem", about, f"{transport.url}: {wrong}", "is another program listening there?")
    else:
        yield from _health(transport.url, answer)
        yield from _clock(answer, asked_at)
        yield from doctor_checks.server_state(metrics)


async def _ask_access(transport: Transport, state: _ServerState) -> None:
    """Whether the server asks for credentials, and the keys it stores if this key may list them."""
    from mainstem.api import routes

    try:
        rights = await transport.call(routes.GET_KEY)
        state.restricted = rights.authentication
        state.keys = (await transport.call(routes.LIST_KEYS)).keys
    except Unauthorized:
        state.restricted = True
    except MainstemError:
        return


async def _metrics(transport: Transport) -> dict[str, object]:
    """The metrics of the server; none if the key may not read them, or it is another program."""
    try:
        answer = await transport.send("GET", "/v0/metrics", headers={"accept": "application/json"})
        found = json.loads(answer.body)
    except (MainstemError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _health(url: str, answer: ServerResponse) -> Iterator[Finding]:
    from mainstem.api.server import Health
    from mainstem.client.transport import decoded

    try:
        health = decoded(answer.body, Health)
    except MainstemError:
        yield Finding(
            "problem", "server", f"the program at {url} is not a Mainstem server", "correct --url, or stop it"
        )
        return
    if health.version == VERSION:
        yield Finding("ok", "server", f"{url} runs version {health.version}")
    else:
        yield Finding(
            "problem",
            "server",
            f"{url} runs version {health.version}, but this command is version {VERSION}",
            "upgrade the older one",
        )


def _clock(answer: ServerResponse, asked_at: float) -> Iterator[Finding]:
    from email.utils import parsedate_to_datetime

    try:
        told = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        yield Finding(
            "note", "clock", "the server does not send its time", "upgrade it to compare the clocks"
        )
        return
    skew_s = asked_at - (told + 0.5)  # the header has whole seconds
    if abs(skew_s) > _SKEW_S_MAX:
        way = "ahead of" if skew_s > 0 else "behind"
        yield Finding(
            "problem",
            "clock",
            f"this clock is {abs(skew_s):.0f} s {way} the server's",
            "synchronise both with NTP",
        )
    else:
        yield Finding("ok", "clock", "this clock matches the server's")
