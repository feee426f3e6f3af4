"""Every scalar op: native library against the specification on integers."""

from __future__ import annotations

import random

from simulator_harness import Bench, imm, instruction, s

from tileir.simulator.spec.scalar import SCALAR

EDGES = [0, 1, 2, 31, 32, 63, 64, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF]


def _value(rng: random.Random, bits: int) -> int:
    pick = rng.random()
    value = rng.choice(EDGES) if pick < 0.5 else rng.getrandbits(bits) if pick < 0.9 else rng.randrange(8)
    return value & ((1 << bits) - 1)


def check_op(name: str) -> None:
    spec = SCALAR[name]
    rng = random.Random(name)
    bench = Bench()
    for number in range(60):
        scc, old = rng.randrange(2), _value(rng, spec.result or 32)
        bench.scc = scc
        bench.set_sgpr64(30, old | 0xABCD << 64)
        values = [_value(rng, bits) for bits in spec.sources]
        operands = [s(30, spec.result // 32)] if spec.result else []
        for i, (value, bits) in enumerate(zip(values, spec.sources, strict=True)):
            if bits == 16:
                operands.append(imm(value))
            elif number % 5 == 4 and i == len(values) - 1:
                operands.append(imm(value, bits // 32))
            else:
                bench.set_sgpr64(20 + 2 * i, value)
                operands.append(s(20 + 2 * i, bits // 32))
        extra = {"scc": scc, "old": old}
        result, new_scc = spec.function(*values, *(extra[r] for r in spec.reads))
        bench.must_run(instruction(name, *operands, encoding="sop2", size=4))
        if result is not None:
            got = bench.sgpr64(30) & ((1 << spec.result) - 1)
            assert got == result, f"{name}({', '.join(map(hex, values))}) scc={scc}: {got:#x}, expected {result:#x}"
        assert bench.scc == (scc if new_scc is None else new_scc), f"{name}({', '.join(map(hex, values))}): SCC"
