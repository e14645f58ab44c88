"""Selects the log of a command: a server with --url, or a directory with --data-dir."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainstem.cli.context import takes_url_and_key
from mainstem.cli.settings import Command, takes_settings
from mainstem.cli.store import Store
from mainstem.config import Resolved

if TYPE_CHECKING:
    from mainstem.client.asynchronous import AsyncClient

T = TypeVar("T")

_OFFLINE = "use --data-dir to open a directory that no server has open"


@dataclass(frozen=True, slots=True)
class Server:
    """The server of a command that needs one."""

    url: str | None
    api_key: str | None

    def run(self, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
        from mainstem.cli.remote import with_client

        return with_client(self.url, self.api_key, work)


@dataclass(frozen=True, slots=True)
class Target:
    """A server, or a directory if --data-dir is given. A data directory in a variable or a file is the server's own."""

    url: str | None
    api_key: str | None
    resolved: Resolved

    @property
    def offline(self) -> bool:
        return self.resolved.sources["data_dir"] == "flag"

    def run(self, work: Callable[[Store], Awaitable[T]], *, create: bool = False) -> T:
        """Run `work`. With `create`, create a missing directory."""
        if self.offline:
            if self.url is not None:
                raise click.UsageError("--url and --data-dir are mutually exclusive")
            from mainstem.cli.directory import with_directory

            return with_directory(self.resolved.config, work, create=create)
        from mainstem.cli.remote import ServerStore, with_client

        return with_client(self.url, self.api_key, lambda client: work(ServerStore(client)), offline=_OFFLINE)


_DATA_DIR = "Open this directory instead of connecting to a server. No server may have it open."


def takes_server(function: Command) -> Command:
    """Add the flags that name a server to a command. Its first argument is the Server."""

    @functools.wraps(function)
    def command(*, url: str | None, api_key: str | None, **arguments: Any) -> Any:
        return function(Server(url, api_key), **arguments)

    return takes_url_and_key(command)


def takes_target(*settings: str) -> Callable[[Command], Command]:
    """Add the flags that name a server or a directory to a command. Its first argument is the Target."""

    def decorate(function: Command) -> Command:
        @takes_settings("data_dir", *settings, described={"data_dir": _DATA_DIR})
        @functools.wraps(function)
        def command(resolved: Resolved, *, url: str | None, api_key: str | None, **arguments: Any) -> Any:
            return function(Target(url, api_key, resolved), **arguments)

        return takes_url_and_key(command)

    return decorate
