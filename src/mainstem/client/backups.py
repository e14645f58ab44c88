"""Backups of a server, over HTTP."""

from __future__ import annotations

from mainstem.client.calls import Calls
from mainstem.log.backup import BackupReport

_LONGEST_S = 24 * 3600.0


class BackupCalls(Calls):
    async def backup(self, to: str) -> BackupReport:
        """Copy all the server holds, as of now, to a folder of its machine or a bucket; it goes on serving.

        Example:
            client.backup("s3://backups/mainstem")
        """
        return await self._transport.ask("POST", "/v0/backup", BackupReport, {"to": to}, wait_s=_LONGEST_S)
