"""Generates the page on topic settings from their table."""

from __future__ import annotations

from mainstem.broker.topics.topic_settings import TOPIC_SETTINGS
from tools.reference.markdown import MADE, code, table

_TEXT = """# Topic settings

Topic settings have Kafka's names, or names that begin with `mainstem.`. Set them when you create a topic, or change
them later, with `mainstem topic`, Kafka's admin calls, or `PATCH /v0/topics/:t/settings`. Unknown names are rejected.

"""

_INERT = """
## Without effect

These settings are validated, stored and shown like the others, so that tools can set them and read them back.

"""


def topic_settings_page() -> str:
    rows = [
        (
            code(row.name),
            row.kind,
            code(row.default),
            row.help,
        )
        for row in TOPIC_SETTINGS
        if not row.inert
    ]
    inert = [(code(row.name), row.help) for row in TOPIC_SETTINGS if row.inert]
    return (
        MADE
        + _TEXT
        + table(("name", "type", "default", "meaning"), rows)
        + _INERT
        + table(("name", "note"), inert)
    )
