"""What `tileir-opt --bundle` compiles."""

from __future__ import annotations

import argparse

from tileir.bundle.bundle import bundle_bytes
from tileir.bundle.container import BundleError
from tileir.cache.compiling import Text
from tileir.ir.diagnostics import Log
from tileir.tools import backend
from tileir.tools.common import UsageError, parameters


def compile_bundle(args: argparse.Namespace, text: str, name: str, log: Log) -> bytes:
    """The bundle of every kernel, set of parameters and chip, in this order. Raises CompileError, UsageError."""
    common: dict[str, str] = args.parameters
    codes: list[bytes] = []
    for params in _sets(args.sets, common):
        for kernel in _kernels(args, text, name, params):
            source = Text(text, name, params, kernel)
            for target in args.targets:
                compiled = backend.compile_source(
                    source,
                    target,
                    log=log,
                    schedule=args.schedule,
                    code_object_version=args.code_object_version,
                    allow_spills=args.allow_spills,
                )
                codes.append(compiled.hsaco)
    try:
        return bundle_bytes(codes)
    except BundleError as e:
        raise UsageError(str(e)) from None


def _sets(texts: list[str], common: dict[str, str]) -> list[dict[str, str]]:
    """Parameter sets, each with those of -D. Raises UsageError."""
    found: list[dict[str, str]] = []
    for text in texts or [""]:
        try:
            own = parameters(text.split(",")) if text.strip() else {}
        except UsageError:
            raise UsageError(f"--set wants NAME=VALUE,NAME=VALUE, each name once, not '{text}'") from None
        both = [k for k in own if k in common]
        if both:
            raise UsageError(f"{both[0]} is set by -D and by --set; leave one away")
        found.append({**common, **own})
    return found


def _kernels(args: argparse.Namespace, text: str, name: str, params: dict[str, str]) -> list[str]:
    """The kernel asked for, or all of the file that these parameters make."""
    if args.kernel:
        return [args.kernel]
    return [k.name for k in Text(text, name, params).module().kernels]
