"""Distances from LDS reads to their waits and uses, counted by hand."""

from __future__ import annotations

from inspect_assembly import report

from tileir.simulator.inspect import Distance, Loop

MFMA = "v_mfma_f32_32x32x8_f16 a[0:15], v[40:41], v[42:43], a[0:15]\n"


def loop_of(body: str) -> Loop:
    (loop,) = report(f".Lloop:\n{body}\n s_cbranch_scc1 .Lloop\n s_endpgm\n").loops
    return loop


def test_straight_line() -> None:
    loop = loop_of(f"""
  ds_read_b128 v[0:3], v9
  s_nop 0
  {MFMA}
  s_waitcnt lgkmcnt(0)
  v_mov_b32 v20, v3
""")
    (read,) = loop.reads
    assert read.wait == Distance(3, 32) and read.use == Distance(4, 32)


def test_later_operations_may_be_outstanding() -> None:
    """lgkmcnt(1) completes the first of two reads, not the second."""
    loop = loop_of("""
  ds_read_b32 v0, v9
  ds_read_b32 v1, v9
  s_waitcnt lgkmcnt(1)
  s_nop 0
  s_waitcnt lgkmcnt(0)
  v_mov_b32 v20, v0
  v_mov_b32 v21, v1
""")
    first, second = loop.reads
    assert (first.wait, second.wait) == (Distance(2, 0), Distance(3, 0))
    assert (first.use, second.use) == (Distance(5, 0), Distance(5, 0))


def test_use_in_the_next_iteration() -> None:
    loop = loop_of(f"""
  s_waitcnt lgkmcnt(0)
  v_mov_b32 v20, v0
  ds_read_b32 v0, v9
  {MFMA}
""")
    (read,) = loop.reads
    # behind the read: MFMA, branch, then round to the wait and the use
    assert read.wait == Distance(3, 32) and read.use == Distance(4, 32)


def test_overwritten_before_use() -> None:
    loop = loop_of("ds_read_b32 v0, v9\n s_waitcnt lgkmcnt(0)\n v_mov_b32 v0, 0\n v_mov_b32 v1, v0\n")
    assert loop.reads[0].use is None


def test_part_of_it_survives() -> None:
    loop = loop_of(
        "ds_read_b64 v[0:1], v9\n s_waitcnt lgkmcnt(0)\n v_mov_b32 v0, 0\n v_mov_b32 v2, v0\n v_mov_b32 v2, v1\n"
    )
    assert loop.reads[0].use == Distance(4, 0)


def test_never_waited_for() -> None:
    loop = loop_of("ds_read_b32 v0, v9\n s_waitcnt vmcnt(0)\n")
    assert loop.reads[0].wait is None and loop.reads[0].use is None


def test_the_shorter_way_counts() -> None:
    (loop,) = report("""
.Lloop:
  ds_read_b32 v0, v9
  s_cbranch_vccz .Lshort
  s_nop 0
  s_nop 0
  s_nop 0
.Lshort:
  s_waitcnt lgkmcnt(0)
  v_mov_b32 v1, v0
  s_cbranch_scc1 .Lloop
  s_endpgm
""").loops
    assert loop.reads[0].wait == Distance(2, 0) and loop.reads[0].use == Distance(3, 0)


def test_reads_into_accumulation_registers() -> None:
    loop = loop_of(
        "ds_read_b64 a[20:21], v9\n s_waitcnt lgkmcnt(0)\n v_mfma_f32_32x32x8_f16 a[0:15], a[20:21], v[2:3], a[0:15]\n"
    )
    assert loop.reads[0].use == Distance(2, 0)


def test_the_data_of_a_store_are_used() -> None:
    loop = loop_of("ds_read_b32 v0, v9\n s_waitcnt lgkmcnt(0)\n ds_write_b32 v8, v0\n")
    assert loop.reads[0].use == Distance(2, 0)


def test_exposed_reads() -> None:
    """Exposed: fewer MFMA clocks before the wait than the latency of the LDS."""
    read = "ds_read_b32 v0, v9\n"
    assert loop_of(read + MFMA + "s_waitcnt lgkmcnt(0)\n v_mov_b32 v1, v0\n").reads[0].exposed(33)
    assert not loop_of(read + MFMA + "s_waitcnt lgkmcnt(0)\n v_mov_b32 v1, v0\n").reads[0].exposed(32)
