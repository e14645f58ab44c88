"""Pipelines that report to a server, over HTTP."""

from __future__ import annotations

import msgspec

from mainstem.broker.pipeline_reports import PipelineStatus
from mainstem.client.calls import Calls


class _Pipelines(msgspec.Struct):
    pipelines: list[PipelineStatus]


class PipelineCalls(Calls):
    async def pipelines(self) -> list[PipelineStatus]:
        """The pipelines that the server has heard of within a day.

        Example:
            for one in client.pipelines(): print(one.pipeline, one.state)
        """
        return (await self._transport.ask("GET", "/v0/pipelines", _Pipelines)).pipelines
