"""The product C = A · Bᵀ as a job for either compiler: any M, N, K, row-major operands (or A with M contiguous), f32 inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Job = dict[str, Any]

TILEIR_TEXT = """tileir 1
kernel @KERNEL<BM: int = {bm}, BN: int = {bn}, BK: int = {bk}, T: type = {element}, R: type = {result}>(
    %A: global<T[{a}]>, %B: global<T[N, K]>, %C: global<R[M, N]>) grid(cdiv(M, BM), cdiv(N, BN)) {{
  %i, %j = program_id()
  %zero = fill(0.0) : tile<f32[BM, BN]>
  %acc = for %k = 0 to K step BK carry(%c = %zero) {{
    %a = load(%A[{a_at}])
    %b = load(%B[%j * BN +: BN, %k +: BK])
    %d = mma({a_factor}, transpose(%b), %c)
    yield %d
  }}
  store(convert<R>(%acc), %C[%i * BM +: BM, %j * BN +: BN])
}}
schedule @chosen of @KERNEL for {chip} {{
  waves %acc {rows} x {columns}
{stage}}}
"""

TRITON_TEXT = """
import triton
import triton.language as tl


@triton.jit
def KERNEL(a_ptr, b_ptr, c_ptr, M, N, K, stride_a, stride_b, stride_c,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MASKS: tl.constexpr, A_COLUMNS: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    if A_COLUMNS:
        a_at = a_ptr + rows[:, None] + inner[None, :] * stride_a
    else:
        a_at = a_ptr + rows[:, None] * stride_a + inner[None, :]
    b_at = b_ptr + inner[:, None] + columns[None, :] * stride_b
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        if MASKS:
            a = tl.load(a_at, mask=(rows[:, None] < M) & (inner[None, :] < K - k), other=0.0)
            b = tl.load(b_at, mask=(inner[:, None] < K - k) & (columns[None, :] < N), other=0.0)
        else:
            a = tl.load(a_at)
            b = tl.load(b_at)
        total = tl.dot(a, b, total)
        if A_COLUMNS:
            a_at += BK * stride_a
        else:
            a_at += BK
        b_at += BK
    c_at = c_ptr + rows[:, None] * stride_c + columns[None, :]
    result = total.to(c_ptr.dtype.element_ty)
    if MASKS:
        tl.store(c_at, result, mask=(rows[:, None] < M) & (columns[None, :] < N))
    else:
        tl.store(c_at, result)
"""

_TILEIR_TYPES = {
    ("bf16", "gfx942"): "bf16",
    ("bf16", "gfx950"): "bf16",
    ("f16", "gfx942"): "f16",
    ("f16", "gfx950"): "f16",
    ("fp8", "gfx942"): "f8E4M3FNUZ",
    ("fp8", "gfx950"): "f8E4M3FN",
}
_TRITON_TYPES = {"bf16": "bf16", "f16": "fp16", "f8E4M3FNUZ": "fp8e4b8", "f8E4M3FN": "fp8e4nv"}


@dataclass(frozen=True)
class Product:
    """What to compile: chip, element type of A and B (`bf16`, `f16` or `fp8`, which is the one of the chip), tile (M, N, K),
    waves of a workgroup (4 or 8), whether M, not K, is contiguous in A, and the pattern of the loop that TileIR is asked for
    ("": its own choice)."""

    chip: str
    dtype: str = "bf16"
    tile: tuple[int, int, int] = (256, 256, 64)
    waves: int = 8
    a_columns: bool = False
    pattern: str = ""

    @property
    def element(self) -> str:
        """Element type of A and B, as TileIR and ml_dtypes (in lower case, behind `float8_`) call it."""
        return _TILEIR_TYPES[self.dtype, self.chip]

    @property
    def result(self) -> str:
        """Element type of C."""
        return "bf16" if self.dtype == "fp8" else self.dtype

    @property
    def bytes_of_step(self) -> int:
        """Bytes of A and B that a workgroup needs for one step over K."""
        m, n, k = self.tile
        return (m + n) * k * (1 if self.dtype == "fp8" else 2)

    @property
    def grid(self) -> tuple[int, int]:
        """Waves over rows and columns that read least from LDS – transposing reads bring half as much –, at least two of each where
        that is no worse."""
        m, n, _ = self.tile
        found = [(rows, self.waves // rows) for rows in range(1, self.waves + 1) if self.waves % rows == 0]
        reads_of_row = 2 if self.a_columns else 1
        return min(found, key=lambda g: (reads_of_row * m / g[0] + n / g[1], min(g) < 2, g))

    @property
    def name(self) -> str:
        m, n, k = self.tile
        columns, pattern = " M-contiguous A" if self.a_columns else "", f", {self.pattern}" if self.pattern else ""
        return f"{self.chip} {self.dtype} {m}x{n}x{k}{columns}, {self.waves} waves{pattern}"

    def tileir(self, lds_bytes: int) -> Job:
        """For TileIR, with a schedule that states waves and staging: two buffers if LDS has room for them, else one."""
        return {"text": self.tileir_text(lds_bytes), "chip": self.chip, "schedule": "chosen"}

    def tileir_text(self, lds_bytes: int = 0, *, staged: bool = True) -> str:
        """The text; `staged` states how tiles come into LDS of so many bytes, else that is open."""
        m, n, k = self.tile
        direct = self.chip == "gfx950"
        # Staged through registers, the second stage lives there and needs no buffer of its own.
        depth = 2 if not direct or 2 * self.bytes_of_step <= lds_bytes else 1
        stage = f"  stage %a, %b in shared depth {depth} {'direct' if direct else 'via_registers'}\n"
        asked = f"  loop %k pattern {self.pattern}\n" if self.pattern else ""
        return TILEIR_TEXT.format(
            bm=m,
            bn=n,
            bk=k,
            element=self.element,
            result=self.result,
            a="K, M" if self.a_columns else "M, K",
            a_at="%k +: BK, %i * BM +: BM" if self.a_columns else "%i * BM +: BM, %k +: BK",
            a_factor="transpose(%a)" if self.a_columns else "%a",
            chip=self.chip,
            rows=self.grid[0],
            columns=self.grid[1],
            stage=(stage if staged else "") + asked,
        )

    def triton(self, *, masks: bool = True, agprs: bool = True, instruction: int = 0) -> Job:
        """For Triton with two stages. masks: for sizes that are no multiples of the tile. agprs: whether LLVM may use accumulation
        registers. instruction: 16 or 32, rows of the matrix instructions; 0 leaves it to Triton."""
        m, n, k = self.tile
        element, result = _TRITON_TYPES[self.element], _TRITON_TYPES[self.result]
        types = {"a_ptr": f"*{element}:16", "b_ptr": f"*{element}:16", "c_ptr": f"*{result}:16"}
        types |= dict.fromkeys(("M", "N", "K", "stride_a", "stride_b", "stride_c"), "i32:16")
        constants = {"BM": m, "BN": n, "BK": k, "MASKS": masks, "A_COLUMNS": self.a_columns}
        options: dict[str, Any] = {"num_warps": self.waves, "num_stages": 2}
        if not agprs:
            options["llvm_fn_attrs"] = [
                ["amdgpu-agpr-alloc", "0,0"]
            ]  # at least and at most; "0" alone is no upper bound
        if instruction:
            options["matrix_instr_nonkdim"] = instruction
        return {"text": TRITON_TEXT, "types": types, "constants": constants, "chip": self.chip, "options": options}
