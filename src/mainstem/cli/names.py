"""Completes names in the shell: topics and groups of the server, and topic settings."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_PATIENCE_S = 1.0  # a shell waits for it
_NAMES_MAX = 200


def complete_topics(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem | str]:
    """Topics of the server that begin with what was typed; none if it does not respond."""

    async def ask() -> list[str]:
        from mainstem.client.asynchronous import AsyncClient

        async with AsyncClient(
            ctx.params.get("url"), api_key=ctx.params.get("api_key"), timeout=_PATIENCE_S, retries=False
        ) as client:
            return [row.topic for row in await client.topics(incomplete)]

    return _asked(ctx, ask())


def complete_groups(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem | str]:
    """Consumer groups of the server that begin with what was typed."""

    async def ask() -> list[str]:
        from mainstem.client.asynchronous import AsyncClient

        async with AsyncClient(
            ctx.params.get("url"), api_key=ctx.params.get("api_key"), timeout=_PATIENCE_S, retries=False
        ) as client:
            return [row.group for row in await client.groups() if row.group.startswith(incomplete)]

    return _asked(ctx, ask())


def complete_settings(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem | str]:
    """Names of topic settings, with the equals sign."""
    from mainstem.broker.topics.topic_settings import BY_NAME

    return [f"{name}=" for name in sorted(BY_NAME) if name.startswith(incomplete)]


def complete_contexts(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem | str]:
    """Contexts that begin with what was typed."""
    from mainstem.cli.context import context_names
    from mainstem.errors import MainstemError

    with contextlib.suppress(MainstemError):
        return [name for name in context_names() if name.startswith(incomplete)]
    return []


def _asked(ctx: click.Context, question: Coroutine[Any, Any, list[str]]) -> list[CompletionItem | str]:
    import asyncio

    from mainstem.cli.context import enter
    from mainstem.errors import MainstemError

    with contextlib.suppress(MainstemError, OSError):
        if not ctx.params.get("url"):
            enter(ctx, ctx.find_root().params.get("chosen"))
        return [*asyncio.run(question)[:_NAMES_MAX]]
    return []
