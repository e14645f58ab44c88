"""Group settings as Kafka configs, for DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from mainstem.broker.broker_settings import BROKER_SETTINGS
from mainstem.broker.groups.settings import GROUP_SETTINGS, GroupSetting
from mainstem.broker.share.shares import ALL_GROUPS, check_settings
from mainstem.broker.topics.configs import ConfigEdit
from mainstem.doors.kafka.apis.bulk import ItemRefused
from mainstem.doors.kafka.transport.context import KafkaContext

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
) -> None:
    """Settings that are not named stay as they are. Raises ItemRefused or MainstemError."""
    if group == ALL_GROUPS:
        raise ItemRefused(ErrorCode.invalid_request, "a group has a name")
    await _edit(context, group, edits, dry_run=dry_run)


async def _edit(context: KafkaContext, group: str, edits: Iterable[ConfigEdit], *, dry_run: bool) -> None:
    put: list[tuple[str, str]] = []
    removed: list[str] = []
    for edit in edits:
        if edit.operation == "delete":
            removed.append(edit.name)
        elif edit.operation == "set":
            put.append((edit.name, edit.text))
        else:
            raise ItemRefused(ErrorCode.invalid_config, f"{edit.name[:64]} is not a list")
    check_settings(put, removed)
    if not dry_run and (put or removed):
        await context.broker.shares.change_settings(group, put, removed)


async def edit_defaults(
    context: KafkaContext, broker: str, edits: Iterable[ConfigEdit], *, dry_run: bool
) -> None:
    """Change broker settings at run time, among them the defaults of all groups. All brokers share them.

    `broker` is empty or the number of any broker: librdkafka cannot leave it empty. Raises ItemRefused or
    MainstemError.
    """
    named: list[ConfigEdit] = []
    own: list[ConfigEdit] = []
    for edit in edits:
        setting = edit.name.removeprefix(_ON_BROKERS)
        if edit.name in BROKER_SETTINGS and edit.operation in ("set", "delete"):
            own.append(edit)
        elif edit.name.startswith(_ON_BROKERS) and setting in GROUP_SETTINGS:
            named.append(ConfigEdit(setting, edit.operation, edit.text))
        else:
            raise ItemRefused(
                ErrorCode.invalid_config,
                f"{edit.name[:64]} does not change while a broker runs: those that do are "
                f"{', '.join(BROKER_SETTINGS)}, and those that begin with {_ON_BROKERS}",
            )
    if broker and broker not in {str(peer.node_id) for peer in context.peers.all()}:
        raise ItemRefused(ErrorCode.invalid_request, f"there is no broker {broker[:64]!r}")
    put = [(edit.name, edit.text) for edit in own if edit.operation == "set"]
    removed = [edit.name for edit in own if edit.operation == "delete"]
    # All settings of the request are checked before the first one changes.
    await context.broker.settings.change(put, removed, dry_run=True)
    await _edit(context, ALL_GROUPS, named, dry_run=True)
    if not dry_run:
        await context.broker.settings.change(put, removed, dry_run=False)
        await _edit(context, ALL_GROUPS, named, dry_run=False)


async def replace_group(context: KafkaContext, group: str, values: dict[str, str], *, dry_run: bool) -> None:
    """Settings that are not named return to their defaults. Raises ItemRefused or MainstemError."""
    own = context.broker.shares.own_settings(group)
    edits = [ConfigEdit(name, "delete") for name in own if name not in values]
    edits += [ConfigEdit(name, "set", value) for name, value in values.items()]
    await edit_group(context, group, edits, dry_run=dry_run)
