"""Order between waves through memory: what atomic operations and cache control of a release and an acquire establish.

Model, after LLVM's memory model for gfx942 (AMDGPUUsage, "Memory Model gfx942"):

* Within a workgroup an atomic or coherent access of a wave *releases* to its address all that the wave knows and all its
  own accesses that a wait has covered; one that returns a value *acquires* what was released to its address.
* Between workgroups a release needs ``buffer_wbl2`` before, and a wait behind it that covers what was on its way; an
  acquire takes effect with the next ``buffer_inv``.
* An atomic update keeps what was released to the address before; a coherent store replaces it.

Workgroups run one after the other, so a workgroup learns only from those before it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from tileir.records import dataclass
from tileir.simulator import state
from tileir.simulator.checks.plan import Plan, returns_value
from tileir.simulator.checks.shadow import Shadow, oldest
from tileir.simulator.native import check_state as c
from tileir.simulator.program import Program

Clocks = tuple[int, ...]
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)


@dataclass
class _Snapshot:
    """What a wave knew when it released: clocks of the waves of its workgroup, and of workgroups before."""

    group: int
    clocks: Clocks
    before: dict[int, Clocks]
    written_back: bool = False
    """Whether other workgroups see it, too."""

    def merged(self, other: _Snapshot) -> _Snapshot:
        clocks = tuple(map(max, self.clocks, other.clocks))
        before = dict(self.before)
        for group, theirs in other.before.items():
            before[group] = tuple(map(max, before[group], theirs)) if group in before else theirs
        return _Snapshot(self.group, clocks, before, self.written_back)


@dataclass
class _WaveState:
    acquired: list[_Snapshot] = field(default_factory=list["_Snapshot"])
    """From other workgroups, in effect with the next buffer_inv."""
    written_back: tuple[int, _Snapshot] | None = None
    """Sequence number of the last memory operation before buffer_wbl2, and what it releases."""
    groups: dict[int, Clocks] = field(default_factory=dict[int, Clocks])


class Ordering:
    """The host side of the clocks. waves: the memory image of the workgroup's waves. carry: native ``tir_carry``."""

    def __init__(
        self,
        program: Program,
        plan: Plan,
        shadow: Shadow,
        waves: NDArray[np.uint8],
        carry: Callable[[int], None],
    ) -> None:
        self.program, self.plan, self.shadow, self.waves, self.carry = program, plan, shadow, waves, carry
        self.released: dict[tuple[bool, int], dict[tuple[int, bool], _Snapshot]] = {}
        """By address (whether in LDS, and where), then by workgroup and whether it is written back."""
        self._touched: set[int] = set()
        self.error: BaseException | None = None
        self._callback = CALLBACK(self._called)
        shadow.put(c.CK_SYNC, ctypes.cast(self._callback, ctypes.c_void_p).value or 0)

    def begin(self) -> None:
        """A new workgroup."""
        self.state = [_WaveState() for _ in self.waves]
        for key, found in list(self.released.items()):
            kept = {} if key[0] else {k: v for k, v in found.items() if v.written_back}
            if kept:
                self.released[key] = kept
            else:
                del self.released[key]
        self.shadow.put(c.CK_JOIN, 0)
        if self.shadow.foreign is not None:
            for group in self._touched:
                self.shadow.foreign[:, group] = 0
        self._touched = set()

    def _called(self, wave: int, record: int, _: int) -> int:
        try:
            if wave < 0:
                self._join()
            else:
                self._access(wave, record)
        except BaseException as error:  # an exception cannot cross native code; the monitor raises it
            self.error = self.error or error
        return 0

    # ---- events
    def fence(self, wave: int, record: int) -> None:
        """buffer_wbl2 or buffer_inv."""
        inst = self.program.instructions[record]
        assert inst is not None
        own = self.state[wave]
        if inst.name == "buffer_wbl2":
            sequence = int(self.waves[wave].view(np.uint32)[state.SEQUENCE // 4])
            own.written_back = sequence, self._snapshot(wave)
            self._advance(wave)
        else:
            for snapshot in own.acquired:
                self._learn(wave, snapshot)
            own.acquired.clear()

    def _snapshot(self, wave: int) -> _Snapshot:
        known = self.shadow.known[wave].copy()
        known[wave] = self.shadow.clocks[wave]
        return _Snapshot(self.shadow.get(c.CK_GROUP), tuple(known.tolist()), dict(self.state[wave].groups))

    def _access(self, wave: int, record: int) -> None:
        """An atomic or coherent access has been checked; its entries are still in the log."""
        inst = self.program.instructions[record]
        assert inst is not None
        if inst.name in ("buffer_wbl2", "buffer_inv"):
            self.fence(wave, record)
            return
        log = self.shadow.block.view(np.uint8)[c.CK_LOG :][: c.LOG_BYTES * self.shadow.get(c.CK_LOG_COUNT)]
        pairs = log.view(np.uint64).reshape(-1, 2)
        keys = dict.fromkeys((bool(what >> np.uint64(16) & np.uint64(1)), int(address)) for address, what in pairs)
        updates = "_atomic_" in inst.name or inst.encoding == "ds"
        stores = updates or "_store_" in inst.name
        if returns_value(inst):
            for key in keys:
                for snapshot in self.released.get(key, {}).values():
                    self._acquire(wave, snapshot)
        if stores:
            release = self._release(wave)
            for key in keys:
                found = self.released.setdefault(key, {})
                if not updates:
                    found.clear()
                for snapshot in release:
                    name = snapshot.group, snapshot.written_back
                    found[name] = found[name].merged(snapshot) if name in found else snapshot

    def _acquire(self, wave: int, snapshot: _Snapshot) -> None:
        if snapshot.group == self.shadow.get(c.CK_GROUP):
            known = self.shadow.known[wave]
            np.maximum(known, np.array(snapshot.clocks, np.uint32), out=known)
        elif snapshot.written_back:
            self.state[wave].acquired.append(snapshot)

    def _release(self, wave: int) -> list[_Snapshot]:
        """What an access releases now: for the workgroup all that is waited for, for others what was written back."""
        local = self._snapshot(wave)
        self._advance(wave)
        self.carry(self.waves[wave].ctypes.data)
        out = [local]
        written_back = self.state[wave].written_back
        if written_back is not None:
            sequence, snapshot = written_back
            pending = [oldest(self.waves[wave], queue) for queue in (c.QUEUE_VM, c.QUEUE_FLAT)]
            if all(first is None or first > sequence for first in pending):
                out.append(_Snapshot(snapshot.group, snapshot.clocks, snapshot.before, True))
        return out

    def _advance(self, wave: int) -> None:
        """The next clock of a wave. Between two barriers it ends at LAST_CLOCK; what comes then counts as released with
        what came before, so that a race may be missed and none is invented."""
        if self.shadow.clocks[wave] < c.LAST_CLOCK:
            self.shadow.clocks[wave] += 1

    def _learn(self, wave: int, snapshot: _Snapshot) -> None:
        """Makes known to a wave what another workgroup has released."""
        foreign = self.shadow.foreign
        if foreign is None:
            return
        for group, clocks in {**snapshot.before, snapshot.group: snapshot.clocks}.items():
            row = foreign[wave, group]
            np.maximum(row, np.array(clocks, np.uint16), out=row)
            self.state[wave].groups[group] = tuple(row.tolist())
            self._touched.add(group)
        self.shadow.put(c.CK_JOIN, 1)

    def _join(self) -> None:
        """All waves have met: each knows what any of them knew of other workgroups."""
        if self.shadow.foreign is not None and self._touched:
            groups = sorted(self._touched)
            best = self.shadow.foreign[:, groups].max(axis=0)
            self.shadow.foreign[:, groups] = best
            shared = {group: tuple(row.tolist()) for group, row in zip(groups, best, strict=True)}
            for own in self.state:
                own.groups = dict(shared)
        if int(self.shadow.clocks.max()) >= c.LAST_CLOCK:
            self.shadow.renew_clocks()
            self.released.clear()
