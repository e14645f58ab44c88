"""Drivers of the lake say how they are doing."""

from __future__ import annotations

import msgspec

from mainstem.broker.lake_reports import DriverReport
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply

_report = msgspec.json.Decoder(DriverReport)


async def post_report(request: HttpRequest) -> Response:
    """Keep a driver's report, for the status and the metrics."""
    await request.context.lake_reports.hear(request.json(_report))
    return reply({"heard": True})
