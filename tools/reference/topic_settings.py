"""The settings of a topic, from the table that every door reads."""

from __future__ import annotations

from mainstem.broker.topic_settings import TOPIC_SETTINGS
from tools.reference.markdown import MADE, code, table

_TEXT = """# Settings of a topic

By the names Kafka's tools use, and our own, which begin with `mainstem.`. They are given when a topic is made, and
changed later, by `mainstem topic`, Kafka's admin calls, or `PATCH /v0/topics/:t/settings`. Unknown names are refused.

"""

_INERT = """
## Without effect

Checked, kept and shown like the others, so that tools which set them and read them back work.

"""


def topic_settings_page() -> str:
    rows = [
        (
            code(row.name),
            row.kind,
            code(row.default),
            row.help + (" Fixed once the topic exists." if row.fixed else ""),
        )
        for row in TOPIC_SETTINGS
        if not row.inert
    ]
    inert = [(code(row.name), row.help) for row in TOPIC_SETTINGS if row.inert]
    return MADE + _TEXT + table(("name", "kind", "default", ""), rows) + _INERT + table(("name", ""), inert)
