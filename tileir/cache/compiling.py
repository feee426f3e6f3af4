"""Compiling through the cache: looked up first, compiled and stored otherwise. Nobody can tell which from the result.

Reading from the cache loads neither front end nor passes nor code generation. Compilations that are watched (`print_after`,
`verify_each`) and those that fail are never cached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, field, fields, replace
from typing import TYPE_CHECKING, Any

from tileir.cache import keys, location
from tileir.cache.outcome import Outcome, decode, encode
from tileir.ir.diagnostics import Log
from tileir.records import dataclass

if TYPE_CHECKING:
    from tileir.cache.store import Store
    from tileir.ir.core import Kernel, Module
    from tileir.lowering.amdgpu.compile import Compiled, Options

    PrintAfter = Callable[[str, Kernel], None]

LATER_STAGES = ("mlir", "llvm", "asm")


@dataclass(frozen=True)
class Wanted:
    """What to make of a source: `Options` of the compiler, without loading it."""

    schedule: str = ""
    code_object_version: int = 5
    emit: tuple[str, ...] = ()
    verify_each: str = "off"
    print_after: PrintAfter | None = field(default=None, compare=False)
    start_from: str | None = None
    allow_spills: bool = False
    whole_tiles: bool = False
    spare: int = 0

    @property
    def watched(self) -> bool:
        """Whether somebody wants to see the passes at work."""
        return self.print_after is not None or self.verify_each != "off"

    def key(self) -> dict[str, Any]:
        """The part of a key."""
        return {**asdict(replace(self, print_after=None)), "emit": sorted(self.emit)}

    def options(self) -> Options:
        """For the compiler."""
        from tileir.lowering.amdgpu.compile import Options

        return Options(**{f.name: getattr(self, f.name) for f in fields(self)})


@dataclass
class Text:
    """A `.tile` text: `params` are values of its compile-time parameters. It is parsed when somebody needs the module, once."""

    text: str
    file: str
    params: Mapping[str, Any]
    kernel: str = ""
    _module: Module | None = field(default=None, repr=False)
    _said: Log = field(default_factory=Log, repr=False)

    def module(self) -> Module:
        """The parsed module. Raises CompileError."""
        if self._module is None:
            from tileir.frontend import parse

            self._module = parse(self.text, self.file, self.params, kernel=self.kernel or None, log=self._said)
        return self._module

    @property
    def said(self) -> Log:
        """Warnings of the parser."""
        return self._said


def compile_text(
    source: Text, target: str, wanted: Wanted, log: Log, *, before: Callable[[], None] | None = None
) -> Outcome:
    """The kernel of a text for a chip. Warnings and remarks go to `log`, those of the parser first.

    `before` is called when it must be compiled, before the text is parsed. Raises CompileError.
    """

    def make(messages: Log) -> tuple[Compiled, int]:
        from tileir.lowering.amdgpu.compile import compile_kernel

        if before is not None:
            before()
        try:
            module = source.module()
        finally:
            messages.diagnostics += source.said.diagnostics
        return _separately(
            messages, lambda own: compile_kernel(module, source.kernel, target, wanted.options(), own)
        ), len(source.said.diagnostics)

    return _cached(_material(source), source.kernel, target, wanted, log, make)


def is_cached(source: Text, target: str, wanted: Wanted) -> bool:
    """Whether `compile_text` will probably find the kernel in the cache."""
    store = None if wanted.watched else location.store()
    if store is None:
        return False
    return store.has(keys.key_of(_material(source), source.kernel, target, wanted.key()))


def compile_module(module: Module, kernel: str, target: str, wanted: Wanted, log: Log) -> Outcome:
    """A kernel of a module in memory, built or parsed. Raises CompileError."""

    def make(messages: Log) -> tuple[Compiled, int]:
        from tileir.lowering.amdgpu.compile import compile_kernel

        return _separately(messages, lambda own: compile_kernel(module, kernel, target, wanted.options(), own)), 0

    return _cached(keys.module_source(module), kernel, target, wanted, log, make)


def resume_text(stage: str, text: str, file: str, target: str, wanted: Wanted, log: Log) -> Outcome:
    """A code object from a text of a later stage: mlir, llvm or asm. Raises CompileError."""

    def make(messages: Log) -> tuple[Compiled, int]:
        from tileir.lowering.amdgpu.compile import resume

        return _separately(messages, lambda own: resume(stage, text, target, wanted.options(), own, file)), 0

    return _cached(keys.stage_source(stage, text, file), "", target, wanted, log, make)


def _material(source: Text) -> dict[str, Any]:
    return keys.text_source(source.text, source.file, source.params)


def _separately(messages: Log, run: Callable[[Log], Compiled]) -> Compiled:
    """Runs with a log of its own, whose messages are appended in the end: the compiler may replace all of a log."""
    own = Log()
    try:
        return run(own)
    finally:
        messages.diagnostics += own.diagnostics


def _cached(
    source: Mapping[str, Any],
    kernel: str,
    target: str,
    wanted: Wanted,
    log: Log,
    make: Callable[[Log], tuple[Compiled, int]],
) -> Outcome:
    store = None if wanted.watched else location.store()
    if store is None:
        return _made(log, make)
    key = keys.key_of(source, kernel, target, wanted.key())
    if (found := _found(store, key, log)) is not None:
        return found
    with store.alone(key) as waited:
        if waited and (found := _found(store, key, log)) is not None:
            return found
        outcome = _made(log, make)
        if keys.sources_unchanged():  # else the key would name a compiler that this process is not
            store.put(key, encode(outcome))
    return outcome


def _found(store: Store, key: str, log: Log) -> Outcome | None:
    """What the cache has, with what was said about it."""
    body = store.get(key)
    if body is None:
        return None
    try:
        outcome = decode(body)
    except ValueError:
        store.discard(key)
        return None
    log.diagnostics += outcome.diagnostics
    return outcome


def _made(log: Log, make: Callable[[Log], tuple[Compiled, int]]) -> Outcome:
    """What the compiler gives; what it says goes to the log also where it fails."""
    messages = Log()
    try:
        compiled, front = make(messages)
    finally:
        log.diagnostics += messages.diagnostics
    return Outcome(
        target=compiled.target,
        hsaco=compiled.hsaco,
        interface=compiled.interface,
        block=compiled.block,
        texts=compiled.texts,
        obj=compiled.obj,
        stats=compiled.stats,
        diagnostics=tuple(messages.diagnostics),
        front=front,
    )
