"""`mainstem bench`."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from mainstem.errors import InvalidInput


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default=Path(),
    help="Where the scratch data goes.  [default: here]",
)
@click.pass_context
def bench(ctx: click.Context, names: tuple[str, ...], directory: Path) -> None:
    """Measure this machine: all benchmarks, or those named. Needs the dev extra."""
    if find_spec("psutil") is None or find_spec("confluent_kafka") is None:
        raise InvalidInput("the benchmarks need more packages: pip install 'mainstem[dev]'")
    # A process of its own, so that what this one has loaded does not count.
    done = subprocess.run([sys.executable, "-m", "tools.bench", *names, "--dir", str(directory)], check=False)
    ctx.exit(done.returncode)
