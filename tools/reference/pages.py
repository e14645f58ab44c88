"""The generated pages and their generators."""

from __future__ import annotations

from pathlib import Path

from tools.reference.client import client_page
from tools.reference.commands import commands_page
from tools.reference.configuration import configuration_page
from tools.reference.decisions import decisions_page
from tools.reference.formats import formats_page
from tools.reference.metrics import metrics_page, scraped
from tools.reference.routes import routes_page
from tools.reference.topic_settings import topic_settings_page


def made_pages(docs: Path) -> dict[str, str]:
    """Return the name and text of each page. Starts a server to read its metrics."""
    return {
        "decisions/index.md": decisions_page(docs),
        "configuration.md": configuration_page(),
        "topic-settings.md": topic_settings_page(),
        "commands.md": commands_page(),
        "http-requests.md": routes_page(),
        "client-reference.md": client_page(),
        "formats.md": formats_page(),
        "metrics.md": metrics_page(scraped()),
    }
