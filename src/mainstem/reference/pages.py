"""Which pages are made, and by what."""

from __future__ import annotations

from mainstem.reference.configuration import configuration_page
from mainstem.reference.formats import formats_page
from mainstem.reference.metrics import metrics_page, scraped
from mainstem.reference.topic_settings import topic_settings_page


def made_pages() -> dict[str, str]:
    """Name and text of each. Starts a server for a moment, to ask it for its metrics."""
    return {
        "configuration.md": configuration_page(),
        "topic-settings.md": topic_settings_page(),
        "formats.md": formats_page(),
        "metrics.md": metrics_page(scraped()),
    }
