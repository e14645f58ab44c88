"""Commands of tiering: which objects of a local log are in an object store as well, or on their way there or out."""

from __future__ import annotations

import msgspec


class PlanTier(msgspec.Struct, frozen=True, array_like=True, tag=143):
    """An object will be put into the store under this token. Said first, so that nothing is ever there unknown."""

    object: int
    token: bytes  # 16 random bytes, a part of its keys
    size_bytes: int  # of the whole file


class SettleTier(msgspec.Struct, frozen=True, array_like=True, tag=144):
    """What is in the store under this token is whole and durable, or is to go."""

    object: int
    token: bytes
    leaving: bool = False


class ForgetTier(msgspec.Struct, frozen=True, array_like=True, tag=145):
    """Nothing is in the store under this token any more."""

    object: int
    token: bytes
