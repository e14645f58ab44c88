"""Facts about the machine this process runs on."""

from __future__ import annotations

from pathlib import Path


def boot_id() -> str:
    """Changes with every boot of the kernel. Empty if it cannot be read, which counts as a new boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
