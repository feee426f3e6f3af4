"""order-grid: a bijection for every grid (cases xcd-bijection and raster-tail), and the text computes the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileir import kernels
from tileir.frontend import parse
from tileir.interpreter import run
from tileir.ir.core import Kernel, Module
from tileir.ir.verifier import verify
from tileir.passes.base import Context
from tileir.passes.grid_rules import LARGE, Chip, OrderRule, best_window, order_rule, seconds, traffic
from tileir.passes.grid_sharing import sharing
from tileir.passes.manager import run_pipeline
from tileir.passes.order_grid import PASS, Numbers, applies, remap, remap_by_rule, remap_line
from tileir.passes.simplify import simplify
from tileir.target import get

NUMBERS = Numbers()
XCDS = (1, 2, 4, 6, 8)


@pytest.mark.parametrize("xcds", XCDS)
@pytest.mark.parametrize("chunk", [None, 1, 16, 64])
def test_chunks_are_a_bijection_for_every_grid(xcds: int, chunk: int | None) -> None:
    for n in range(1, 4097):
        position = remap_line(NUMBERS, np.arange(n), n, xcds=xcds, chunk=chunk)
        assert np.array_equal(np.bincount(position, minlength=n), np.ones(n)), n


@pytest.mark.parametrize("xcds", XCDS)
def test_chunks_and_windows_are_a_bijection_for_every_small_grid(xcds: int) -> None:
    for rows in range(1, 34):
        for columns in range(1, 18):
            for chunk, window in ((None, None), (2, 3), (64, 8), (5, 40)):
                row, column = remap(
                    NUMBERS, np.arange(rows * columns), rows, columns, xcds=xcds, chunk=chunk, window=window
                )
                assert row.min() >= 0 and row.max() < rows and column.min() >= 0 and column.max() < columns
                assert len(np.unique(row * columns + column)) == rows * columns, (rows, columns, chunk, window)


@pytest.mark.parametrize("size", [1152, 1280, 1536])
@pytest.mark.parametrize("tile", [64, 128, 256])
def test_raster_tail(size: int, tile: int) -> None:
    n = -(-size // tile)
    for window in (1, 4, 5, 7, 8):
        row, column = remap(NUMBERS, np.arange(n * n), n, n, xcds=8, chunk=16, window=window)
        assert len(np.unique(row * n + column)) == n * n


def test_every_chiplet_gets_runs_of_neighbours() -> None:
    n, xcds, chunk = 1000, 8, 16
    position = remap_line(NUMBERS, np.arange(n), n, xcds=xcds, chunk=chunk)
    owner = np.empty(n, int)
    owner[position] = np.arange(n) % xcds
    full = n // (xcds * chunk) * xcds * chunk
    assert all(len(np.unique(owner[i : i + chunk])) == 1 for i in range(0, full, chunk))
    assert np.count_nonzero(np.diff(owner[full:])) == xcds - 1  # one run each in the rest


def test_the_table_in_the_documentation() -> None:
    row, column = remap(NUMBERS, np.arange(12), 4, 3, xcds=2, chunk=2, window=2)
    grid = np.empty((4, 3), int)
    grid[row, column] = np.arange(12)
    assert grid.tolist() == [[0, 1, 4], [2, 3, 6], [5, 8, 9], [7, 10, 11]]


KERNEL = """tileir 1
kernel @k(%A: global<i32[M, N, 2]>, %B: global<i32[P]>) grid({grid}) {attrs} {{
  {ids} = program_id()
  {store}
}}
"""


def ordered(grid: str, ids: str, store: str, order: str) -> Kernel:
    attrs = f"with(target = gfx950{order})"
    module = parse(KERNEL.format(grid=grid, ids=ids, store=store, attrs=attrs), "order.tile")
    kernel = PASS.run(module.kernels[0], Context(get("gfx950"), module))
    verify(kernel)
    assert kernel.attrs["ordered"] is True
    return simplify(kernel)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (7, 5), (8, 8), (9, 3), (13, 17), (30, 11)])
@pytest.mark.parametrize(("chunk", "window"), [(0, 0), (4, 0), (0, 3), (4, 3), (64, 8), (3, 2)])
def test_the_text_computes_the_mapping(m: int, n: int, chunk: int, window: int) -> None:
    """Every program writes which hardware position it has to the place it works on."""
    order = (
        ", order = xcd"
        + (f", order_chunk = {chunk}" if chunk else "")
        + (f", order_window = {window}" if window else "")
    )
    kernel = ordered("cdiv(M, 2), cdiv(N, 2), 2", "%i, %j, %p", "store(%j + 1, %A[%i, %j, %p])", order)
    assert sum(op.name == "program_id" for op in kernel.walk()) == 1
    # The interpreter runs programs in the order of the hardware; record it with one program at a time.
    rows, columns = m, n
    wanted = remap(
        NUMBERS, np.arange(rows * columns), rows, columns, xcds=8, chunk=chunk or None, window=window or None
    )
    for linear in range(0, rows * columns, max(1, rows * columns // 40)):
        array = np.zeros((2 * m, 2 * n, 2), np.int32)
        run(
            kernel,
            {"A": array, "B": np.zeros(1, np.int32)},
            programs=[(linear % rows, linear // rows, 1)],
        )
        where = np.argwhere(array)
        assert where.tolist() == [[int(wanted[0][linear]), int(wanted[1][linear]), 1]]


def test_lines_and_fewer_names_than_dimensions() -> None:
    kernel = ordered("P", "%i", "store(%i, %B[%i])", ", order = xcd, order_chunk = 3")
    b = np.full(29, -1, np.int32)
    run(kernel, {"A": np.zeros((1, 1, 2), np.int32), "B": b})
    assert b.tolist() == list(range(29))


def test_without_an_order_nothing_changes_and_twice_is_once() -> None:
    kernel = ordered("M, N", "%i, %j", "store(%i, %A[%i, %j, 0])", "")
    assert [op.name for op in kernel.walk()].count("program_id") == 1
    assert not any(op.name in ("div", "mod") for op in kernel.walk())
    done = ordered("M, N", "%i, %j", "store(%i, %A[%i, %j, 0])", ", order = xcd")
    assert PASS.run(done, Context(get("gfx950"), Module([done]))) is done


def test_powers_of_two_need_no_division() -> None:
    kernel = ordered("P", "%i", "store(%i, %B[%i])", ", order = xcd, order_chunk = 16")
    assert not any(op.name in ("div", "mod", "cdiv") for op in kernel.walk())


# Orders by rule

CHIPS = ("gfx942", "gfx950")
RULES = [
    order_rule(Chip.of(get(chip)), *shares, per_cu)
    for chip in CHIPS
    for shares in ((1.0, 1.0), (4.0, 1.0), (1.0, 16.0))
    for per_cu in (1, 2)
]
SMALL_RULE = OrderRule(xcds=4, chunk=3, near=1, turned=2, far=3, kept_bits=0, small=0)
KEPT = [{"rows_kept": a, "columns_kept": b} for a, b in itertools.product((False, True), repeat=2)]


@pytest.mark.parametrize("kept", KEPT, ids=str)
@pytest.mark.parametrize("rule", [SMALL_RULE, *RULES[:4]], ids=str)
def test_orders_by_rule_are_bijections_for_every_small_grid(rule: OrderRule, kept: dict[str, bool]) -> None:
    for rows in range(1, 40):
        for columns in (1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 33, 39):
            n = rows * columns
            row, column = remap_by_rule(NUMBERS, np.arange(n), rows, columns, rule, **kept)
            assert row.min() >= 0 and row.max() < rows and column.min() >= 0 and column.max() < columns
            assert len(np.unique(row * columns + column)) == n, (rows, columns)


@given(
    st.sampled_from(RULES), st.sampled_from(KEPT), st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 1 << 18)
)
def test_orders_by_rule_are_bijections_for_large_grids(
    rule: OrderRule, kept: dict[str, bool], rows: int, columns: int, size: int
) -> None:
    columns = min(columns, max(1, size // rows))
    n = rows * columns
    row, column = remap_by_rule(NUMBERS, np.arange(n), rows, columns, rule, **kept)
    assert int(row.min()) == int(column.min()) == 0 and int(row.max()) == rows - 1 and int(column.max()) == columns - 1
    assert np.array_equal(np.bincount(row * columns + column, minlength=n), np.ones(n))


def test_which_sizes_keep_the_order_of_the_hardware() -> None:
    rule = order_rule(Chip.of(get("gfx950")), 1.0, 1.0)
    assert [bool(applies(NUMBERS, rows, 8, rule)) for rows in (1, 16, 17, 1000)] == [False, False, True, True]
    assert not applies(NUMBERS, LARGE // 8, 8, rule) and applies(NUMBERS, LARGE // 8 - 1, 8, rule)


def test_windows_are_about_square_and_no_neighbour_costs_less() -> None:
    chip = Chip.of(get("gfx950"))
    assert (chip.xcds, chip.cus, chip.llc_bytes) == (8, 256, 256 << 20)
    for shares, slots, streamed in itertools.product(((1.0, 1.0), (3.0, 1.0), (1.0, 20.0)), (32, 64), (False, True)):

        def cost(log: int, shares=shares, slots=slots, streamed=streamed) -> float:
            return seconds(chip, *traffic(chip, slots, *shares, 1 << log, streamed=streamed))

        log = best_window(chip, slots, *shares, streamed=streamed)
        assert cost(log) <= min(cost(max(0, log - 1)), cost(log + 1) if log < 6 else np.inf)
    assert 1 << best_window(chip, 64, 1.0, 1.0, streamed=False) == 8  # 8 x 8 workgroups of a chiplet
    assert traffic(chip, 32, 2.0, 1.0, 8, streamed=True) == ((8 * 2 + 4) / 32, 1 / 8 + 8 * 2 / 256)


def test_windows_follow_what_is_shared() -> None:
    """Rows that weigh more make windows lower; turned windows are those of the transposed product."""
    chip = Chip.of(get("gfx950"))
    even, heavy_rows, heavy_columns = (order_rule(chip, *shares) for shares in ((1, 1), (4, 1), (1, 4)))
    assert heavy_rows.near < even.near < heavy_columns.near
    assert (heavy_rows.near, heavy_rows.turned) == (heavy_columns.turned, heavy_columns.near)


def test_chunks_are_what_a_chiplet_runs_at_once() -> None:
    assert [order_rule(Chip.of(get(c)), 1, 1, n).chunk for c in CHIPS for n in (1, 2)] == [38, 76, 32, 64]
    with pytest.raises(KeyError, match="MI355X"):
        Chip.of(get("gfx950"), "MI300X")


def test_no_window_is_thin() -> None:
    """17 rows in windows of 8: 8 and 9, not 8, 8 and 1; 21 rows: 8, 8 and 5."""
    rule = order_rule(Chip.of(get("gfx950")), 1.0, 1.0)
    for rows, heights in ((17, [8, 9]), (21, [8, 8, 5]), (3, [3])):
        columns = 8 * rule.chunk  # whole rounds: positions are runs of a chunk for each chiplet
        n = rows * columns
        row, column = remap_by_rule(NUMBERS, np.arange(n), rows, columns, rule, rows_kept=True, columns_kept=True)
        turn, xcd = np.divmod(np.arange(n), 8)
        position = (turn // rule.chunk * 8 + xcd) * rule.chunk + turn % rule.chunk
        path = row[np.argsort(position)], column[np.argsort(position)]
        ends = np.flatnonzero(np.diff(path[1], prepend=-1) < 0)  # a window begins at the first column
        assert [int(part.max() - part.min()) + 1 for part in np.split(path[0], ends)] == heights


PRODUCT = """tileir 1
kernel @k(%A: global<bf16[M, K]>, %B: global<bf16[N, K]>, %C: global<f32[M, N]>) grid(cdiv(M, 32), cdiv(N, 16)) {
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[32, 16]>
  %end = END
  %acc = for %k = 0 to %end step 16 carry(%c = %zero) {
    %a = load(%A[%i * 32 +: 32, %k +: 16])
    %b = load(%B[%j * 16 +: 16, %k +: 16])
    yield mma(%a, transpose(%b), %c)
  }
  store(%acc, %C[%i * 32 +: 32, %j * 16 +: 16])
}
"""


def product(end: str = "K", schedule: str = "") -> Kernel:
    return run_pipeline(
        parse(PRODUCT.replace("END", end) + schedule, "p.tile"), "", "gfx950", stop_after="simplify-3"
    ).kernel


def by_rule(kernel: Kernel) -> bool:
    """Whether the kernel has the order of the rule: nothing else knows `LARGE`."""
    return any(op.attrs.get("value") == LARGE - 1 for op in kernel.walk())


def test_what_a_product_shares() -> None:
    found = sharing(parse(PRODUCT.replace("END", "K"), "p.tile").kernels[0])
    assert found.even and found.rows == 2 * found.columns == 64 * 32 * 16 * 2
    assert found.row_views == ((("M", "K"), 16),) and found.column_views == ((("N", "K"), 16),)


def test_what_batches_epilogues_and_gathers_share() -> None:
    text = """tileir 1
