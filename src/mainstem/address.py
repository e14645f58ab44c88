"""Listening addresses: `HOST:PORT`, `[IPV6]:PORT`, port 0 for any free port."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect. A host name other than localhost counts as public."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return False

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises ValueError with the end of a sentence that starts with the setting's name."""
        host, colon, port = text.strip().rpartition(":")
        if not colon:
            raise ValueError(f"needs a port: HOST:PORT, not {text!r}")
        if host.startswith("[") and host.endswith("]"):
            host = _ipv6(host[1:-1])
        elif ":" in host:
            raise ValueError(f"needs brackets around an IPv6 host, such as [::1]:{port}, not {text!r}")
        elif not host or any(sign.isspace() or sign in "[]/" for sign in host):
            raise ValueError(f"needs a host: HOST:PORT, not {text!r}")
        if not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
            raise ValueError(f"needs a port from 0 to {PORT_MAX}, not {port!r}")
        return cls(host, int(port))


def _ipv6(host: str) -> str:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        raise ValueError(f"has no IPv6 address between its brackets: {host!r}") from None
    return host
