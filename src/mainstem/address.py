"""Listening addresses: `HOST:PORT`, `[IPV6]:PORT`, port 0 for any free port.

A listener is an address with options: `HOST:PORT,namespace=acme/shop,advertise=HOST:PORT`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace

PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    namespace: str = ""  # of a listener: the namespace that its clients see
    advertise: str = ""  # of a listener: the address that clients use for it
    reuse_port: bool = (
        False  # other workers listen there, too: the kernel gives each a share of the connections
    )

    def __str__(self) -> str:
        options = "".join(
            f",{name}={value}"
            for name, value in (("namespace", self.namespace), ("advertise", self.advertise))
            if value
        )
        return (
            f"[{self.host}]:{self.port}{options}" if ":" in self.host else f"{self.host}:{self.port}{options}"
        )

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


def parse_listener(text: str) -> Address:
    """An address with options. Raises ValueError as `Address.parse` does."""
    place, *options = text.split(",")
    given: dict[str, str] = {}
    for option in options:
        name, _, value = option.strip().partition("=")
        if name not in ("namespace", "advertise") or not value or name in given:
            raise ValueError(f"takes namespace=NAME and advertise=HOST:PORT after an address, not {option!r}")
        given[name] = value
    if "advertise" in given:
        Address.parse(given["advertise"])
    return replace(
        Address.parse(place), namespace=given.get("namespace", ""), advertise=given.get("advertise", "")
    )


def parse_listeners(text: str) -> tuple[Address, ...]:
    """Several listeners with a semicolon between them, each of another namespace. Raises ValueError."""
    found = tuple(parse_listener(part) for part in text.split(";"))
    if len({listener.namespace for listener in found}) != len(found):
        raise ValueError("takes one address for each namespace, and one without")
    return found


def listener_name(door: str, listener: Address) -> str:
    """The name of a listener in the ports file, and among the addresses of a broker."""
    return f"{door}:{listener.namespace}" if listener.namespace else door


def _ipv6(host: str) -> str:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        raise ValueError(f"has no IPv6 address between its brackets: {host!r}") from None
    return host
