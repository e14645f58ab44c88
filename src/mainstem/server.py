"""`mainstem serve`: one broker behind its doors, from recovery to the last checkpoint."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import os
import secrets
import signal
import ssl
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from mainstem import events, extras, heap, limits, tracing
from mainstem.address import Address, listener_name
from mainstem.broker.access.keys import settings_key
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.options import broker_options
from mainstem.config import OPTIONAL_DOORS, Config
from mainstem.doors.budget import Budget, raise_descriptor_limit
from mainstem.doors.http.door import HTTP_PROTOCOLS, HttpDoor
from mainstem.doors.http.routes.apicurio import ApicurioApi
from mainstem.doors.http.startup import StartupListener
from mainstem.doors.http.transport.context import HttpLimits
from mainstem.doors.http.transport.origins import OriginPolicy
from mainstem.doors.kafka.door import KafkaDoor
from mainstem.doors.kafka.security.options import kafka_security
from mainstem.doors.kafka.transport.connection import KafkaLimits
from mainstem.doors.pulsar.door import PulsarDoor
from mainstem.doors.s3.door import S3Door
from mainstem.doors.s3.vending import S3Endpoint
from mainstem.doors.text.door import TextDoor
from mainstem.doors.tls import tls_context
from mainstem.errors import CannotListen, InvalidConfig
from mainstem.spark.driver.child import LakeChild, reachable

WORKER_HTTP = "worker_http"  # in the ports of a worker: where only this one serves HTTP

_log = events.named("server")

# Requests create many short-lived objects and hardly any cycles: with Python's default threshold of 700 objects,
# garbage collection takes a tenth of the CPU of a small write.
_GC_THRESHOLDS = (20_000, 20, 50)

# How long a thread waits for Python's lock before it takes it: the loop while others decode, and they while it
# serves. Each hand-over between threads pays this several times; Python's default is 5 ms.
_THREAD_SWITCH_S = 0.001

_BIND_REASONS = {
    errno.EADDRINUSE: "another process listens there",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "this user may not use that port",
}


class Door(Protocol):
    @property
    def authenticates(self) -> bool:
        """Whether clients have to prove who they are."""
        ...

    async def start(self, address: Address) -> Address:
        """Listen. Returns the bound address. Raises OSError."""
        ...

    async def stop(self, drain_s: float) -> int:
        """Stop accepting, drain, close. Returns the number of connections that were closed after `drain_s`."""
        ...


def run(config: Config) -> None:
    """Serve until SIGINT or SIGTERM. Raises MainstemError when it cannot start.

    With several workers this is one of them, and the settings are its own (supervisor.py)."""
    import uvloop

    heap.keep_freed_memory()
    raise_descriptor_limit()
    sys.setswitchinterval(_THREAD_SWITCH_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(config))


async def serve(config: Config, stop: asyncio.Event | None = None) -> None:
    """Serve until `stop` is set, by the caller or by a signal."""
    stop = stop or asyncio.Event()
    _stop_on_signals(stop)
    _delete_ports_file(config.ports_file)  # it may have the ports of an earlier run
    if config.traces:
        tracing.export_by(config.traces)
    opening = time.monotonic()
    options = broker_options(config)
    lake_key = secrets.token_hex(32)  # of the driver that this server starts
    if config.lake:
        access = replace(options.access, internal=(settings_key(lake_key, name="lake"),))
        options = replace(options, access=access)
    startup = await _listen_early(config, options)
    try:
        broker = await Broker.open(options)
        _log.info("opened", data_dir=config.data_dir, seconds=round(time.monotonic() - opening, 3))
        try:
            await _serve_doors(config, broker, stop, lake_key, startup)
        finally:
            closing = time.monotonic()
            await broker.close()
            _log.info("closed", seconds=round(time.monotonic() - closing, 3))
    finally:
        if startup is not None:
            startup.close()


async def _listen_early(config: Config, options: BrokerOptions) -> StartupListener | None:
    """Probes get responses while the log is replayed. Raises CannotListen."""
    if config.http is None:
        return None
    tls = tls_context(config.tls_cert, config.tls_key, config.tls_ca, protocols=("http/1.1",))
    startup = StartupListener(lambda: options.recovery.done)
    try:
        bound = await startup.listen(config.http, tls)
    except OSError as error:
        raise _cannot_listen("http", config.http, error) from None
    _log.info("opening", data_dir=config.data_dir, http=bound)
    return startup


async def _serve_doors(
    config: Config, broker: Broker, stop: asyncio.Event, lake_key: str, startup: StartupListener | None
) -> None:
    started: dict[str, Door] = {}
    ports: dict[str, str] = {}
    advertised: dict[str, str] = {}
    lake: LakeChild | None = None
    try:
        for name, door, address in _doors(config, broker, startup):
            _check_address(config, name, door, address)
            if address.namespace:
                await broker.namespaces.create(address.namespace, exist_ok=True)
            _check_address(config, name, door, address)
            try:
                bound = await _start(name, door, address)
            except CannotListen as error:
                if (name, replace(address, reuse_port=False)) not in OPTIONAL_DOORS:
                    raise
                _log.warning("door not opened", door=name, message=str(error))
                continue
            started[name] = door
            ports[name] = str(bound)
            advertised[name] = str(_advertised(config, name, door, bound))
            if isinstance(door, HttpDoor) and address.reuse_port:
                # Clients that need this worker, the coordinator of their group, do not find it at the shared port.
                ports[WORKER_HTTP] = advertised[name] = str(await door.listen_apart(address.host))
        _report_access(broker, started)
        await broker.cluster.join(advertised, watch_peers=True)
        if config.ports_file is not None:
            write_ports(config.ports_file, ports)
        gc.collect()
        gc.freeze()  # what is loaded by now stays: full collections need not traverse it, 60 ms each
        gc.set_threshold(*_GC_THRESHOLDS)
        _log.info(
            "ready" if config.workers == 1 else "worker ready",
            pid=os.getpid(),
            **ports,
            **console(config, ports),
        )
        _report_missing()
        lake = await _lake(config, started.get("http"), ports, lake_key)
        sharing = broker.log.sharing
        await _first_of(stop, *([sharing.failed] if sharing is not None else []))
        if sharing is not None and sharing.failure is not None:
            raise sharing.failure
    finally:
        if lake is not None:
            await lake.stop()  # first, so that it can release its leases
        await broker.cluster.hand_over()  # before clients have to look for another broker
        await broker.groups.stop()  # requests that wait for other members would delay the drain
        # Doors drain concurrently, within one timeout.
        doors = {door: name for name, door in reversed(started.items())}
        cut_off = await asyncio.gather(*(door.stop(limits.SHUTDOWN_DRAIN_S) for door in doors))
        for name, count in zip(doors.values(), cut_off, strict=True):
            if count:
                _log.warning("connections cut off", door=name, count=count, after_s=limits.SHUTDOWN_DRAIN_S)
        _delete_ports_file(config.ports_file)


def console(config: Config, ports: dict[str, str]) -> dict[str, str]:
    """The URL of the console, as a link that terminals recognise."""
    if "http" not in ports:
        return {}
    scheme = "http" if config.tls_cert is None else "https"
    return {"console": f"{scheme}://{reachable(Address.parse(ports['http']))}/"}


def _advertised(config: Config, name: str, door: Door, bound: Address) -> Address:
    """The address that a door's clients connect to."""
    if isinstance(door, KafkaDoor | PulsarDoor):
        return door.advertised
    return config.http_advertise or bound if name == "http" else bound


