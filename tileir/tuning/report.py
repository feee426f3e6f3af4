"""What tuning found out, as objects, as a table, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tileir.records import dataclass
from tileir.tuning.schedules import Directives
from tileir.tuning.trials import ParameterValue, Result

SCHEMA = "tileir-tune/1"
BASELINE = "as it is"


@dataclass(frozen=True)
class Trial:
    """A candidate that was compiled and timed. params: values of the open parameters; directives: what its schedule says, None for the file
    as it is. model_clocks: of the quick model, by which it was chosen.
    """

    params: dict[str, int]
    directives: Directives | None
    model_clocks: float
    result: Result

    @property
    def code(self) -> str:
        """The code of the diagnostic that it failed with, or of a warning because of which it is not proposed."""
        if self.result.diagnostic is not None:
            return self.result.diagnostic.code
        return ", ".join(self.result.warnings) if self.result.rejected else ""

    def __str__(self) -> str:
        said = BASELINE if self.directives is None else str(self.directives)
        return f"{' '.join(f'{k}={v}' for k, v in self.params.items())} {said}".strip()


@dataclass(frozen=True)
class Tuned:
    """The outcome of `tune`. All times are estimates of the simulator's model.

    candidates: how many schedules the quick model ranked; unfit: those of them that it says cannot compile, by the code of the
    diagnostic. trials: those that were compiled and timed, in that order; the first is the file as it is. best: the fastest that may be
    proposed. schedule: its `schedule` block; text: the whole file with it, and with its parameters as defaults.
    """

    kernel: str
    target: str
    product: str
    shape: dict[str, int]
    fixed: dict[str, ParameterValue]
    candidates: int
    unfit: dict[str, int]
    trials: tuple[Trial, ...]
    best: Trial
    name: str
    schedule: str
    text: str
    notes: tuple[str, ...]

    @property
    def baseline(self) -> Trial:
        """The file as it is."""
        return self.trials[0]

    @property
    def speedup(self) -> float:
        """Estimated time of the file as it is over that of the best; NaN where the file as it is has none."""
        before, after = self.baseline.result.estimated_seconds, self.best.result.estimated_seconds
        return before / after if before else math.nan

    def json(self) -> dict[str, Any]:
        """As JSON data, schema "tileir-tune/1" (docs/tuning.md)."""
        return {
            "schema": SCHEMA,
            "estimated": True,
            "parameters": self.best.result.parameters,
            "kernel": self.kernel,
            "target": self.target,
            "product": self.product,
            "shape": self.shape,
            "fixed": self.fixed,
            "candidates": self.candidates,
            "unfit": self.unfit,
            "best": self.trials.index(self.best),
            "schedule": self.schedule,
            "notes": list(self.notes),
            "trials": [_trial_json(t) for t in self.trials],
        }

    def table(self) -> str:
        """For the terminal: the fastest first, what failed last."""
        shape = ", ".join(f"{k} = {v}" for k, v in self.shape.items())
        place = f"{self.target} ({self.product})"
        lines = [
            f"{self.kernel} on {place}, {shape}: estimated times of the simulator's model, not measurements",
            f"{self.candidates} candidates, {len(self.trials)} compiled and timed",
            "",
            *_rows(self.trials, self.best),
        ]
        if self.unfit:
            lines += [
                "",
                "not tried, by the quick model: " + ", ".join(f"{n} of {code}" for code, n in self.unfit.items()),
            ]
        lines += [f"note: {n}" for n in self.notes]
        if not math.isnan(self.speedup):
            lines += ["", f"estimated {self.speedup:.2f} times as fast as the file as it is"]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Compared:
    """Several kernels of one file that are alternatives for the same problem, each with what was found for it.

    kernels: the fastest first, each with the seconds that its outputs take to be filled before it, estimated from the bandwidth of the
    memory: 0 unless it adds to what they hold. text: the file with the schedules of all.
    """

    kernels: tuple[tuple[Tuned, float], ...]
    text: str

    @property
    def best(self) -> Tuned:
        """What was found for the fastest kernel."""
        return self.kernels[0][0]

    def json(self) -> dict[str, Any]:
        """As JSON data, schema "tileir-tune-kernels/1" (docs/tuning.md)."""
        listed = [{**tuned.json(), "fill_seconds": fill} for tuned, fill in self.kernels]
        return {"schema": f"{SCHEMA.partition('/')[0]}-kernels/1", "estimated": True, "kernels": listed}

    def table(self) -> str:
        """For the terminal: the tables of all kernels, and how they compare."""
        lines = [tuned.table() for tuned, _ in self.kernels]
        for i, (tuned, fill) in enumerate(self.kernels):
            seconds = tuned.best.result.estimated_seconds + fill
            said = f", {fill * 1e6:.2f} µs of it to fill with zeros what it adds to" if fill else ""
            lines.append(f"{i + 1}. {tuned.kernel}: estimated {seconds * 1e6:.2f} µs{said}\n")
        return "\n".join(lines)


def _trial_json(t: Trial) -> dict[str, Any]:
    r, d = t.result, t.result.diagnostic
    return {
        "params": t.params,
        "directives": None if t.directives is None else str(t.directives),
        "model_clocks": None if math.isinf(t.model_clocks) else round(t.model_clocks, 1),
        "estimated_seconds": r.estimated_seconds or None,
        "clocks": r.clocks or None,
        "mfma_utilisation": round(r.mfma_utilisation, 4),
        "matrix_tflops": round(r.matrix_tflops, 2),
        "grid": list(r.grid),
        "waves": r.waves,
        "workgroups_per_cu": r.workgroups_per_cu,
        "vgprs": r.vgprs,
        "lds_bytes": r.lds_bytes,
        "warnings": list(r.warnings),
        "usable": r.usable,
        "diagnostic": None if d is None else {"code": d.code, "message": d.message, "place": str(d.loc)},
    }


_HEAD = ("", "estimated", "MFMA", "TFLOPS", "waves", "per CU", "registers", "LDS", "candidate")


def _rows(trials: Sequence[Trial], best: Trial) -> list[str]:
    """Columns, right-aligned but for the last."""
    done = sorted((t for t in trials if t.result.usable), key=lambda t: t.result.estimated_seconds)
    rest = [t for t in trials if not t.result.usable]
    rows: list[tuple[str, ...]] = [_HEAD]
    for t in done:
        r = t.result
        numbers = (f"{r.mfma_utilisation:.0%}", f"{r.matrix_tflops:.0f}") if r.matrix_tflops else ("-", "-")
        sizes = (str(r.waves), str(r.workgroups_per_cu), str(r.vgprs), str(r.lds_bytes))
        rows.append(("*" if t is best else "", f"{r.estimated_seconds * 1e6:.2f} µs", *numbers, *sizes, str(t)))
    for t in rest:
        message = t.result.diagnostic.message if t.result.diagnostic is not None else "is not proposed"
        rows.append(("", t.code, *[""] * 6, f"{t}: {message}"))
    widths = [max(len(r[i]) for r in rows) for i in range(len(_HEAD) - 1)]
    return ["  ".join([*(c.rjust(w) for c, w in zip(r, widths, strict=False)), r[-1]]).rstrip() for r in rows]
