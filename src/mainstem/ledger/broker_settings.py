"""Settings of all brokers that change at run time, by name. The broker knows which exist and what they mean."""

from __future__ import annotations

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached
from mainstem.ledger.keyed import Keyed, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies

BROKER_SETTINGS_MAX = 64


class AlterBrokerSettings(Command, frozen=True, tag=154):
    """Set some settings and remove others; the rest stay."""

    put: tuple[tuple[str, str], ...]  # (name, value)
    removed: tuple[str, ...] = ()


class BrokerSettingState(msgspec.Struct, frozen=True, array_like=True):
    """One setting; also the form in a checkpoint."""

    name: str
    value: str


class BrokerSettings(Section[list[BrokerSettingState]]):
    """Only settings that were changed: the others follow the flags of each broker."""

    def __init__(self) -> None:
        self._settings: Keyed[str, BrokerSettingState] = Keyed(fields_hash("broker setting"))

    def get(self, name: str) -> str | None:
        found = self._settings.get(name)
        return None if found is None else found.value

    @applies(AlterBrokerSettings)
    def alter(self, command: AlterBrokerSettings, now: Moment) -> int | InvalidInput | LimitReached:
        """Returns how many settings differ from the flags."""
        if any(not 1 <= len(word) <= limits.NAME_CHARS_MAX for row in command.put for word in row):
            return InvalidInput(
                f"names and values of broker settings have 1 to {limits.NAME_CHARS_MAX} characters"
            )
        names = {state.name for state in self._settings} - {*command.removed} | {
            name for name, _ in command.put
        }
        if len(names) > BROKER_SETTINGS_MAX:
            return LimitReached(f"at most {BROKER_SETTINGS_MAX} broker settings can be changed")
        for name in command.removed:
            self._settings.pop(name)
        for name, value in command.put:
            self._settings.put(name, BrokerSettingState(name, value))
        return len(self._settings)

    @property
    def digest(self) -> int:
        return self._settings.digest

    def encode(self) -> list[BrokerSettingState]:
        return list(self._settings)

    def load(self, state: list[BrokerSettingState]) -> None:
        for one in state:
            self._settings.put(one.name, one)
