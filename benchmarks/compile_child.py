"""A process that compiles products with one compiler, for benchmarks that measure it.

    python compile_child.py tileir | triton            answers each line of standard input (a job in JSON) with one line
    python compile_child.py tileir | triton JOB.json   compiles one job and ends

A job is {name, text, chip, out} – in `text` KERNEL stands for the kernel's name; the code object goes to the file `out`, if that is
given – and for TileIR {schedule}, for Triton {types, constants, options} as in `triton_build`. An answer is {call, steps, stats,
kernel, threads, lds} with times in seconds and sizes in bytes, or {error}.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Job = dict[str, Any]


def serve(handle: Callable[[Job], Job]) -> None:
    """Answers requests, one line of JSON each, until standard input ends. What is printed meanwhile goes to standard error."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        try:
            answer = handle(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print(json.dumps(answer), file=answers, flush=True)


def tileir() -> Callable[[Job], Job]:
    """The function that compiles a job with TileIR. All imports are done when it is returned."""
    from tileir.lowering.amdgpu.attempts import start_worker

    start_worker()  # it loads MLIR and LLVM while this process loads the compiler
    from tileir.frontend import parse
    from tileir.lowering.amdgpu.compile import Options, compile_kernel

    def compile_one(job: Job) -> Job:
        start = time.perf_counter()
        module = parse(job["text"].replace("KERNEL", job["name"]), "gemm.tile")
        parsed = time.perf_counter() - start
        done = compile_kernel(module, job["name"], job["chip"], Options(schedule=job.get("schedule", "")))
        call = time.perf_counter() - start
        if "out" in job:
            with open(job["out"], "wb") as file:
                file.write(done.hsaco)
        x, y, z = done.block
        return {
            "call": call,
            "steps": {"parse-tile": parsed, **done.timings},
            "stats": done.stats,
            "kernel": job["name"],
            "threads": x * y * z,
            "lds": done.stats["lds_bytes"],
        }

    return compile_one


def triton() -> Callable[[Job], Job]:
    """The same with Triton."""
    import importlib.util
    import re

    import triton
    from triton_build import build, write

    steps: dict[str, float] = {}

    def listen(*, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
        assert not cache_hit
        steps.clear()
        steps["ast"] = times.ir_initialization / 1e6
        steps.update((name, t / 1e6) for name, t in times.lowering_stages)

    triton.knobs.compilation.listener = listen

    def compile_one(job: Job) -> Job:
        start = time.perf_counter()
        path = os.path.join(os.environ["TRITON_CACHE_DIR"], job["name"] + ".py")
        with open(path, "w") as file:  # the compiler reads the text of a kernel from its file
            file.write(job["text"].replace("KERNEL", job["name"]))
        spec = importlib.util.spec_from_file_location(job["name"], path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        done = build(getattr(module, job["name"]), job["types"], job["constants"], job["chip"], job["options"])
        call = time.perf_counter() - start
        text = done.asm["amdgcn"]

        def figure(key: str) -> int:
            found = re.search(rf"\.{key}:\s*(\d+)", text)
            assert found
            return int(found[1])

        stats = {
            "vgprs": figure("vgpr_count"),
            "agprs": figure("agpr_count"),
            "sgprs": figure("sgpr_count"),
            "vgpr_spills": figure("vgpr_spill_count"),
            "sgpr_spills": figure("sgpr_spill_count"),
            "scratch_bytes": figure("private_segment_fixed_size"),
            "lds_bytes": done.metadata.shared,
        }
        made = write(done, job.get("out", os.devnull))
        return {"call": call, "steps": dict(steps), "stats": stats, **made}

    return compile_one


def main() -> None:
    atexit.register(gc.freeze)  # as the tools of TileIR do: no search for garbage at the end, with either compiler
    compile_one = {"tileir": tileir, "triton": triton}[sys.argv[1]]()
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding="utf-8") as file:
            job = json.load(file)
        compile_one(job)
    else:
        serve(compile_one)


if __name__ == "__main__":
    main()
