"""Keep other processes from opening a directory while it is inspected, without writing to it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from mainstem.errors import DirectoryUnusable
from mainstem.ports.commitlog.local.layout import LOCK


@contextlib.contextmanager
def block_owner(directory: Path) -> Iterator[bool]:
    """Within the block no process can open the directory. Yields False if one already owns it."""
    try:
        fd = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # never opened, or a copy without an owner
        yield True
        return
    except PermissionError as error:
        raise DirectoryUnusable(
            f"cannot read {directory / LOCK}: run this command as the owner of the file"
        ) from error
    try:
        # Shared, so that several can inspect at once; the owner's lock excludes it.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        yield False
        return
    try:
        yield True
    finally:
        os.close(fd)
