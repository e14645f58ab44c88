"""Compile kernels on first use, so that nothing imports numba before there is enough work for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from threading import Lock, get_ident
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from mainstem.records import (
    compaction_kernels,
    json_kernels,
    kernels,
    pulsar_kernels,
    pulsar_run_kernels,
    pulsar_send_kernels,
    writing_kernels,
)

F = TypeVar("F", bound=Callable[..., Any])

# Kernels only borrow arrays: they create none and keep none. Without this option, every call of an inner function
# counts references to its array arguments, atomically, which dominates the run time. The option has no public name in
# numba; if it is removed, compiling raises.
_BORROWING: dict[str, Any] = {"_nrt": False}

# Functions that kernels call: numba must know them. Other callers use them as plain functions.
_CALLED_BY_KERNELS = (
    kernels.read_varint,
    kernels.read_long_varint,
    kernels.read_span,
    kernels.read_header,
    kernels.read_record,
    kernels.read_int,
    kernels.matches,
    writing_kernels.copy,
    writing_kernels.zigzag_bytes,
    writing_kernels.write_varint,
    writing_kernels.span_bytes,
    writing_kernels.write_span,
    pulsar_kernels.read_unsigned,
    pulsar_kernels.read_long_unsigned,
    pulsar_kernels.read_length,
    pulsar_kernels.write_unsigned,
    pulsar_kernels.unsigned_bytes,
    pulsar_kernels.zigzag_size,
    pulsar_kernels.copy_bytes,
    pulsar_kernels.is_ascii,
    pulsar_kernels.has_name,
    pulsar_kernels.is_reserved,
    pulsar_kernels.skip_field,
    pulsar_kernels.read_record_header,
    pulsar_run_kernels.checksum,
    pulsar_run_kernels.put_u32,
    pulsar_run_kernels.put_entry,
    pulsar_run_kernels.put_properties,
    pulsar_run_kernels.put_message,
    pulsar_send_kernels.get_u32,
    pulsar_send_kernels.read_send,
    pulsar_send_kernels.put_record,
    pulsar_send_kernels.is_opaque,
    pulsar_send_kernels.read_property,
    json_kernels.utf8_length,
    json_kernels.skip_space,
    json_kernels.skip_hex,
    json_kernels.skip_string,
    json_kernels.skip_digits,
    json_kernels.skip_number,
    json_kernels.skip_word,
    json_kernels.skip_scalar,
    json_kernels.skip_key,
    json_kernels.is_json,
    json_kernels.put,
    json_kernels.put_span,
    json_kernels.put_number,
    json_kernels.put_string,
    json_kernels.put_base64,
    json_kernels.put_data,
    compaction_kernels.sip_round,
    compaction_kernels.hash_key,
    compaction_kernels.find_slot,
    compaction_kernels.put_int,
)
_lock = Lock()


class Preloaded:
    """Kernels that a thread loads, while the event loop does without them: compiling them takes many seconds, the first
    time of all."""

    def __init__(self) -> None:
        self._loaded = False
        self._loader: int | None = None  # the thread that loads them

    def load(self, use: Callable[[], None]) -> None:
        """Have them loaded by calling what uses them."""
        self._loader = get_ident()
        try:
            use()
            self._loaded = True
        finally:
            self._loader = None

    def usable(self) -> bool:
        """Whether the caller may use them without a wait for their compilation. An event loop may once they are loaded;
        other threads also before a load begins, as programs without a server do."""
        if self._loaded or self._loader == get_ident():
            return True
        return self._loader is None and not _on_loop()


pulsar_preloaded = Preloaded()  # those of the Pulsar door and of subscriptions


def _on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def compiled(kernel: F) -> F:
    """The kernel as native code that releases the GIL. The first call ever compiles it, later ones load it."""
    with _lock:
        return cast(F, _compile(kernel))


def octets(data: bytes | bytearray | memoryview) -> npt.NDArray[np.uint8]:
    """Bytes for a compiled kernel, without a copy. Always read-only: numba compiles again for a writable array."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


@cache
def _compile(kernel: Callable[..., Any]) -> object:
    import numba

    _register_functions()
    return numba.njit(nogil=True, cache=True, boundscheck=False, **_BORROWING)(kernel)


@cache
def _register_functions() -> None:
    from numba.extending import register_jitable

    for function in _CALLED_BY_KERNELS:
        register_jitable(**_BORROWING)(function)