kernel @k(%A: global<f32[L, M, 64]>, %X: global<f32[N]>, %W: global<i32[M]>, %G: global<f32[R, 64]>, %C: global<f32[L, M, N]>)
    grid(cdiv(M, 16), cdiv(N, 16), L) {
  %i, %j, %b = program_id()
  %a = load(%A[%b, %i * 16 +: 16, 0 +: 64])
  %x = load(%X[%j * 16 +: 16])
  %w = load(%W[%i * 16 +: 16])
  %g = load(%G[%w, 0 +: 64])
  %s = reduce_add(%a, axis = 1) + reduce_add(%g, axis = 1)
  store(%s + reshape<[1, 16]>(%x), %C[%b, %i * 16 +: 16, %j * 16 +: 16])
}
"""
    found = sharing(parse(text, "b.tile").kernels[0])
    assert found.columns == 64 and found.column_views == ((("N",), 32),)
    assert (
        found.rows == 2 * 16 * 64 * 4 + 64
    )  # the rows that %G is read at follow from the block row, through what was loaded
    assert found.row_views == ((("M", 64), 32), (("M",), 32), (("R", 64), 32)) and found.even


def test_products_are_ordered_by_themselves_and_directives_win() -> None:
    plain, linear, given = (
        product(schedule=f"schedule @s of @k for gfx950 {{\n  {text}\n}}\n")
        for text in ("waves %acc 1 x 1", "order linear", "order xcd(chunk = 16, window = 5)")
    )
    assert by_rule(plain) and not by_rule(linear) and not by_rule(given)
    assert any(op.attrs.get("value") == 5 for op in given.walk())


@pytest.mark.parametrize("order", ["", "linear", "xcd(chunk = 4, window = 2)"])
def test_versions_for_aligned_and_unaligned_views_share_the_order(order: str) -> None:
    """Both have a `program_id` before the pass; what replaces them stands once in the body, before the branch between the versions."""
    kernel = product(schedule=f"schedule @s of @k for gfx950 {{ order {order} }}" if order else "")
    branch = next(
        i for i, op in enumerate(kernel.body.ops) if op.name == "if" and any(o.name == "mma" for o in op.walk())
    )
    ids = [op for op in kernel.walk() if op.name == "program_id"]
    shared = [op for op in kernel.body.ops[:branch] if op.name == "program_id"]
    assert (len(ids), len(shared)) == ((2, 0) if order == "linear" else (1, 1))


def test_uneven_work_keeps_the_order_of_the_hardware() -> None:
    assert by_rule(product()) and not by_rule(product("where(%i > 0, K, 0)"))
    assert not sharing(parse(PRODUCT.replace("END", "min(K, (%i + 1) * 16)"), "p.tile").kernels[0]).even


def test_kernels_without_anything_shared_along_both_dimensions_stay_as_they_are() -> None:
    attention = sharing(parse(kernels.source("attention"), "k.tile").kernels[0])
    assert attention.rows > 0 and attention.columns == 0 and attention.even  # heads are the first dimension of its grid
    assert not sharing(parse(kernels.source("attention"), "k.tile", {"CAUSAL": True}).kernels[0]).even
    done = run_pipeline(parse(kernels.source("transpose"), "k.tile"), "", "gfx950", stop_after="order-grid").kernel
    assert not by_rule(done)


def test_the_choice_is_told() -> None:
    log = run_pipeline(parse(kernels.source("gemm"), "g.tile"), "", "gfx942", stop_after="order-grid").context.log
    (told,) = [d for d in log.diagnostics if d.code == "R0808"]
    assert "chunks of 76 for each of 8 chiplets" in told.message and "windows of 16 block rows" in told.message


@pytest.mark.parametrize(("m", "n"), [(12, 11), (15, 17), (1, 140), (33, 5), (8, 8)])
@pytest.mark.parametrize("views", ["", ", %B: global<i32[N, 1073741824], strides = [S, T]>"], ids=["kept", "streamed"])
def test_the_text_computes_the_rule(m: int, n: int, views: str) -> None:
    """As above. With a view that no cache holds, windows are turned."""
    use = "  %w = load(%B[%j * 2 +: 2, 0 +: 2])" if views else "  %w = load(%D[%j * 2 +: 2])"
    text = f"""tileir 1
