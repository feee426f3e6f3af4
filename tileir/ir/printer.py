"""The canonical text of the IR: one op per line, explicit types. `parse(print(x)) == x`, always."""

from __future__ import annotations

import json

from tileir.ir import registry
from tileir.ir.core import Block, Directive, Kernel, Module, Op, Schedule, Value
from tileir.ir.location import Loc
from tileir.ir.registry import format_attr

FORMAT_VERSION = 1


def print_module(module: Module, *, locations: bool = False) -> str:
    """The text of a whole file. With `locations` every op carries a `loc("file":line:column)` trailer."""
    parts = [f"tileir {FORMAT_VERSION}\n"]
    parts += [print_kernel(k, locations=locations) for k in module.kernels]
    parts += [print_schedule(s) for s in module.schedules]
    return "\n".join(parts)


def print_kernel(kernel: Kernel, *, locations: bool = False) -> str:
    params = ""
    if kernel.params:
        params = "<" + ", ".join(f"{k} = {format_attr(v)}" for k, v in kernel.params.items()) + ">"
    args = ", ".join(f"%{a.name}: {a.type}" for a in kernel.args)
    head = f"kernel @{kernel.name}{params}({args}) grid({', '.join(str(e) for e in kernel.grid)})"
    if kernel.fp != "default":
        head += f" fp {kernel.fp}"
    for a, b in kernel.aliases:
        head += f" alias(%{a}, %{b})"
    if kernel.attrs:
        head += f" with({', '.join(f'{k} = {format_attr(v)}' for k, v in kernel.attrs.items())})"
    lines = [head + " {"]
    _block(kernel.body, 1, lines, locations)
    lines.append("}")
    return "\n".join(lines) + "\n"


def print_schedule(schedule: Schedule) -> str:
    when = f" when {schedule.when}" if schedule.when else ""
    lines = [f"schedule @{schedule.name} of @{schedule.kernel} for {schedule.target}{when} {{"]
    lines += [f"  {print_directive(d)}" for d in schedule.directives]
    return "\n".join([*lines, "}"]) + "\n"


def print_directive(d: Directive) -> str:
    """One directive of a schedule, without indentation."""
    values = ", ".join(f"%{v}" for v in d.values)
    match d.kind:
        case "waves":
            return f"waves {values} {' x '.join(map(str, d.get('grid')))}"
        case "mma":
            shape = "x".join(map(str, d.get("shape")))
            return f"mma {values} {shape}{' swapped' if d.get('swapped') else ''}"
        case "stage":
            text = f"stage {values} in shared"
            if d.get("depth") is not None:
                text += f" depth {d.get('depth')}"
            return f"{text} {d.get('path')}" if d.get("path") else text
        case "loop":
            text = f"loop {values}"
            if d.get("pattern"):
                text += f" pattern {d.get('pattern')}"
            if d.get("slices"):
                text += f" slices {' x '.join(map(str, d.get('slices')))}"
            if d.get("masks"):
                text += f" masks {d.get('masks')}"
            return text
        case "order":
            settings = [(k, v) for k, v in d.settings if k != "kind"]
            args = f"({', '.join(f'{k} = {format_attr(v)}' for k, v in settings)})" if settings else ""
            return f"order {d.get('kind')}{args}"
        case "registers":
            return f"registers {d.get('count')}"
        case "pin":
            return f"pin {values} in {d.get('file')}[{d.get('first')}:{d.get('last')}]"
    raise AssertionError(d.kind)


def print_op(op: Op, indent: int = 0, *, locations: bool = False) -> str:
    """One op (with its regions) as text."""
    lines: list[str] = []
    _op(op, indent, lines, locations)
    return "\n".join(lines)


def _names(values: list[Value]) -> str:
    return ", ".join(f"%{v.name}" for v in values)


def _block(block: Block, indent: int, lines: list[str], locations: bool) -> None:
    for op in block.ops:
        _op(op, indent, lines, locations)