async def _first_of(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _doors(
    config: Config, broker: Broker, startup: StartupListener | None
) -> list[tuple[str, Door, Address]]:
    """Every enabled door: its name (also that of its flag), the door, its address."""
    doors: list[tuple[str, Door, Address]] = []
    budget = Budget()
    if config.text is not None:
        text = TextDoor(
            broker,
            broker_id=broker.cluster.broker,
            node=config.node,
            segment_entries=config.text_segment_entries,
            connections_max=config.text_connections,
            idle_s=config.text_idle_ms / 1000,
            budget=budget,
            insecure=config.insecure_text,
        )
        doors.append(("text", text, config.text))
    http = _http_door(config, broker, budget, startup) if config.http is not None else None
    if http is not None and config.http is not None:
        http.context.mounted["apis"] = ApicurioApi()
        doors.append(("http", http, config.http))
    if config.s3 is not None:
        s3 = S3Door(
            broker,
            budget=budget,
            origins=OriginPolicy.of(config),
            tls=_http_tls(config),
            insecure=config.insecure_s3,
        )
        doors.append(("s3", s3, config.s3))
        if http is not None:
            http.context.published.append(s3.published)
            http.context.s3_endpoint = S3Endpoint(s3, config.s3_advertise, tls=config.tls_cert is not None)
    if config.kafka:
        kafka = KafkaDoor(
            broker,
            broker_id=broker.cluster.broker,
            advertise=config.kafka_advertise,
            bounds=KafkaLimits(
                connections=config.kafka_connections,
                request_bytes=config.kafka_request_bytes,
                in_flight_requests=config.kafka_in_flight_requests,
                in_flight_bytes=config.kafka_in_flight_bytes,
                idle_s=config.kafka_idle_ms / 1000,
            ),
            security=replace(kafka_security(config), insecure=config.insecure_kafka),
            auto_create=config.kafka_auto_create,
            two_phase_commit=config.kafka_two_phase_commit,
            default_partitions=config.kafka_num_partitions,
            budget=budget,
        )
        doors += [(listener_name("kafka", listener), kafka, listener) for listener in config.kafka]
        if http is not None:
            http.context.published.append(kafka.metrics.published)
            http.context.sampled.append(kafka.metrics.published)
            http.context.connected.append(kafka.clients)
    if config.pulsar is not None:
        pulsar = _pulsar_door(config, broker, budget)
        doors.append(("pulsar", pulsar, config.pulsar))
        if http is not None:
            http.context.published.append(pulsar.metrics.published)
            http.context.mounted.update(admin=pulsar, lookup=pulsar)
    return doors


def _pulsar_door(config: Config, broker: Broker, budget: Budget) -> PulsarDoor:
    return PulsarDoor(
        broker,
        broker_id=broker.cluster.broker,
        advertise=config.pulsar_advertise,
        connections_max=config.pulsar_connections,
        auto_create=config.pulsar_auto_create,
        deduplication=config.pulsar_deduplication,
        tls=tls_context(
            config.pulsar_tls_cert,
            config.pulsar_tls_key,
            config.pulsar_tls_ca,
            flags="--pulsar-tls",
            verify=ssl.CERT_OPTIONAL,  # other clients have tokens
        ),
        insecure=config.insecure_pulsar,
        budget=budget,
    )


def _http_tls(config: Config) -> ssl.SSLContext | None:
    return tls_context(config.tls_cert, config.tls_key, config.tls_ca, protocols=HTTP_PROTOCOLS)


def _http_door(config: Config, broker: Broker, budget: Budget, startup: StartupListener | None) -> HttpDoor:
    return HttpDoor(
        broker,
        bounds=HttpLimits(
            inflight_per_key=config.max_inflight_per_key,
            body_bytes=config.max_body_bytes,
            watch_sessions=config.max_watch_sessions,
            streams=config.max_sse_connections,
            streams_per_key=config.max_sse_connections_per_key,
        ),
        insecure=config.insecure_http,
        allow_insecure=config.insecure or config.allow_insecure_no_auth,
        origins=OriginPolicy.of(config),
        path_roots=tuple(Path(root).resolve() for root in config.path_roots.split(",") if root.strip()),
        probe_auth=config.probe_auth,
        tls=_http_tls(config),
        budget=budget,
        startup=startup,
    )


async def _lake(config: Config, http: Door | None, ports: dict[str, str], api_key: str) -> LakeChild | None:
    """Start the lake's driver, if it is enabled."""
    if not config.lake:
        return None
    if not isinstance(http, HttpDoor):
        _log.warning(
            "lake disabled",
            message="--lake needs the HTTP door; start `mainstem lake run --url …` separately instead",
        )
        return None
    # With TLS, the certificate need not name an address of this machine: the driver gets a port of its own.
    # The same if other workers share the port: only this one knows the driver's key.
    alone = config.tls_cert is None and config.workers == 1
    address = Address.parse(ports["http"]) if alone else await http.listen_inside()
    lake = LakeChild(address, api_key, config.objects or config.store)
    lake.start()
    return lake


async def _start(name: str, door: Door, address: Address) -> Address:
    try:
        bound = await door.start(address)
    except OSError as error:
        raise _cannot_listen(name, address, error) from None
    _log.info("listening", door=name, address=bound)
    if not bound.loopback and not door.authenticates:
        _log.warning(
            "no authentication",
            door=name,
            address=bound,
            message=f"anyone who can connect to {bound} can read and write every topic through the {name} door",
        )
    return bound


def _cannot_listen(name: str, address: Address, error: OSError) -> CannotListen:
    reason = _BIND_REASONS.get(error.errno or 0, error.strerror or str(error))
    flag = f"--{name.partition(':')[0]}"
    return CannotListen(
        f"the {name} door cannot listen on {address}: {reason}; give another address with {flag}, "
        f"or turn the door off with {flag} off"
    )


def _check_address(config: Config, name: str, door: Door, address: Address) -> None:
    """Raises CannotListen for a door that other machines can reach without credentials."""
    insecure = config.insecure or (name == "http" and config.allow_insecure_no_auth)
    if not (address.loopback or door.authenticates or insecure):
        raise CannotListen(
            f"the {name} door does not listen on {address} without keys or users: set --api-keys-file (or "
            f"MAINSTEM_API_KEYS), --kafka-sasl or client certificates, or --insecure to allow every client"
        )


def _report_missing() -> None:
    """Log what to install for SQL and for the lake."""
    for extra, gains in (
        ("sql", "queries over topics run"),
        ("lake", "topics are published as tables, by `serve --lake`,"),
    ):
        if extras.missing(extra):
            _log.info(
                "extra not installed", extra=extra, message=f"{gains} after pip install 'mainstem[{extra}]'"
            )


def _report_access(broker: Broker, doors: dict[str, Door]) -> None:
    """Log which doors ask for credentials, and whether any client could pass."""
    if not broker.access.restricted:
        return
    shown = {
        name: "authenticated" if door.authenticates else "open to everyone" for name, door in doors.items()
    }
    _log.info("access", restricted=True, rules=broker.access.enforced, **shown)
    options = broker.options.access
    if (
        broker.access.enforced
        and not options.super_users
        and not options.keys
        and not len(broker.security.access_rules)
        and not len(broker.security.api_keys)
    ):
        _log.warning(
            "all access denied",
            message="the server has neither access rules nor super users: give --kafka-super-users, or --kafka-acl off",
        )


def _stop_on_signals(stop: asyncio.Event) -> None:
    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            _log.warning("stopping at once", signal=number.name)
            os._exit(128 + number)
        _log.info("stopping", signal=number.name)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)


def write_ports(path: Path, ports: dict[str, str]) -> None:
    """Write the file atomically: a reader sees all ports or no file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(ports) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InvalidConfig(f"cannot write --ports-file {path}: {error.strerror}") from None


def _delete_ports_file(path: Path | None) -> None:
    if path is not None:
        with contextlib.suppress(OSError):  # writing the file will report the error
            path.unlink(missing_ok=True)
