"""Settings of all brokers that change at run time, by their Kafka names. Until then each broker follows its flags."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mainstem import limits
from mainstem.errors import InvalidConfig
from mainstem.ledger.broker_settings import AlterBrokerSettings
from mainstem.log.log import Log
from mainstem.values import whole

AUTO_CREATE, NUM_PARTITIONS = "auto.create.topics.enable", "num.partitions"


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"takes true or false, not {text!r}")
    return text.lower() == "true"


BROKER_SETTINGS: dict[str, Callable[[str], object]] = {
    AUTO_CREATE: _boolean,
    NUM_PARTITIONS: whole(1, limits.PARTITIONS_PER_TOPIC_MAX),
}


class BrokerSettingsService:
    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def state(self) -> int:
        """Changes with every setting."""
        return self._log.ledger.broker_settings.digest

    def get(self, name: str) -> str | None:
        """The value that was set for all brokers; None: each follows its flags."""
        return self._log.ledger.broker_settings.get(name)

    def auto_create(self, flag: bool) -> bool:
        """Whether topics that clients name are created. `flag` is what this broker was started with."""
        changed = self.get(AUTO_CREATE)
        return flag if changed is None else changed == "true"

    def default_partitions(self, flag: int) -> int:
        """Partitions of topics created without a number."""
        changed = self.get(NUM_PARTITIONS)
        return flag if changed is None else int(changed)

    async def change(
        self, put: Sequence[tuple[str, str]], removed: Sequence[str], *, dry_run: bool = False
    ) -> None:
        """Raises InvalidConfig."""
        rows = tuple((name, _checked(name, value)) for name, value in put)
        if not dry_run and (rows or removed):
            await self._log.propose(AlterBrokerSettings(rows, tuple(removed)))


def _checked(name: str, value: str) -> str:
    """The value to store."""
    try:
        return str(BROKER_SETTINGS[name](value.strip())).lower()
    except ValueError as error:
        raise InvalidConfig(f"{name} {error}") from None
