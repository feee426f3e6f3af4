"""Makes the parse table of `grammar.lark`, so that nothing has to be constructed at run time.

    python -m tileir.frontend.build_table          # rewrites grammar_table.json
    python -m tileir.frontend.build_table --check  # exit status 1 if the table is out of date

lark does the LALR(1) construction in strict mode, where any conflict and any two terminals that match the same text are
errors. The table is plain JSON, renumbered so that the same grammar always gives the same bytes:

    patterns   [name, regular expression] of the terminals that are not fixed texts, in the order in which they are tried
    literals   text → name of the fixed ones; those that look like a LOWER are keywords
    ignore     names of the patterns between tokens
    rules      [nonterminal, length, node, steps]: `node` names the tree node ("" hands a single child through); a step 2i keeps
               child i, 2i + 1 splices the children of child i, -1 stands for an absent optional part
    actions    per state a list token, action, token, action, …: n > 0 shifts to state n - 1, n < 0 reduces by rule -n - 1
    gotos      per state a list nonterminal, state, …
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GRAMMAR = HERE / "grammar.lark"
TABLE = HERE / "grammar_table.json"


def build(grammar: str) -> dict[str, Any]:
    """The table of a grammar. Raises lark's GrammarError or LexError if the grammar is ambiguous."""
    from lark import Lark  # the only place that needs lark
    from lark.parsers.lalr_analysis import Reduce

    lark = Lark(grammar, parser="lalr", lexer="contextual", strict=True, maybe_placeholders=True)
    table = lark.parser.parser._parse_table
    rules = sorted(lark.rules, key=_rule_key)
    rule_number = {rule: i for i, rule in enumerate(rules)}
    order = _renumber(table)
    actions: list[list[str | int]] = []
    gotos: list[list[str | int]] = []
    terminals = {t.name for t in lark.terminals} | {"$END"}
    for state in order:
        row: list[str | int] = []
        jump: list[str | int] = []
        for symbol, (action, target) in sorted(table.states[state].items()):
            if symbol not in terminals:
                jump += [symbol, order[target]]
            elif action is Reduce:
                row += [symbol, -rule_number[target] - 1]
            else:
                row += [symbol, order[target] + 1]
        actions.append(row)
        gotos.append(jump)
    return {
        "digest": digest(grammar),
        "patterns": _patterns(lark),
        "literals": {
            t.pattern.value: t.name for t in sorted(lark.terminals, key=lambda t: t.name) if t.pattern.type == "str"
        },
        "ignore": sorted(lark.ignore_tokens),
        "start": order[table.start_states["start"]],
        "end": order[table.end_states["start"]],
        "rules": [_rule(rule) for rule in rules],
        "actions": actions,
        "gotos": gotos,
    }


def digest(grammar: str) -> str:
    """Identifies the grammar that a table was made of."""
    return hashlib.sha256(grammar.encode()).hexdigest()


def _rule_key(rule: Any) -> tuple[Any, ...]:
    return (rule.origin.name, tuple(s.name for s in rule.expansion), rule.alias or "", rule.options.empty_indices)


def _renumber(table: Any) -> dict[Any, int]:
    """States in the order in which they are reached from the start, symbols sorted: lark's own order depends on hashes."""
    from lark.parsers.lalr_analysis import Shift

    order = {table.start_states["start"]: 0}
    queue = list(order)
    for state in queue:
        for _, (action, target) in sorted(table.states[state].items()):
            if action is Shift and target not in order:
                order[target] = len(order)
                queue.append(target)
    return order


def _patterns(lark: Any) -> list[list[str]]:
    terminals = [t for t in lark.terminals if t.pattern.type == "re"]
    terminals.sort(key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name))
    return [[t.name, t.pattern.to_regexp()] for t in terminals]


def _rule(rule: Any) -> list[Any]:
    """How a reduction shapes its node, by the rules of lark's tree construction."""
    steps: list[int] = []
    child = 0
    absent = rule.options.empty_indices or (False,) * len(rule.expansion)
    for is_absent in absent:
        if is_absent:
            steps.append(-1)
            continue
        symbol = rule.expansion[child]
        if not symbol.is_term:
            steps.append(2 * child + symbol.name.startswith("_"))
        elif rule.options.keep_all_tokens or not symbol.filter_out:
            steps.append(2 * child)
        child += 1
    node = rule.alias or rule.origin.name
    hands_through = rule.options.expand1 and not rule.alias
    return [rule.origin.name, len(rule.expansion), "" if hands_through and len(steps) == 1 else node, steps]


def dump(table: dict[str, Any]) -> str:
    """The table as the text of the file: one line per state and rule, so that changes can be read."""
    parts: list[str] = []
    for key, value in table.items():
        if key in ("rules", "actions", "gotos", "patterns"):
            rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in value)
            parts.append(f"{json.dumps(key)}: [\n{rows}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tileir.frontend.build_table", description="Makes the parse table of grammar.lark."
    )
    parser.add_argument("--check", action="store_true", help="only say whether the shipped table is up to date")
    options = parser.parse_args(argv)
    text = dump(build(GRAMMAR.read_text(encoding="utf-8")))
    if options.check:
        fresh = TABLE.exists() and TABLE.read_text(encoding="utf-8") == text
        print(f"{TABLE.name} is {'up to date' if fresh else 'out of date: run python -m tileir.frontend.build_table'}")
        return 0 if fresh else 1
    TABLE.write_text(text, encoding="utf-8")
    print(f"{TABLE.name}: {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