def _op(op: Op, indent: int, lines: list[str], locations: bool) -> None:
    pad = "  " * indent
    left = f"{_names(op.results)} = " if op.results else ""
    trailer = f" {_location(op.loc)}" if locations and op.loc.line else ""
    attrs = _angle_attrs(op)
    match op.name:
        case "yield":
            lines.append(f"{pad}yield{' ' + _names(op.operands) if op.operands else ''}{trailer}")
        case "for":
            start, end, step, *inits = op.operands
            iv, *carried = op.regions[0].args
            head = f"for{attrs} %{iv.name} = %{start.name} to %{end.name} step %{step.name}{_carry(carried, inits)}"
            lines.append(f"{pad}{left}{head} {{")
            _block(op.regions[0], indent + 1, lines, locations)
            lines.append(f"{pad}}}{trailer}")
        case "while":
            lines.append(f"{pad}{left}while{attrs}{_carry(op.regions[0].args, op.operands)} {{")
            _block(op.regions[0], indent + 1, lines, locations)
            lines.append(f"{pad}}} do{_carry(op.regions[1].args, op.regions[0].args)} {{")
            _block(op.regions[1], indent + 1, lines, locations)
            lines.append(f"{pad}}}{trailer}")
        case "if" | "guard":
            cond, *inits = op.operands
            lines.append(f"{pad}{left}{op.name}{attrs} %{cond.name}{_carry(op.regions[0].args, inits)} {{")
            _block(op.regions[0], indent + 1, lines, locations)
            if len(op.regions) == 2:
                lines.append(f"{pad}}} else{_carry(op.regions[1].args, inits)} {{")
                _block(op.regions[1], indent + 1, lines, locations)
            lines.append(f"{pad}}}{trailer}")
        case _:
            types = f" : {', '.join(str(v.type) for v in op.results)}" if op.results else ""
            lines.append(f"{pad}{left}{op.name}{attrs}({_operands(op)}){types}{trailer}")


def _carry(args: list[Value], inits: list[Value]) -> str:
    if not inits:
        return ""
    return " carry(" + ", ".join(f"%{a.name} = %{i.name}" for a, i in zip(args, inits, strict=True)) + ")"


def _angle_attrs(op: Op) -> str:
    definition = registry.get(op.name)
    texts: list[str] = []
    for spec in definition.attrs:
        if spec.paren or spec.name not in op.attrs or registry.is_default(spec, op.attrs[spec.name]):
            continue
        value = format_attr(op.attrs[spec.name])
        texts.append(value if spec.positional else f"{spec.name} = {value}")
    return f"<{', '.join(texts)}>" if texts else ""


def _operands(op: Op) -> str:
    definition = registry.get(op.name)
    texts: list[str] = []
    at = definition.access_position
    i = 0
    while i < len(op.operands):
        if at is not None and i == at:
            assert op.spans is not None
            texts.append(access_text(op.operands[i], op.operands[i + 1 : i + 1 + len(op.spans)], op.spans))
            i += 1 + len(op.spans)
        else:
            texts.append(f"%{op.operands[i].name}")
            i += 1
    for spec in definition.attrs:
        if spec.paren and spec.name in op.attrs and not registry.is_default(spec, op.attrs[spec.name]):
            texts.append(f"{spec.name} = {format_attr(op.attrs[spec.name])}")
    return ", ".join(texts)


def access_text(view: Value, indices: list[Value], spans: tuple[int | None, ...]) -> str:
    """`%A[%i +: 256, %k]`."""
    parts = [f"%{v.name}" if s is None else f"%{v.name} +: {s}" for v, s in zip(indices, spans, strict=True)]
    return f"%{view.name}[{', '.join(parts)}]"


def _location(loc: Loc) -> str:
    return f"loc({json.dumps(loc.file, ensure_ascii=False)}:{loc.line}:{loc.column})"
