"""Keep other processes from opening a directory while it is inspected, without writing to it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from mainstem.errors import DirectoryUnusable
from mainstem.ports.commitlog.local.layout import LOCK
from mainstem.ports.files import lock_directory


@contextlib.contextmanager
def block_owner(directory: Path) -> Iterator[bool]:
    """Within the block no process can open the directory. Yields False if one already owns it."""
    with contextlib.ExitStack() as held:
        # Shared, so that several can inspect at once; the owner's locks exclude them.
        free = True
        for path, flags in ((directory, os.O_DIRECTORY), (directory / LOCK, 0)):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
            except FileNotFoundError:  # never opened, a copy, or the file was deleted
                continue
            except PermissionError as error:
                raise DirectoryUnusable(
                    f"cannot read {path}: run this command as the owner of the file"
                ) from error
            held.callback(os.close, fd)
            free = free and lock_directory(fd, fcntl.LOCK_SH)
        if not free:
            held.close()
        yield free
