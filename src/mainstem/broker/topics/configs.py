"""Converts a topic's config to named texts and back, for all doors and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from mainstem import limits
from mainstem.broker.topics.topic_settings import BY_NAME, TOPIC_SETTINGS, TopicSetting, items, shown
from mainstem.errors import InvalidConfig
from mainstem.ledger.config import TopicConfig
from mainstem.values import did_you_mean

TOPIC_SETTING_CHARS_MAX = 64 * limits.KIB  # one setting's value, as text

Source = Literal["topic", "server", "default"]
Operation = Literal["set", "delete", "append", "subtract"]


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """One change of one setting, by name. `delete` restores the server's default and takes no text."""

    name: str
    operation: Operation
    text: str = ""


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting as a topic has it."""

    setting: TopicSetting
    value: str
    source: Source  # where the value comes from
    server_value: str  # the value if the topic does not set it


def parse(settings: Mapping[str, str], base: TopicConfig | None = None) -> TopicConfig:
    """`base` with these settings changed. Raises InvalidConfig for an unknown name or an invalid value."""
    config = base or TopicConfig()
    changes: dict[str, object] = {}
    inert = dict(config.inert)
    for name, text in settings.items():
        row = setting(name)
        value = _parsed(row, text)
        if not row.inert:
            changes[row.field] = value
        elif shown(value) == row.default:
            inert.pop(name, None)
        else:
            inert[name] = shown(value)
    if inert or config.inert:
        changes["inert"] = tuple(sorted(inert.items()))
    changed = msgspec.structs.replace(config, **changes)
    _check_together(changed)
    return changed


def replaced(
    settings: Mapping[str, str], default: TopicConfig, base: TopicConfig | None = None
) -> TopicConfig:
    """A config of exactly these settings; the others return to the server's default.

    Fields without a setting, and settings that are fixed at creation, stay as in `base`."""
    back = {row.field: getattr(default, row.field) for row in TOPIC_SETTINGS if row.field and not row.fixed}
    start = msgspec.structs.replace(base or default, **back, inert=default.inert, named=())
    return msgspec.structs.replace(parse(settings, start), named=tuple(sorted(settings)))


def edited(config: TopicConfig, edits: Sequence[ConfigEdit], default: TopicConfig) -> TopicConfig:
    """The config after these edits. Raises InvalidConfig."""
    named = set(config.named)
    texts: dict[str, str] = {}
    for edit in edits:
        row = setting(edit.name)
        if edit.operation == "delete":
            named.discard(row.name)
            texts[row.name] = value_of(row, default)
        else:
            named.add(row.name)
            texts[row.name] = _edited_text(row, edit, config)
    return msgspec.structs.replace(parse(texts, config), named=tuple(sorted(named)))


def describe(config: TopicConfig) -> dict[str, str]:
    """A topic's settings by name, as `parse` takes them: effective ones, and inert ones that are set."""
    effective = {row.name: value_of(row, config) for row in TOPIC_SETTINGS if not row.inert}
    return dict(sorted((effective | dict(config.inert)).items()))


def entries(config: TopicConfig, default: TopicConfig) -> list[ConfigEntry]:
    """All settings of a topic, by name."""
    return [_entry(row, config, default) for row in TOPIC_SETTINGS]


def setting(name: str) -> TopicSetting:
    """The row of a setting. Raises InvalidConfig."""
    row = BY_NAME.get(name)
    if row is None:
        raise InvalidConfig(f"unknown topic setting {name[:64]!r}{did_you_mean(name[:64], BY_NAME)}")
    return row


def value_of(row: TopicSetting, config: TopicConfig) -> str:
    """A setting's value as text."""
    return dict(config.inert).get(row.name, row.default) if row.inert else shown(getattr(config, row.field))


def _parsed(row: TopicSetting, text: str) -> object:
    if len(text) > TOPIC_SETTING_CHARS_MAX:
        raise InvalidConfig(f"{row.name} takes at most {TOPIC_SETTING_CHARS_MAX} characters, not {len(text)}")
    try:
        return row.parse(text)
    except ValueError as wrong:
        raise InvalidConfig(f"{row.name} {wrong}") from None


def _edited_text(row: TopicSetting, edit: ConfigEdit, config: TopicConfig) -> str:
    if edit.operation == "set":
        return edit.text
    if row.kind != "list":
        raise InvalidConfig(f"{row.name} is not a list: only lists can be appended to or subtracted from")
    present = items(value_of(row, config))
    if edit.operation == "append":
        return ",".join([*present, *(item for item in items(edit.text) if item not in present)])
    removed = items(edit.text)
    return ",".join(item for item in present if item not in removed)


def _entry(row: TopicSetting, config: TopicConfig, default: TopicConfig) -> ConfigEntry:
    value = value_of(row, config)
    server_value = value_of(row, default)
    if row.name in config.named or value != server_value:
        return ConfigEntry(row, value, "topic", server_value)
    return ConfigEntry(row, value, "default" if value == row.default else "server", server_value)


def _check_together(config: TopicConfig) -> None:
    if config.max_compaction_lag_ms < config.min_compaction_lag_ms:
        raise InvalidConfig(
            f"max.compaction.lag.ms is {config.max_compaction_lag_ms}: it must be at least min.compaction.lag.ms, "
            f"which is {config.min_compaction_lag_ms}"
        )
