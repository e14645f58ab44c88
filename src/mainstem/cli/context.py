"""`mainstem context …`: servers with names, in a file of the user.

| field of a context | meaning |
|---|---|
| `url` | of the server |
| `api_key`, `namespace` | for this server, and never sent to another |
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import click

from mainstem.cli.names import complete_contexts
from mainstem.cli.output import as_json_option, print_rows
from mainstem.cli.settings import Command
from mainstem.client.environment import KEY_ENV, NAMESPACE_ENV, URL_ENV
from mainstem.errors import InvalidInput
from mainstem.values import did_you_mean

CONTEXT_ENV = "MAINSTEM_CONTEXT"
_VARIABLES = {"url": URL_ENV, "api_key": KEY_ENV, "namespace": NAMESPACE_ENV}
_ENTERED = "mainstem.context"  # in the metadata of the command line: the variables that a context replaced
_FLAGGED = "mainstem.flags"  # and those that come from flags

Contexts = dict[str, dict[str, str]]


def flag_to_environment(ctx: click.Context, param: click.Parameter, text: str | None) -> None:
    """--url or --api-key before the name of a command."""
    if text is None:
        return
    variable = _VARIABLES[str(param.name).lstrip("_")]
    if variable == URL_ENV:
        leave(ctx)
    set_variable(ctx, variable, text)


def set_variable(ctx: click.Context, variable: str, text: str) -> None:
    """For a flag, which no context replaces."""
    os.environ[variable] = text
    ctx.meta.setdefault(_FLAGGED, set()).add(variable)


def _url_given(ctx: click.Context, param: click.Parameter, url: str | None) -> str | None:
    if url is not None and not ctx.resilient_parsing:
        leave(ctx)
    return url


url_option = click.option(
    "--url",
    metavar="URL",
    callback=_url_given,
    help="URL of the server. [MAINSTEM_URL; default http://127.0.0.1:4000]",
)
key_option = click.option("--api-key", metavar="KEY", help="API key. [MAINSTEM_API_KEY]")


def takes_url_and_key(command: Command) -> Command:
    return url_option(key_option(command))


def enter(ctx: click.Context, wanted: str | None) -> None:
    """Set the variables of the context that `wanted`, MAINSTEM_CONTEXT or the file names, unless a URL is given."""
    flags = ctx.meta.get(_FLAGGED, set())
    if wanted is not None and URL_ENV in flags:
        raise click.UsageError("--url and --context are mutually exclusive")
    if wanted is None and os.environ.get(URL_ENV):
        return
    if ctx.invoked_subcommand == "shell":  # each of its commands enters the context by itself
        if wanted is not None:
            _set(ctx, _without_other_server(flags))
            os.environ[CONTEXT_ENV] = wanted
        return
    name = wanted or os.environ.get(CONTEXT_ENV)
    current, contexts = _load()
    name = name or current
    if not name:
        return
    chosen = _find(name, contexts)
    given = {_VARIABLES[field]: text for field, text in chosen.items() if _VARIABLES[field] not in flags}
    _set(ctx, {**_without_other_server(flags), **given})


def leave(ctx: click.Context) -> None:
    """Another server is named: the key and the namespace of a context are not for it."""
    flags = ctx.meta.get(_FLAGGED, set())
    replaced = ctx.meta.pop(_ENTERED, {})
    _change({variable: text for variable, text in replaced.items() if variable not in flags})


def flagged_key(ctx: click.Context) -> str | None:
    """The key of --api-key before the name of the command."""
    return os.environ.get(KEY_ENV) if KEY_ENV in ctx.meta.get(_FLAGGED, set()) else None


def _without_other_server(flags: Collection[str]) -> dict[str, str | None]:
    """If a variable names a server: this one, and those with the key and the namespace for that server."""
    if not os.environ.get(URL_ENV):
        return {}
    return {variable: None for variable in _VARIABLES.values() if variable not in flags}


def _set(ctx: click.Context, variables: Mapping[str, str | None]) -> None:
    ctx.meta[_ENTERED] = {variable: os.environ.get(variable) for variable in variables}
    _change(variables)


def _change(variables: Mapping[str, str | None]) -> None:
    for variable, text in variables.items():
        if text is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = text


def context_names() -> list[str]:
    return sorted(_load()[1])


def _file() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "mainstem" / "contexts.json"


def _load() -> tuple[str, Contexts]:
    """Return the name of the current context, or "", and all contexts."""
    file = _file()
    try:
        held = json.loads(file.read_bytes())
        contexts: Contexts = {
            str(name): {field: str(fields[field]) for field in _VARIABLES if fields.get(field)}
            for name, fields in held["contexts"].items()
        }
        return str(held.get("current") or ""), contexts
    except (FileNotFoundError, NotADirectoryError):
        return "", {}
    except OSError as error:
        raise InvalidInput(f"the contexts in {file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, AttributeError, TypeError):
        raise InvalidInput(f"{file} does not contain contexts: repair or remove it") from None


def _save(current: str, contexts: Contexts) -> None:
    file = _file()
    content = json.dumps({"current": current, "contexts": contexts}, indent=2, sort_keys=True) + "\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(f".{os.getpid()}")
        fresh.touch(mode=0o600)  # it may contain keys
        fresh.write_text(content, encoding="utf-8")
        fresh.replace(file)
    except OSError as error:
        raise InvalidInput(f"the contexts in {file} cannot be written: {error.strerror}") from None


def _find(name: str, contexts: Mapping[str, dict[str, str]]) -> dict[str, str]:
    if name not in contexts:
        advice = did_you_mean(name, contexts) or ": `mainstem context list` lists them"
        raise InvalidInput(f"no context {name!r}{advice}")
    return contexts[name]


@click.group()
def context() -> None:
    """Name servers, and choose the one that commands talk to.

    A command uses the server of --url, else of --context, MAINSTEM_URL, MAINSTEM_CONTEXT or the current context. The
    key and the namespace of a context are sent to its server only.
    """


@context.command()
@click.argument("name", shell_complete=complete_contexts)
@click.option("--url", required=True, metavar="URL", help="URL of the server.")
@click.option("--api-key", metavar="KEY", help="API key for this server.")
@click.option("--api-key-stdin", is_flag=True, help="Read the API key from standard input.")
@click.option("--namespace", metavar="NAME", help="Namespace of the topics that commands name.")
@click.option("--use", is_flag=True, help="Make it the current context.")
def add(
    name: str, url: str, api_key: str | None, api_key_stdin: bool, namespace: str | None, use: bool
) -> None:
    """Add a context, or replace the one with this name."""
    from mainstem.client.transport import validated_url

    if api_key_stdin:
        api_key = sys.stdin.readline().rstrip("\n")
    fields = {"url": validated_url(url), "api_key": api_key, "namespace": namespace}
    current, contexts = _load()
    contexts[name] = {field: text for field, text in fields.items() if text}
    _save(name if use else current, contexts)


@context.command()
@click.argument("name", required=False, shell_complete=complete_contexts)
@click.option("--none", is_flag=True, help="Have no current context.")
def use(name: str | None, none: bool) -> None:
    """Make NAME the current context, for this and other terminals."""
    if none == (name is not None):
        raise click.UsageError("name a context, or give --none")
    _, contexts = _load()
    if name is not None:
        _find(name, contexts)
    _save(name or "", contexts)


@context.command("list")
@as_json_option
def list_contexts(as_json: bool) -> None:
    """List contexts, without their keys."""
    current, contexts = _load()
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "url": fields.get("url"),
            "api_key": "set" if "api_key" in fields else None,
            "namespace": fields.get("namespace"),
            "current": name == current,
        }
        for name, fields in sorted(contexts.items())
    ]
    if not as_json:
        rows = [{**row, "current": "*" if row["current"] else None} for row in rows]
    print_rows(rows, as_json)


@context.command()
@click.argument("name", shell_complete=complete_contexts)
def remove(name: str) -> None:
    """Remove a context."""
    current, contexts = _load()
    _find(name, contexts)
    del contexts[name]
    _save("" if name == current else current, contexts)
