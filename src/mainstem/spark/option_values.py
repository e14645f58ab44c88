"""Parse the options of the data source. An option that nothing read is an error."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping

from mainstem.client.environment import KEY_ENV, URL_DEFAULT, URL_ENV
from mainstem.errors import InvalidInput

_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d)?")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}


class OptionValues:
    """Options as Spark passes them; names are case-insensitive. Raises InvalidInput."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._left = {name.lower(): str(value) for name, value in options.items()}
        self._names: list[str] = []  # of all options that were read

    def text(self, name: str) -> str | None:
        self._names.append(name)
        value = self._left.pop(name.lower(), None)
        return value if value is None or value.strip() else None

    def choice(self, name: str, *choices: str) -> str:
        """One of `choices`; the first if the option is missing."""
        value = self.text(name)
        if value is None:
            return choices[0]
        found = next((choice for choice in choices if choice.lower() == value.strip().lower()), None)
        if found is None:
            raise InvalidInput(f"option {name} must be {' or '.join(choices)}, not {value!r}")
        return found

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.strip().lower() not in ("true", "false"):
            raise InvalidInput(f"option {name} must be true or false, not {value!r}")
        return value.strip().lower() == "true"

    def number(self, name: str, least: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise InvalidInput(f"option {name} must be a whole number, not {value!r}") from None
        if number < least:
            raise InvalidInput(f"option {name} must be {least} or more, not {number}")
        return number

    def duration_ms(self, name: str, default_ms: int) -> int:
        """A duration such as 500ms, 30s, 15m or 2h."""
        value = self.text(name)
        if value is None:
            return default_ms
        parts = _DURATION.fullmatch(value.strip().lower())
        if parts is None:
            raise InvalidInput(f"option {name} must be a duration such as 500ms, 30s or 15m, not {value!r}")
        return int(parts[1]) * _UNIT_MS[parts[2]]

    def url(self) -> str:
        """The broker's URL: the option, the environment variable, or the default of a local broker."""
        return self.text("url") or os.environ.get(URL_ENV) or URL_DEFAULT

    def api_key(self) -> str:
        """Read where the query is planned: remote workers may have another environment."""
        return self.text("apiKey") or os.environ.get(KEY_ENV) or ""

    def finish(self) -> None:
        """Raises InvalidInput for an option that nothing read."""
        left = next((name for name in self._left if not name.startswith("__")), None)
        if left is None:
            return
        if left.startswith("kafka."):
            raise InvalidInput(
                f"option {left} is an option of the Kafka source: give the broker's HTTP address as option url"
            )
        near = difflib.get_close_matches(left, [name.lower() for name in self._names], 1)
        meant = next((name for name in self._names if near and name.lower() == near[0]), None)
        raise InvalidInput(f"unknown option {left}" + (f": did you mean {meant}?" if meant else ""))
