"""Pipelines say how they are doing, and whoever asks is told."""

from __future__ import annotations

import msgspec

from mainstem.broker.pipeline_reports import PipelineReport
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply

_report = msgspec.json.Decoder(PipelineReport)


async def post_report(request: HttpRequest) -> Response:
    """Keep a pipeline's report, for the list and the metrics."""
    report = request.json(_report)
    for topic in report.named():
        request.require_name(topic)
    await request.context.pipeline_reports.hear(report)
    return reply({"heard": True, "performance": request.performance()})


async def list_pipelines(request: HttpRequest) -> Response:
    """Pipelines heard of lately: their state, what they read and wrote, and how far behind they are."""
    shown = [
        pipeline
        for pipeline in request.context.pipeline_reports.pipelines()
        if all(map(request.key.allows, pipeline.topics))
    ]
    return reply({"pipelines": shown, "performance": request.performance()})
