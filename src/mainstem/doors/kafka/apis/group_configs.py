"""Group settings as Kafka configs, for DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from mainstem.broker.groups.settings import GROUP_SETTINGS, GroupSetting
from mainstem.broker.share.shares import ALL_GROUPS, check_settings
from mainstem.broker.topics.configs import ConfigEdit
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, ItemResult, outcome_of
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.errors import MainstemError

_ON_BROKERS = "group."  # prefix of a group setting's name as a broker setting


class GroupConfig(NamedTuple):
    setting: GroupSetting
    own: str | None  # the group's value
    default: str | None  # the value of all groups, if it was changed

    @property
    def broker_name(self) -> str:
        return _ON_BROKERS + self.setting.name


def group_configs(context: KafkaContext, group: str, names: Collection[str] | None) -> list[GroupConfig]:
    """The named settings, or all if none is named."""
    own = context.broker.shares.own_settings(group) if group != ALL_GROUPS else {}
    defaults = context.broker.shares.own_settings(ALL_GROUPS)
    return [
        GroupConfig(setting, own.get(setting.name), defaults.get(setting.name))
        for setting in GROUP_SETTINGS.values()
        if not names or setting.name in names
    ]


async def edit_group(
    context: KafkaContext, group: str, edits: Iterable[ConfigEdit], *, dry_run: bool
) -> ItemResult:
    """Settings that are not named stay as they are."""
    if group == ALL_GROUPS:
        return ItemResult(ErrorCode.invalid_request, "a group has a name")
    return await _edit(context, group, edits, dry_run=dry_run)


async def _edit(
    context: KafkaContext, group: str, edits: Iterable[ConfigEdit], *, dry_run: bool
) -> ItemResult:
    put: list[tuple[str, str]] = []
    removed: list[str] = []
    try:
        for edit in edits:
            if edit.operation == "delete":
                removed.append(edit.name)
            elif edit.operation == "set":
                put.append((edit.name, edit.text))
            else:
                raise ItemRefused(ErrorCode.invalid_config, f"{edit.name[:64]} is not a list")
        check_settings(put, removed)
        if not dry_run:
            await context.broker.shares.change_settings(group, put, removed)
    except (ItemRefused, MainstemError) as error:
        return outcome_of(error)
    return DONE


async def edit_defaults(
    context: KafkaContext, broker: str, edits: Iterable[ConfigEdit], *, dry_run: bool
) -> ItemResult:
    """Change broker settings at run time: the defaults of all groups, shared by all brokers.

    `broker` is empty or the number of any broker: librdkafka cannot leave it empty.
    """
    named: list[ConfigEdit] = []
    for edit in edits:
        setting = edit.name.removeprefix(_ON_BROKERS)
        if not edit.name.startswith(_ON_BROKERS) or setting not in GROUP_SETTINGS:
            return ItemResult(
                ErrorCode.invalid_config,
                f"{edit.name[:64]} does not change while a broker runs: those that do begin with {_ON_BROKERS}",
            )
        named.append(ConfigEdit(setting, edit.operation, edit.text))
    if broker and broker not in {str(peer.node_id) for peer in context.peers.all()}:
        return ItemResult(ErrorCode.invalid_request, f"there is no broker {broker[:64]!r}")
    return await _edit(context, ALL_GROUPS, named, dry_run=dry_run)


async def replace_group(
    context: KafkaContext, group: str, values: dict[str, str], *, dry_run: bool
) -> ItemResult:
    """Settings that are not named return to their defaults."""
    own = context.broker.shares.own_settings(group)
    edits = [ConfigEdit(name, "delete") for name in own if name not in values]
    edits += [ConfigEdit(name, "set", value) for name, value in values.items()]
    return await edit_group(context, group, edits, dry_run=dry_run)
