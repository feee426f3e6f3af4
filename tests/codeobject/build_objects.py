"""Build the test objects in a process of its own: `build_objects.py DIRECTORY`.

For each chip, code object version and DWARF version one linked object `CHIP.VERSION.DWARF.hsaco`, and beside it the
unlinked `.o`. Uses llvmlite and the linker of the ziglang package, which the product uses too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm

VARIANTS = [("gfx942", 5, 5), ("gfx950", 5, 5), ("gfx950", 6, 4), ("gfx942", 4, 4)]


def main(folder: Path) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = Path(__file__).with_name("kernel.ll").read_text()
    for chip, version, dwarf in VARIANTS:
        source = text.replace("i32 VERSION", f"i32 {version * 100}")
        source = source.replace("i32 DWARF", f"i32 {dwarf}").replace("DIRECTORY", "kernels" if chip == "gfx942" else "")
        module = llvm.parse_assembly(source)
        module.verify()
        machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=chip, opt=2)
        unlinked = folder / f"{chip}.{version}.{dwarf}.o"
        unlinked.write_bytes(machine.emit_object(module))
        linked = unlinked.with_suffix(".hsaco")
        subprocess.run(
            [sys.executable, "-m", "ziglang", "ld.lld", "-shared", str(unlinked), "-o", str(linked)], check=True
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
