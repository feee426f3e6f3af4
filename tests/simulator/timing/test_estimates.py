"""The estimate of whole kernels: what it says, its JSON form, sampling, determinism, errors, and the command line."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import library, scheduled_gemm
from tests.simulator.timing.timing_kernels import CHIPS, ZEROS, code, timed
from tileir.simulator import Module, Simulator, SimulatorError, TimeOptions, Timing, estimate
from tileir.simulator.timing.estimate import MOST_WORKGROUPS
from tileir.simulator.timing.records import LEVELS, Cause
from tileir.simulator.timing.result import CAUSE_TEXTS, SCHEMA
from tileir.target import get, timing_model
from tileir.tools.sim import main


def _softmax(chip: str, rows: int, options: TimeOptions | None = None) -> Timing:
    compiled = library("softmax", chip)
    simulator = Simulator(chip)
    module = simulator.load(compiled.hsaco)
    x, y = (simulator.memory.allocate(rows * 1024 * 4, name) for name in "XY")
    x.write(np.ones((rows, 1024), np.float32))
    return estimate(module, "softmax", (rows, 1, 1), compiled.block, [x, rows, 1024, y], options=options)


def _gemm(chip: str, monkeypatch: pytest.MonkeyPatch) -> Timing:
    """512 x 512 x 256, launched through the runtime."""
    import ml_dtypes

    from tileir.runtime import get_device, launch

    found: list[Timing] = []

    def timed_launch(self: Module, *where: Any, check: str = "", **options: Any) -> Any:
        found.append(estimate(self, *where, **options))
        return found[0].statistics

    monkeypatch.setattr(Module, "launch", timed_launch)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((512, 256)).astype(ml_dtypes.bfloat16) for _ in range(2))
    c = np.zeros((512, 512), ml_dtypes.bfloat16)
    kernel = scheduled_gemm(chip, "2 x 2", (128, 128, 64), extra="  loop %k pattern plain\n")
    launch(kernel, {"A": a, "B": b, "C": c}, get_device(f"simulator:{chip}"))
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(c.astype(np.float64) - exact).max() < 1  # recording does not change what is computed
    return found[0]


@pytest.mark.parametrize("chip", CHIPS)
def test_gemm(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    timing = _gemm(chip, monkeypatch)
    target = get(chip)
    flops = 2 * 512 * 512 * 256
    assert timing.matrix_flops == flops
    # the library's layouts are proved free of conflicts: so says the count of the actual addresses
    assert timing.total.lds_clocks > 0 and timing.total.conflict_clocks == 0
    peak = target.peak_flops["bf16"].value / target.num_cus * timing.dispatch.active_cus
    assert 0.02 < timing.matrix_flops / timing.seconds / peak < 1
    assert timing.mfma_utilisation == pytest.approx(timing.total.mfma_clocks / (4 * timing.cu.clocks))
    hot = [loop for loop in timing.loops if loop.row.mix.get("mfma")][-1]  # the innermost
    waves = timing.dispatch.waves_per_workgroup
    assert hot.iterations == waves * 256 // 64
    assert timing.mfma_utilisation < hot.row.mfma_utilisation <= 1.02
    assert hot.row.mix["mfma"] == timing.total.mix["mfma"]
    lines = [row for row in timing.lines if row.mfma_clocks]
    assert [row.label for row in lines] == ["kernel.tile:13"]
    assert sum(row.clocks for row in timing.lines) == timing.total.clocks
    assert sum(row.mfma_utilisation for row in timing.lines) == pytest.approx(timing.mfma_utilisation)


@pytest.mark.parametrize("chip", CHIPS)
def test_rows_add_up(chip: str) -> None:
    timing = _softmax(chip, 8)
    total = timing.total
    assert total.issues == sum(total.mix.values()) == int(timing.cu.issues.sum())
    assert total.clocks == sum(w.end - w.start for w in timing.cu.waves)
    assert total.clocks == 4 * total.issues + sum(total.stalls.values())
    assert sum(r.issues for r in timing.lines) == total.issues
    assert sum(r.bytes["HBM"] for r in timing.lines) == total.bytes["HBM"]
    assert sum(r.stalls.get("wait_vm", 0) for r in timing.lines) == total.stalls["wait_vm"]
    assert timing.statistics.instructions == sum(timing.statistics.executions.values())


def test_everything_is_called_estimated() -> None:
    text = _softmax("gfx950", 8).text()
    assert text.startswith("estimated time of softmax")
    headings = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert len(headings) >= 4
    assert all("estimated" in line for line in headings)
    assert "TFLOPS" not in text


@pytest.mark.parametrize("chip", CHIPS)
def test_json(chip: str) -> None:
    """Two runs give the same bytes; the data are plain JSON with the documented keys."""
    first, second = (json.dumps(_softmax(chip, 12).json()) for _ in range(2))
    assert first == second
    data = json.loads(first)
    assert (data["schema"], data["estimated"]) == (SCHEMA, True)
    documented = (Path(__file__).parents[3] / "docs/timing.md").read_text("utf-8").partition("### JSON, schema")[2]
    for key in {*data, *data["cu"], *data["memory"], *data["occupancy"], *data["total"], *data["loops"][0]}:
        assert key in documented, key
    assert data["parameters"].endswith(f"version {timing_model(chip).version}")
    assert set(data["total"]["stalls"]) <= {cause.name.lower() for cause in Cause}
    assert set(CAUSE_TEXTS) == {cause.name.lower() for cause in Cause} - {"none"}
    assert list(data["bandwidth_clocks"]) == list(LEVELS)
    assert data["evidence"] == dict(timing_model(chip).evidence)


def test_a_sample_is_enough() -> None:
    """Executing some workgroups only gives about the time of executing all, and says that results are not complete."""
    whole = _softmax("gfx950", 600)
    part = _softmax("gfx950", 600, TimeOptions(sample_only=True, recorded=4))
    assert part.clocks == pytest.approx(whole.clocks, rel=0.1)
    assert part.matrix_flops == whole.matrix_flops == 0
    assert any("results are not complete" in note for note in part.notes)
    assert not any("results are not complete" in note for note in whole.notes)


@pytest.mark.parametrize("chip", CHIPS)
def test_workgroups_that_are_left_early(chip: str) -> None:
    """A loop of many instructions: what is not executed to its end counts for the rate of the grid all the same."""
    loop = "s_movk_i32 s6, 500\nLloop:\n" + "v_mfma_f32_16x16x16_f16 v[0:3], v[64:65], v[66:67], v[0:3]\n" * 4
    loop += "s_sub_u32 s6, s6, 1\ns_cmp_lg_u32 s6, 0\ns_cbranch_scc1 Lloop\n"
    groups = get(chip).num_cus * 3
    whole, part = (
        timed(ZEROS + "\n" + loop, chip, groups=groups, options=TimeOptions(sample_only=only, recorded=4))
        for only in (False, True)
    )
    assert whole.matrix_flops == part.matrix_flops == groups * 500 * 4 * 2 * 16**3
    assert whole.clocks == part.clocks
    assert part.statistics.instructions < whole.statistics.instructions / 2


@pytest.mark.parametrize("reverse", [False, True])
def test_workgroups_of_different_length(reverse: bool) -> None:
    """Workgroup n does n rounds (or the others): the estimate is that of the slowest of the simulated compute units."""
    target = get("gfx950")
    groups = target.num_cus
    rounds = f"s_sub_u32 s6, {groups}, s2" if reverse else "s_add_u32 s6, s2, 1"
    loop = (
        f"{rounds}\nLloop:\n"
        + "s_add_u32 s7, s7, 1\n" * 8
        + "s_sub_u32 s6, s6, 1\ns_cmp_lg_u32 s6, 0\ns_cbranch_scc1 Lloop\n"
    )
    timing = timed(loop, "gfx950", groups=groups)
    one_round = 10 * 4 + timing_model("gfx950").clocks("branch_taken_clocks")
    assert timing.clocks == pytest.approx(groups * one_round, rel=0.02)
    (note,) = [note for note in timing.notes if "workgroups differ" in note]
    assert "slowest of 4 simulated CUs" in note


def test_too_much_to_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: a long kernel is refused, its workgroups that are not kept take no room."""
    monkeypatch.setattr("tileir.simulator.timing.recorder._MOST_KEPT", 20_000)
    loop = "s_movk_i32 s6, 5000\nLloop:\ns_sub_u32 s6, s6, 1\ns_cmp_lg_u32 s6, 0\ns_cbranch_scc1 Lloop\n"
    with pytest.raises(SimulatorError, match="more than 20000 instructions"):
        timed(loop, "gfx950", groups=2)
    short = "s_movk_i32 s6, 5000\ns_cmp_eq_u32 s2, 0\ns_cselect_b32 s6, 4, s6\n" + loop.partition("\n")[2]
    timing = timed(short, "gfx950", groups=3, options=TimeOptions(recorded=1, cus=1))
    assert timing.statistics.instructions > 20_000


