"""Settings of the schema registry: compatibility and mode of a subject, of a context, or of all of a namespace.

A subject without a setting of its own takes that of its context, then that of its namespace, then the default."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mainstem.errors import (
    CompatibilityNotConfigured,
    InvalidCompatibility,
    InvalidRegistryMode,
    InvalidSubject,
    RegistryModeNotConfigured,
    RegistryOperationRefused,
    SchemaRegistryChanged,
    SubjectNotFound,
    Unavailable,
)
from mainstem.ledger.namespaces import qualify_id, split_id
from mainstem.ledger.schemas import PutRegistrySettings, RegistrySettings
from mainstem.log.log import Log
from mainstem.schemas import subjects as names

LEVELS = (
    *("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE"),
    *("FULL", "FULL_TRANSITIVE"),
)
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
DEFAULT_LEVEL, DEFAULT_MODE = "BACKWARD", "READWRITE"
GLOBAL = ""  # the subject that stands for all of a namespace

_ATTEMPTS_MAX = 20


class RegistrySettingsService:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._state = log.ledger.schemas

    def config(self, stored: str) -> dict[str, Any]:
        """The configuration that holds for a subject."""
        for scope in _scopes(stored):
            settings = self._state.settings(scope)
            if settings is not None and settings.config:
                found: dict[str, Any] = json.loads(settings.config)
                return {"compatibilityLevel": DEFAULT_LEVEL, **found}
        return {"compatibilityLevel": DEFAULT_LEVEL}

    def mode(self, stored: str) -> str:
        """The mode that holds for a subject."""
        overall = self._state.settings(_global(stored))
        if overall is not None and overall.mode == "READONLY_OVERRIDE":
            return overall.mode
        for scope in _scopes(stored):
            settings = self._state.settings(scope)
            if settings is not None and settings.mode:
                return settings.mode
        return DEFAULT_MODE

    def own_config(self, stored: str) -> dict[str, Any]:
        """What is set for this scope alone. Raises CompatibilityNotConfigured."""
        settings = self._state.settings(stored)
        if settings is None or not settings.config:
            raise CompatibilityNotConfigured(split_id(stored)[1])
        found: dict[str, Any] = json.loads(settings.config)
        return found

    def set_config(self, stored: str) -> dict[str, Any]:
        """What is set for this scope alone, which may be nothing."""
        settings = self._state.settings(stored)
        found: dict[str, Any] = (
            json.loads(settings.config) if settings is not None and settings.config else {}
        )
        return found

    def own_mode(self, stored: str) -> str:
        """Raises RegistryModeNotConfigured."""
        settings = self._state.settings(stored)
        if settings is None or not settings.mode:
            raise RegistryModeNotConfigured(split_id(stored)[1])
        return settings.mode

    def check_writable(self, stored: str) -> None:
        """Raises RegistryOperationRefused if the mode of a subject forbids changes."""
        if self.mode(stored).startswith("READONLY"):
            raise RegistryOperationRefused(f"Subject {split_id(stored)[1]} is in read-only mode")

    async def put_config(self, stored: str, changes: dict[str, Any]) -> None:
        """Change some settings of a scope. Raises InvalidCompatibility, InvalidSubject, RegistryOperationRefused."""
        _check_scope(stored)
        level = changes.get("compatibilityLevel")
        if level is not None and str(level).upper() not in LEVELS:
            raise InvalidCompatibility(
                f"Invalid compatibility level {str(level)[:64]!r}. Valid values are {', '.join(LEVELS)}"
            )
        if level is not None:
            changes = {**changes, "compatibilityLevel": str(level).upper()}
        self.check_writable(stored)

        def changed(settings: RegistrySettings) -> RegistrySettings:
            config = {**(json.loads(settings.config) if settings.config else {}), **changes}
            text = json.dumps(config, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
            return RegistrySettings(stored, text, settings.mode)

        await self._put(stored, changed)

    async def delete_config(self, stored: str) -> dict[str, Any]:
        """Returns what was set. Raises SubjectNotFound if nothing was, unless the scope is a whole namespace."""
        self.check_writable(stored)
        try:
            before = self.own_config(stored)
        except CompatibilityNotConfigured:
            if stored != _global(stored):
                raise SubjectNotFound(split_id(stored)[1]) from None
            before = {"compatibilityLevel": DEFAULT_LEVEL}
        await self._put(stored, lambda settings: RegistrySettings(stored, "", settings.mode))
        return before

    async def put_mode(self, stored: str, mode: str, *, force: bool = False) -> str:
        """Raises InvalidRegistryMode, InvalidSubject, RegistryOperationRefused."""
        _check_scope(stored)
        mode = mode.upper()
        if mode not in MODES:
            raise InvalidRegistryMode(f"Invalid mode {mode[:64]!r}. Valid values are {', '.join(MODES)}")
        if mode == "IMPORT" and not force and self.own(stored) != "IMPORT" and self._has_schemas(stored):
            raise RegistryOperationRefused(
                "Cannot import since found existing subjects: set force=true to import"
            )
        await self._put(stored, lambda settings: RegistrySettings(stored, settings.config, mode))
        return mode

    def own(self, stored: str) -> str:
        settings = self._state.settings(stored)
        return "" if settings is None else settings.mode

    async def delete_mode(self, stored: str) -> str:
        """Returns the mode that was set. Raises SubjectNotFound if none was, unless the scope is a whole namespace."""
        before = self.own(stored)
        if not before and stored != _global(stored):
            raise SubjectNotFound(split_id(stored)[1])
        await self._put(stored, lambda settings: RegistrySettings(stored, settings.config, ""))
        return before or DEFAULT_MODE

    async def forget(self, stored: str) -> None:
        """A subject was deleted for good."""
        if self._state.settings(stored) is not None:
            await self._put(stored, lambda settings: RegistrySettings(stored, "", ""))

    def _has_schemas(self, stored: str) -> bool:
        namespace, scope = split_id(stored)
        for subject in self._state.subjects():
            owner, shown = split_id(subject.subject)
            inside = scope == GLOBAL or shown == scope or (scope.endswith(":") and shown.startswith(scope))
            if owner == namespace and inside and any(not one.deleted for one in subject.versions):
                return True
        return False

    async def _put(self, stored: str, change: Any) -> None:
        for _ in range(_ATTEMPTS_MAX):
            before = self._state.settings(stored) or RegistrySettings(stored, "", "")
            try:
                await self._log.propose(PutRegistrySettings(self._state.revision, change(before)))
            except SchemaRegistryChanged:
                continue
            return
        raise Unavailable("the schema registry changes too often: retry")


def _global(stored: str) -> str:
    return qualify_id(split_id(stored)[0], GLOBAL)


def _scopes(stored: str) -> Iterator[str]:
    """The subject, its context, its namespace."""
    namespace, shown = split_id(stored)
    yield stored
    context = names.parse(shown).context
    if context != names.DEFAULT_CONTEXT:
        yield qualify_id(namespace, str(names.Subject(context, "")))
    yield qualify_id(namespace, GLOBAL)


def _check_scope(stored: str) -> None:
    shown = split_id(stored)[1]
    if shown != GLOBAL and not names.is_valid(shown, context_alone=True):
        raise InvalidSubject(shown)
