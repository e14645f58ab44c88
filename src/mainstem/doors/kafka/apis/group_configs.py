"""Settings of groups as Kafka's configs: seen by DescribeConfigs, changed by the two ways there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from mainstem.broker.groups.settings import GROUP_SETTINGS, GroupSetting
from mainstem.broker.share.shares import check_settings
from mainstem.broker.topics.configs import ConfigEdit
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, ItemResult, outcome_of
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.errors import MainstemError


class GroupConfig(NamedTuple):
    setting: GroupSetting
    value: str
    own: bool  # the group's, not the default


def group_configs(context: KafkaContext, group: str, names: Collection[str] | None) -> list[GroupConfig]:
    """Those named, or all if none is."""
    own = context.broker.shares.own_settings(group)
    return [
        GroupConfig(setting, own.get(setting.name, setting.default), setting.name in own)
        for setting in GROUP_SETTINGS.values()
        if not names or setting.name in names
    ]


async def edit_group(
    context: KafkaContext, group: str, edits: Iterable[ConfigEdit], *, dry_run: bool
) -> ItemResult:
    """Settings that are not named stay as they are."""
    put: list[tuple[str, str]] = []
    removed: list[str] = []
    try:
        for edit in edits:
            if edit.operation == "delete":
                removed.append(edit.name)
            elif edit.operation == "set":
                put.append((edit.name, edit.text))
            else:
                raise ItemRefused(ErrorCode.invalid_config, f"{edit.name[:64]} is no list")
        check_settings(put, removed)
        if not dry_run:
            await context.broker.shares.change_settings(group, put, removed)
    except (ItemRefused, MainstemError) as error:
        return outcome_of(error)
    return DONE


async def replace_group(
    context: KafkaContext, group: str, values: dict[str, str], *, dry_run: bool
) -> ItemResult:
    """Settings that are not named go back to their default."""
    own = context.broker.shares.own_settings(group)
    edits = [ConfigEdit(name, "delete") for name in own if name not in values]
    edits += [ConfigEdit(name, "set", value) for name, value in values.items()]
    return await edit_group(context, group, edits, dry_run=dry_run)
