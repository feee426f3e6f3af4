"""The `amdhsa` metadata of a code object: per kernel its arguments, sizes and register counts.

Source: LLVM's AMDGPUUsage, 'Code Object V3 Metadata' and the V4 and V5 changes (V6 has the same keys).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from tileir.codeobject.errors import CodeObjectError
from tileir.codeobject.msgpack import Value
from tileir.records import dataclass

NT_AMDGPU_METADATA = 32
NOTE_OWNER = "AMDGPU"

_Map = Mapping["str | int", Value]


@dataclass(frozen=True)
class KernelArg:
    """One kernel argument: where it lies in the kernarg segment (`offset`, `size` in bytes) and what it is.

    `value_kind` is `global_buffer`, `by_value`, `dynamic_shared_pointer`, or one of the `hidden_*` kinds that the
    runtime fills in. Texts that the metadata does not give are empty.
    """

    name: str
    type_name: str
    offset: int
    size: int
    value_kind: str
    address_space: str
    access: str
    actual_access: str
    pointee_align: int
    is_const: bool
    is_restrict: bool

    @property
    def hidden(self) -> bool:
        """Whether the runtime, not the caller, provides this argument."""
        return self.value_kind.startswith("hidden_")


@dataclass(frozen=True)
class KernelMetadata:
    """Metadata of one kernel. Sizes are bytes; `raw` is the whole decoded map with the keys not listed here."""

    name: str
    symbol: str
    args: tuple[KernelArg, ...]
    group_segment_fixed_size: int
    private_segment_fixed_size: int
    kernarg_segment_size: int
    kernarg_segment_align: int
    wavefront_size: int
    sgpr_count: int
    vgpr_count: int
    agpr_count: int
    sgpr_spill_count: int
    vgpr_spill_count: int
    max_flat_workgroup_size: int
    reqd_workgroup_size: tuple[int, ...]
    uses_dynamic_stack: bool
    uniform_work_group_size: bool
    raw: _Map

    @property
    def explicit_args(self) -> tuple[KernelArg, ...]:
        """The arguments that the caller passes, in order."""
        return tuple(a for a in self.args if not a.hidden)


class _Fields:
    """Typed access to one metadata map; a wrong type is a `CodeObjectError` that names the key."""

    def __init__(self, value: Value, what: str, offset: int) -> None:
        if not isinstance(value, dict):
            raise CodeObjectError(f"{what} is not a map", offset)
        self.map: _Map = value
        self.what = what
        self.offset = offset

    def _fail(self, key: str, wanted: str) -> CodeObjectError:
        return CodeObjectError(f"{self.what}: '{key}' must be {wanted}", self.offset)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.map.get(key, default)
        if not isinstance(value, str):
            raise self._fail(key, "a string")
        return value

    def size(self, key: str, default: int | None = None) -> int:
        value = self.map.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
            raise self._fail(key, "an unsigned 32-bit number")
        return value

    def flag(self, key: str) -> bool:
        value = self.map.get(key, False)
        if not isinstance(value, (bool, int)):
            raise self._fail(key, "a boolean")
        return bool(value)

    def items(self, key: str) -> list[Value]:
        value = self.map.get(key, [])
        if not isinstance(value, list):
            raise self._fail(key, "an array")
        return value

    def sizes(self, key: str) -> tuple[int, ...]:
        values = self.items(key)
        if not all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 32 for v in values):
            raise self._fail(key, "an array of unsigned numbers")
        return tuple(cast(list[int], values))


def _parse_arg(value: Value, kernel: str, index: int, kernarg_size: int, offset: int) -> KernelArg:
    fields = _Fields(value, f"argument {index} of kernel '{kernel}'", offset)
    arg = KernelArg(
        name=fields.text(".name", ""),
        type_name=fields.text(".type_name", ""),
        offset=fields.size(".offset"),
        size=fields.size(".size"),
        value_kind=fields.text(".value_kind"),
        address_space=fields.text(".address_space", ""),
        access=fields.text(".access", ""),
        actual_access=fields.text(".actual_access", ""),
        pointee_align=fields.size(".pointee_align", 0),
        is_const=fields.flag(".is_const"),
        is_restrict=fields.flag(".is_restrict"),
    )
    if arg.offset + arg.size > kernarg_size:
        raise CodeObjectError(f"{fields.what} ends beyond the kernarg segment of {kernarg_size} bytes", offset)
    return arg


def parse_kernels(root: Value, offset: int) -> tuple[KernelMetadata, ...]:
    """All kernels of the decoded metadata `root`; `offset` is where the note stands, for error messages."""
    top = _Fields(root, "amdhsa metadata", offset)
    kernels: list[KernelMetadata] = []
    for entry in top.items("amdhsa.kernels"):
        fields = _Fields(entry, "kernel metadata", offset)
        name = fields.text(".name")
        fields.what = f"metadata of kernel '{name}'"
        kernarg_size = fields.size(".kernarg_segment_size")
        args = fields.items(".args")
        kernels.append(
            KernelMetadata(
                name=name,
                symbol=fields.text(".symbol"),
                args=tuple(_parse_arg(a, name, i, kernarg_size, offset) for i, a in enumerate(args)),
                group_segment_fixed_size=fields.size(".group_segment_fixed_size"),
                private_segment_fixed_size=fields.size(".private_segment_fixed_size"),
                kernarg_segment_size=kernarg_size,
                kernarg_segment_align=fields.size(".kernarg_segment_align"),
                wavefront_size=fields.size(".wavefront_size"),
                sgpr_count=fields.size(".sgpr_count"),
                vgpr_count=fields.size(".vgpr_count"),
                agpr_count=fields.size(".agpr_count", 0),
                sgpr_spill_count=fields.size(".sgpr_spill_count", 0),
                vgpr_spill_count=fields.size(".vgpr_spill_count", 0),
                max_flat_workgroup_size=fields.size(".max_flat_workgroup_size"),
                reqd_workgroup_size=fields.sizes(".reqd_workgroup_size"),
                uses_dynamic_stack=fields.flag(".uses_dynamic_stack"),
                uniform_work_group_size=fields.flag(".uniform_work_group_size"),
                raw=fields.map,
            )
        )
    names = [k.name for k in kernels]
    if len(set(names)) != len(names):
        raise CodeObjectError("two kernels of the metadata have the same name", offset)
    return tuple(kernels)
