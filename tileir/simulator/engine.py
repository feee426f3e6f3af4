"""Compiles ops with llvmlite for the host and hands out their addresses.

Ops are compiled one by one on first use and cached on disk. The name of an entry covers everything that determines it:
the key of the op, the source text of the generator, the version of llvmlite, and the host CPU. A process that needs
only cached ops neither generates nor compiles anything.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from .cache import ObjectCache, default_directory, digest
from .native.runtime import HELPERS, runtime_text
from .native.shadow import OBSERVERS


def _generator_version() -> str:
    """Digest of the sources that turn a key into code."""
    folder = Path(__file__).parent
    files = [folder / "state.py", *sorted((folder / "native").glob("*.py"))]
    return digest([part for file in files for part in (file.name, file.read_bytes())])


class Engine:
    """The op library of one process."""

    def __init__(self, directory: Path | None) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._cpu = llvm.get_host_cpu_name()
        self._features = llvm.get_host_cpu_features().flatten()
        self._machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=self._cpu, features=self._features, opt=2
        )
        self._jit = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._machine)
        parts = [_generator_version(), llvmlite.__version__, repr(llvm.llvm_version_info), self._cpu, self._features]
        self._cache = ObjectCache(directory, digest(parts))
        self._addresses: dict[str, int] = {}
        self._fresh: dict[str, str] = {}
        self.compiled = 0
        """Number of modules compiled (not found in the cache) by this process."""
        self._add("runtime", "", lambda _: runtime_text())
        self._jit.finalize_object()
        table = [self._jit.get_function_address(name) for name in HELPERS]
        self._helper_table = (ctypes.c_uint64 * len(table))(*table)
        signature = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
        self.run_workgroup: Callable[[int], int] = signature(self._jit.get_function_address("tir_run_workgroup"))
        self.carry: Callable[[int], None] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
            self._jit.get_function_address("tir_carry")
        )
        observer = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
        self.observers: tuple[Callable[[int, int], int], ...] = tuple(
            observer(self._jit.get_function_address(name)) for name in OBSERVERS
        )
        """For each queue of pending operations the function that checks what an instruction has logged."""
        self.run_wave: Callable[[int], int] = signature(self._jit.get_function_address("tir_run_wave"))

    @property
    def helper_table(self) -> int:
        """Host address of the table that waves point to."""
        return ctypes.addressof(self._helper_table)

    def _compile(self, text: str) -> bytes:
        module = llvm.parse_assembly(text)
        module.verify()
        builder = llvm.create_pass_builder(self._machine, llvm.create_pipeline_tuning_options(speed_level=2))
        builder.getModulePassManager().run(module, builder)
        self.compiled += 1
        return self._machine.emit_object(module)

    def _add(self, key: str, symbol: str, make: Callable[[str], str]) -> None:
        name = digest([key])
        code = self._cache.get(name)
        if code is None:
            code = self._compile(make(symbol))
            self._cache.put(name, code)
        self._jit.add_object_file(llvm.ObjectFileRef.from_data(code))

    def prepare(self, key: str, make: Callable[[str], str]) -> None:
        """Compiles an op, or takes it from the cache; whatever ``make`` raises comes out here."""
        if key not in self._addresses and key not in self._fresh:
            symbol = "op_" + digest([key])[:24]
            self._add(key, symbol, make)
            self._fresh[key] = symbol

    def addresses(self, wanted: Mapping[str, Callable[[str], str]]) -> dict[str, int]:
        """Addresses of ops by key; each value makes the module text for a given symbol name."""
        for key, make in wanted.items():
            self.prepare(key, make)
        if self._fresh:
            self._jit.finalize_object()
        for key, symbol in self._fresh.items():
            self._addresses[key] = self._jit.get_function_address(symbol)
        self._fresh.clear()
        return {key: self._addresses[key] for key in wanted}


@lru_cache(maxsize=1)
def engine() -> Engine:
    """The engine of this process, created on first use."""
    return Engine(default_directory())