def test_products() -> None:
    """More memory bandwidth, less time, for what only moves data."""
    copy = "s_load_dwordx2 s[4:5], s[0:1], 0\nv_lshlrev_b32 v1, 4, v0\ns_lshl_b32 s6, s2, 12\nv_add_u32 v1, s6, v1\n"
    copy += "s_waitcnt lgkmcnt(0)\nglobal_load_dwordx4 v[4:7], v1, s[4:5]\ns_waitcnt vmcnt(0)\n"
    options = {"waves": 4, "groups": 304 * 6, "vgprs": 32, "accum": 32, "buffer": 304 * 6 * 4096}
    times = [
        timed(copy, "gfx942", options=TimeOptions(product=p, sample_only=True), **options).clocks  # type: ignore[arg-type]
        for p in ("MI300X", "MI325X")
    ]
    assert times[1] < times[0]


def _module(chip: str = "gfx950") -> tuple[Module, bytes]:
    simulator = Simulator(chip)
    memory = simulator.memory.allocate(4096, "buffer")
    memory.write(np.zeros(4096, np.uint8))
    return simulator.load(code("s_nop 0", chip)), struct.pack("<Q", memory.address)


def test_errors() -> None:
    module, arguments = _module()
    with pytest.raises(SimulatorError, match="gfx950 is not on a product 'MI300X'; it is on MI355X"):
        estimate(module, "k", (1, 1, 1), (64, 1, 1), arguments, options=TimeOptions(product="MI300X"))
    with pytest.raises(SimulatorError, match="grid"):
        estimate(module, "k", (0, 1, 1), (64, 1, 1), arguments)
    with pytest.raises(SimulatorError, match="block"):
        estimate(module, "k", (1, 1, 1), (2048, 1, 1), arguments)
    with pytest.raises(SimulatorError, match="has 16777217 workgroups; an estimate takes up to 16777216"):
        estimate(module, "k", (MOST_WORKGROUPS + 1, 1, 1), (64, 1, 1), arguments, options=TimeOptions(sample_only=True))


