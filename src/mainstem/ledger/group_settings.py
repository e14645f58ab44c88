"""Settings of groups, by name. The broker knows which settings exist and what they mean."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.namespaces import id_chars
from mainstem.ledger.section import Command, Moment, Section, applies

GROUP_SETTINGS_MAX = 64
GROUPS_WITH_SETTINGS_MAX = 100_000
ALL_GROUPS = ""  # in place of a group: the defaults of all groups


class AlterGroupSettings(Command, frozen=True, tag=135):
    """Set some settings of a group and remove others; the rest stay."""

    group: str
    put: tuple[tuple[str, str], ...]  # (name, value)
    removed: tuple[str, ...] = ()


class GroupSettingsState(msgspec.Struct, frozen=True, array_like=True):
    """The settings of one group; also the form in a checkpoint."""

    group: str
    values: tuple[tuple[str, str], ...]  # sorted by name


class GroupSettings(Section[list[GroupSettingsState]]):
    """By group, only of groups with settings. `ALL_GROUPS` has the defaults."""

    def __init__(self) -> None:
        self._settings: Keyed[str, GroupSettingsState] = Keyed(fields_hash("group settings"))

    def get(self, group: str) -> Mapping[str, str]:
        found = self._settings.get(group)
        return {} if found is None else dict(found.values)

    def effective(self, group: str) -> Mapping[str, str]:
        """The group's own settings, and the defaults that it does not change."""
        return {**self.get(ALL_GROUPS), **self.get(group)}

    def groups(self) -> list[str]:
        return [state.group for state in self._settings if state.group != ALL_GROUPS]

    @applies(AlterGroupSettings)
    def alter(
        self, command: AlterGroupSettings, now: Moment
    ) -> GroupSettingsState | InvalidInput | LimitReached:
        group = command.group
        words = (group, *(word for row in command.put for word in row))
        if any(id_chars(word) > limits.NAME_CHARS_MAX for word in words):
            return InvalidInput(
                f"a group and its settings have at most {limits.NAME_CHARS_MAX} characters each"
            )
        values = {**self.get(group), **dict(command.put)}
        for name in command.removed:
            values.pop(name, None)
        if len(values) > GROUP_SETTINGS_MAX:
            return LimitReached(f"a group has at most {GROUP_SETTINGS_MAX} settings")
        full = (
            self._settings.refusal(group, GROUPS_WITH_SETTINGS_MAX, "groups with settings")
            if values
            else None
        )
        if full is not None:
            return full
        state = GroupSettingsState(group, tuple(sorted(values.items())))
        if values:
            self._settings.put(group, state)
        else:
            self._settings.pop(group)
        return state

    @property
    def digest(self) -> int:
        return self._settings.digest

    def encode(self) -> list[GroupSettingsState]:
        return list(self._settings)

    def load(self, state: list[GroupSettingsState]) -> None:
        for one in state:
            self._settings.put(one.group, one)
