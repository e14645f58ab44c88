"""Regular expressions in schemas, by RE2: its time is linear in the text and in the pattern, whatever they are."""

from __future__ import annotations

from collections.abc import Callable

from mainstem.errors import UndecodablePayload
from mainstem.regexes import InvalidPattern, Pattern, compiled_pattern

_KEPT_MAX = 64
# A short pattern may compile to a program of 100,000 instructions, in some ms.
_COMPILED_PER_STEP = 64  # instructions
_REFUSAL_STEPS = 64  # to find out that a pattern is too large
_MATCHED_PER_STEP = 4_000  # instructions times characters


class Patterns:
    """The patterns of one validation or comparison, which has a limited number of steps. `spend` takes them from it."""

    def __init__(self, spend: Callable[[int], None]) -> None:
        self._spend = spend
        self._compiled: dict[str, Pattern] = {}

    def matches(self, pattern: str, text: str) -> bool:
        """Whether some part of the text matches. Raises UndecodablePayload for a pattern that RE2 does not know."""
        compiled = self._compiled.get(pattern)
        if compiled is None:
            try:
                compiled = compiled_pattern(pattern)
            except InvalidPattern as wrong:
                self._spend(_REFUSAL_STEPS)
                raise UndecodablePayload(
                    f"the pattern {pattern[:200]!r} cannot be applied: {wrong}"
                ) from None
            self._spend(compiled.programsize // _COMPILED_PER_STEP)
            if len(self._compiled) < _KEPT_MAX:
                self._compiled[pattern] = compiled
        self._spend(1 + compiled.programsize * len(text) // _MATCHED_PER_STEP)
        return compiled.search(text) is not None
