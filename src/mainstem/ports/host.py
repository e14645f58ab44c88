"""Facts about the machine this process runs on."""

from __future__ import annotations

from pathlib import Path


def machine_of(broker_boot_id: str) -> str:
    """The machine's boot id in the boot id of a broker, which may add a token of its process."""
    return broker_boot_id.partition("/")[0]


def boot_id() -> str:
    """Changes with every boot of the kernel. Empty if it cannot be read, which counts as a new boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
