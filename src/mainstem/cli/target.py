"""Which log a command is about: a server's by --url, or a directory's by --data-dir."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainstem.cli.settings import Command, takes_settings
from mainstem.cli.store import Store
from mainstem.config import Resolved

if TYPE_CHECKING:
    from mainstem.client.asynchronous import AsyncClient

T = TypeVar("T")

_OFFLINE = "pass --data-dir to open a directory that no server has open"

_url = click.option(
    "--url", metavar="URL", help="Server to talk to. [MAINSTEM_URL; default http://127.0.0.1:4000]"
)
_api_key = click.option("--api-key", metavar="KEY", help="Key to send to it. [MAINSTEM_API_KEY]")


@dataclass(frozen=True, slots=True)
class Server:
    """A server, for commands that only one can serve."""

    url: str | None
    api_key: str | None

    def run(self, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
        from mainstem.cli.remote import with_client

        return with_client(self.url, self.api_key, work)


@dataclass(frozen=True, slots=True)
class Target:
    """A server, or a directory if its flag is given; a variable or a file that names one is the server's own."""

    url: str | None
    api_key: str | None
    resolved: Resolved

    @property
    def offline(self) -> bool:
        return self.resolved.sources["data_dir"] == "flag"

    def run(self, work: Callable[[Store], Awaitable[T]], *, create: bool = False) -> T:
        """`create`: a directory that is not there yet is made."""
        if self.offline:
            if self.url is not None:
                raise click.UsageError("--url and --data-dir exclude each other")
            from mainstem.cli.directory import with_directory

            return with_directory(self.resolved.config, work, create=create)
        from mainstem.cli.remote import ServerStore, with_client

        return with_client(self.url, self.api_key, lambda client: work(ServerStore(client)), offline=_OFFLINE)


_DATA_DIR = "Open this log instead of talking to a server. No server may have it open."


def takes_server(function: Command) -> Command:
    """Give a command the flags that name a server. Its first argument is that."""

    @functools.wraps(function)
    def command(*, url: str | None, api_key: str | None, **arguments: Any) -> Any:
        return function(Server(url, api_key), **arguments)

    return _url(_api_key(command))


def takes_target(*settings: str) -> Callable[[Command], Command]:
    """Give a command the flags that name a server or a directory. Its first argument is that."""

    def decorate(function: Command) -> Command:
        @takes_settings("data_dir", *settings, described={"data_dir": _DATA_DIR})
        @functools.wraps(function)
        def command(resolved: Resolved, *, url: str | None, api_key: str | None, **arguments: Any) -> Any:
            return function(Target(url, api_key, resolved), **arguments)

        return _url(_api_key(command))

    return decorate
