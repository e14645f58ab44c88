"""Settings of groups, by name. What they mean, and which there are, is the broker's business."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.share_commands import AlterGroupSettings


class GroupSettingsState(msgspec.Struct, frozen=True, array_like=True):
    """Of one group; also as a checkpoint holds it."""

    group: str
    values: tuple[tuple[str, str], ...]  # by name

    @property
    def digest(self) -> int:
        return hash_fields("group settings", self.group, self.values)


class GroupSettings:
    """By group. A group without settings is not held."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, str]] = {}
        self.digest = 0

    def get(self, group: str) -> Mapping[str, str]:
        return self._held.get(group, {})

    def groups(self) -> list[str]:
        return sorted(self._held)

    def alter(self, command: AlterGroupSettings) -> GroupSettingsState | InvalidInput | LimitReached:
        group = command.group
        words = (group, *(word for row in command.put for word in row))
        if not group or any(len(word) > limits.NAME_CHARS_MAX for word in words):
            return InvalidInput(
                f"a group and its settings have at most {limits.NAME_CHARS_MAX} characters each"
            )
        held = {**self._held.get(group, {}), **dict(command.put)}
        for name in command.removed:
            held.pop(name, None)
        if len(held) > limits.GROUP_SETTINGS_MAX:
            return LimitReached(f"a group has at most {limits.GROUP_SETTINGS_MAX} settings")
        if held and group not in self._held and len(self._held) >= limits.GROUPS_WITH_SETTINGS_MAX:
            return LimitReached(
                f"at most {limits.GROUPS_WITH_SETTINGS_MAX} groups have settings of their own"
            )
        self._replace(group, held)
        return _state(group, held)

    def _replace(self, group: str, held: dict[str, str]) -> None:
        before = self._held.pop(group, None)
        if before:
            self.digest = (self.digest - _state(group, before).digest) & MASK
        if held:
            self._held[group] = held
            self.digest = (self.digest + _state(group, held).digest) & MASK

    def encode(self) -> list[GroupSettingsState]:
        return [_state(group, held) for group, held in sorted(self._held.items())]

    @classmethod
    def decode(cls, states: list[GroupSettingsState]) -> GroupSettings:
        settings = cls()
        for state in states:
            settings._replace(state.group, dict(state.values))
        return settings


def _state(group: str, held: Mapping[str, str]) -> GroupSettingsState:
    return GroupSettingsState(group, tuple(sorted(held.items())))
