"""The array of records that native code dispatches on."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from . import state
from .engine import Engine
from .native.op import Op
from .native.registry import END_OF_CODE, ILLEGAL_JUMP

_HEAD = struct.Struct(f"<QQQQII{state.SLOTS}q")


class Records:
    """Records of ops in program order, closed by one that reports the end of the code.

    addresses: simulated address of each op. A branch to an address that is not among them leads to a record that
    reports an illegal jump.
    """

    def __init__(self, ops: Sequence[Op], addresses: Sequence[int], engine: Engine, end: int = 0) -> None:
        makers: dict[str, Callable[[str], str]] = {op.key: op.make for op in (*ops, END_OF_CODE, ILLEGAL_JUMP)}
        functions = engine.addresses(makers)
        n = len(ops)
        self.numbers: Mapping[int, int] = {address: i for i, address in enumerate(addresses)}
        self._bytes = bytearray((n + 2) * state.RECORD_SIZE)
        self.raw: NDArray[np.uint8] = np.frombuffer(self._bytes, np.uint8)
        self.first: int = self.raw.ctypes.data
        for i, op in enumerate(ops):
            target = 0
            if op.target is not None:
                target = self.pointer(self.numbers.get(op.target, n + 1))
            self._put(i, op, functions[op.key], target, addresses[i])
        self._put(n, END_OF_CODE, functions[END_OF_CODE.key], 0, end)
        self._put(n + 1, ILLEGAL_JUMP, functions[ILLEGAL_JUMP.key], 0, end)

    def _put(self, i: int, op: Op, function: int, target: int, address: int) -> None:
        words = _check_words(op)
        slots = [_signed(s) for s in op.slots]
        slots += [0] * (state.SLOTS - len(slots))
        at = i * state.RECORD_SIZE
        _HEAD.pack_into(self._bytes, at, function, target, address, 0, len(words), 0, *slots)
        for k, (word, mask) in enumerate(words):
            self._bytes[at + state.REC_CHECK_WORDS + k] = word
            struct.pack_into("<Q", self._bytes, at + state.REC_CHECK_MASKS + 8 * k, mask)

    def pointer(self, number: int) -> int:
        """Host pointer of a record."""
        return self.first + number * state.RECORD_SIZE

    def number(self, pointer: int) -> int:
        """Record number of a host pointer."""
        return (pointer - self.first) // state.RECORD_SIZE

    def counts(self) -> NDArray[np.uint64]:
        """Executions of each record so far."""
        table = self.raw.reshape(-1, state.RECORD_SIZE)[:, state.REC_COUNT : state.REC_COUNT + 8]
        return np.ascontiguousarray(table).view(np.uint64).reshape(-1)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _check_words(op: Op) -> list[tuple[int, int]]:
    """The registers of an op as (word, mask) of the poison flags."""
    words: dict[int, int] = {}
    for first, n in op.checks:
        for register in range(first, first + n):
            words[register // 64] = words.get(register // 64, 0) | 1 << register % 64
    return sorted(words.items())
