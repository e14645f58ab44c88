"""`mainstem serve`."""

from __future__ import annotations

import os

import click

from mainstem.cli.settings import takes_settings
from mainstem.config import Resolved


@click.command()
@takes_settings()
def serve(resolved: Resolved) -> None:
    """Run a server until SIGINT or SIGTERM.

    Every flag can also be set with the environment variable in brackets, or in the TOML file.
    """
    # Set before numpy is imported: nothing here multiplies matrices, and its idle threads would still spin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from mainstem import events, server

    events.configure(resolved.config.log_format, resolved.config.log_level)
    if resolved.config.workers == 1:
        server.run(resolved.config)
    else:
        from mainstem import supervisor

        supervisor.run(resolved.config)
