"""Rules about grids: in which order workgroups run, and how often a long sum is cut, as pure functions of sizes and facts of the chip.

Order. Workgroups that are on one chiplet (XCD) at a time share its L2, all of them share the last-level cache. They advance
together, so what several of them read comes from beyond the L2 once. Let `a` be the bytes of a step that all workgroups of one block
row read alike, `b` those that all of one block column read alike, S the workgroups that are on a chiplet at once, n the
chiplets. In windows of W block rows that are walked column by column, with runs of S for each chiplet,

    beyond the L2, by workgroup:                 (W · a + S/W · b) / S
    beyond the last-level cache, by workgroup:   b / W + W · a / (n · S)

The first is what the S workgroups of a chiplet differ in, W rows and S/W columns. The second holds while the operand of the columns
is larger than the last-level cache: each window streams it anew, and the W rows of a window are read once for all that is
on the chip. Where that operand fits, it comes from memory once whatever W is. A byte takes its share of the rate of the last-level cache when it is
beyond the L2, and that of the memory besides when it is beyond both; the sum is what W is chosen to make least
(`tileir/target/timing_model.json` has the rates). W is a power of two: shifts instead of divisions at the head of the kernel.

The model is checked against the cache simulation, and that against published hit rates and speeds, by
`benchmarks/grid_order.py` (docs/grid-order.md).
"""

from __future__ import annotations

from tileir.records import dataclass
from tileir.target import Target, timing_model

# Part of the last-level cache that an operand may fill and still be found there when the next window comes: the rest is for the other
# operand and for results. Assumed; the simulated orders change little between 0.6 and 0.9.
KEPT = 0.75
MOST_WINDOW = 64
# Part of a full chip up to which a grid keeps the order of the hardware: what caches can save there is less than the about 500 clocks
# that the order takes at the head of each workgroup (estimated).
SMALL = 0.5
# Grids from this number of workgroups on keep it, too: the divisions of smaller numbers are shorter (24 bits with their sign).
LARGE = 1 << 23


@dataclass(frozen=True)
class Chip:
    """What the rules know of a chip. Rates in bytes per second."""

    xcds: int
    cus_per_xcd: int
    llc_bytes: int
    llc_rate: float
    hbm_rate: float

    @classmethod
    def of(cls, target: Target, product: str = "") -> Chip:
        """Of a chip on a product such as MI300X ("": the first that is listed). KeyError for a product that the chip is not on."""
        model = timing_model(target.name)
        names = [p.name for p in target.products]
        if product and product not in names:
            raise KeyError(f"{target.name} is in {', '.join(names)}, not in '{product}'")
        memory = target.products[names.index(product) if product else 0].hbm_bytes_per_second
        return cls(
            target.num_xcds,
            target.cus_per_xcd,
            target.llc_bytes,
            model.number("llc_bytes_per_second"),
            memory * model.number("hbm_efficiency"),
        )

    @property
    def cus(self) -> int:
        return self.xcds * self.cus_per_xcd


@dataclass(frozen=True)
class OrderRule:
    """How a kernel orders its workgroups, for every size of the grid.

    chunk: run of positions for each chiplet. A window has 2^near block rows while the operand that windows stream stays in the
    last-level cache (`kept_bits`), else 2^far. Windows are turned and have 2^turned block columns if only the other operand stays there and
    there would be several windows, or if there are fewer columns than a chiplet would work on at once. Grids of at most `small` or
    at least `LARGE` workgroups keep the order of the hardware.
    """

    xcds: int
    chunk: int
    near: int
    turned: int
    far: int
    kept_bits: int
    small: int


def seconds(chip: Chip, beyond_l2: float, beyond_llc: float) -> float:
    """What bytes cost that come from beyond the L2, and from beyond the last-level cache: both levels are in the way."""
    return beyond_l2 / chip.llc_rate + beyond_llc / chip.hbm_rate


def traffic(chip: Chip, slots: int, rows: float, columns: float, window: int, *, streamed: bool) -> tuple[float, float]:
    """Bytes beyond the L2 and beyond the last-level cache by workgroup and step, see above. slots: S; rows, columns: a and b."""
    beyond_l2 = (window * rows + slots / window * columns) / slots
    return beyond_l2, columns / window + window * rows / (chip.xcds * slots) if streamed else 0.0


def best_window(chip: Chip, slots: int, rows: float, columns: float, *, streamed: bool) -> int:
    """log2 of the height of windows that costs least; the higher one of two that cost the same."""

    def cost(log: int) -> float:
        return seconds(chip, *traffic(chip, slots, rows, columns, 1 << log, streamed=streamed))

    logs = range(MOST_WINDOW.bit_length())
    return min(reversed(logs), key=cost)


def order_rule(chip: Chip, rows: float, columns: float, workgroups_per_cu: int = 1) -> OrderRule:
    """The rule for a kernel whose workgroups share `rows` bytes of a step along block rows and `columns` along block columns.

    Both are positive, in any common unit. workgroups_per_cu: how many are on a CU at once.
    """
    slots = chip.cus_per_xcd * workgroups_per_cu
    return OrderRule(
        xcds=chip.xcds,
        chunk=slots,
        near=best_window(chip, slots, rows, columns, streamed=False),
        turned=best_window(chip, slots, columns, rows, streamed=False),
        far=best_window(chip, slots, rows, columns, streamed=True),
        kept_bits=int(chip.llc_bytes * 8 * KEPT),
        small=int(chip.xcds * slots * SMALL),
    )


# Steps of k that a part must have: two, so that one is fetched while the other is computed.
LEAST_STEPS = 2
# Steps of k from which a product is cut at all: parts are summed into a C that must be cleared before, which is another launch. (Assumed: what a
# launch costs on a device is not known here. With 16 steps a cut saves 1 to 7 µs by estimate, with 64 steps 5 to 36 µs.)
WORTH_STEPS = 32


def split_k(chip: Chip, tiles: int, steps: int, workgroups_per_cu: int = 1) -> int:
    """Parts into which the sum over k of a product is cut, so that its workgroups fill the chip: `S` of the library's `gemm_split_k`; 1
    is the plain product.

    The largest power of two for which all parts of all tiles run at once. One more doubling makes the adds to C longer
    than what it saves, by estimate (`benchmarks/split_k.py`, docs/grid-order.md).

    Args:
        tiles: output tiles of the product, all matrices of a batch together.
        steps: steps of k, ceil(K / BK).
        workgroups_per_cu: how many fit on a CU, by LDS and registers.
    """
    parts = 1
    while (
        steps >= WORTH_STEPS and 2 * parts * tiles <= chip.cus * workgroups_per_cu and 2 * parts * LEAST_STEPS <= steps
    ):
        parts *= 2
    return parts