@pytest.fixture
def softmax_file(tmp_path: Path) -> list[str]:
    file = tmp_path / "softmax.hsaco"
    file.write_bytes(library("softmax", "gfx950").hsaco)
    values = ["X=random:f32:64x1024", "M=64", "N=1024", "Y=zeros:f32:64x1024"]
    return [str(file), "--grid", "64", *[part for value in values for part in ("--arg", value)]]


def test_command_line(softmax_file: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "time.json"
    assert main([*softmax_file, "--time", "--json", str(out), "--out", f"Y={tmp_path / 'y.npy'}"]) == 0
    assert "estimated time of softmax on gfx950 (MI355X): " in capsys.readouterr().out
    data = json.loads(out.read_text())
    assert data["timing"]["schema"] == SCHEMA and data["workgroups"] == 64
    assert np.load(tmp_path / "y.npy").sum() == pytest.approx(64, rel=1e-5)
    assert main([*softmax_file, "--time-sample", "--product", "MI355X"]) == 0
    assert "estimated time of softmax" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--time", "--check", "all"], "--time and --check are two runs"),
        (["--product", "MI355X"], "--product is for --time"),
    ],
)
def test_usage(softmax_file: list[str], options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*softmax_file, *options]) == 2
    assert message in capsys.readouterr().err


def test_wrong_product(softmax_file: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*softmax_file, "--time", "--product", "MI300X"]) == 1
    assert "gfx950 is not on a product 'MI300X'; it is on MI355X" in capsys.readouterr().err