kernel @k(%A: global<i32[M, N]>, %D: global<i32[N]>, %E: global<i32[M]>{views}) grid(cdiv(M, 2), cdiv(N, 2)) with(target = gfx950) {{
  %i, %j = program_id()
  %v = load(%E[%i * 2 +: 2])
{use}
  store(%j + 1, %A[%i, %j])
}}
"""
    module = parse(text, "rule.tile")
    shared = sharing(module.kernels[0])
    kernel = simplify(PASS.run(module.kernels[0], Context(get("gfx950"), module)))
    verify(kernel)
    rule = order_rule(Chip.of(get("gfx950")), shared.rows, shared.columns, 2)
    rows, columns, linear = m, n, np.arange(m * n)
    if applies(NUMBERS, rows, columns, rule):
        wanted = remap_by_rule(NUMBERS, linear, rows, columns, rule, rows_kept=True, columns_kept=not views)
    else:
        wanted = linear % rows, linear // rows
    given = {"A": np.zeros((2 * m, 2 * n), np.int32), "D": np.zeros(2 * n, np.int32), "E": np.zeros(2 * m, np.int32)}
    if views:
        given["B"] = np.broadcast_to(np.int32(0), (2 * n, 1 << 30))
    for number in range(0, m * n, max(1, m * n // 30)):
        given["A"][:] = 0
        run(kernel, given, programs=[(number % rows, number // rows, 0)])
        where = np.argwhere(given["A"])
        assert where.tolist() == [[int(wanted[0][number]), int(wanted[1][number])]]
