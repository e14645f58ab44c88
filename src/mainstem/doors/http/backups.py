"""Backups: copy everything, as of now, to a folder or a bucket."""

from __future__ import annotations

import msgspec

from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply


class BackupBody(msgspec.Struct, frozen=True):
    """Where to: a folder of the server's machine, or the URL of a bucket."""

    to: str


_body = msgspec.json.Decoder(BackupBody)


async def post_backup(request: HttpRequest) -> Response:
    """Answers when the backup is finished; what it names is a consistent copy as of the moment it began."""
    return reply(await request.broker.backups.run(request.json(_body).to))
