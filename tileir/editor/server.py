"""`tileir-lsp`: a language server for `.tile` files, over standard input and output (or `--tcp`).

Needs the extra `tileir[editor]`. Diagnostics while typing, hover with types, go to definition, references, rename,
completion, outline, formatting.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from tileir import __version__
from tileir.editor.analysis import Analysis, Word
from tileir.frontend.formatter import format_text
from tileir.ir.diagnostics import CompileError, Diagnostic
from tileir.ir.location import Loc

MISSING = "tileir-lsp needs pygls: pip install 'tileir[editor]'"


class Documents:
    """The analyses of open files, the latest of each."""

    def __init__(self) -> None:
        self._latest: dict[str, Analysis] = {}

    def update(self, uri: str, text: str, filename: str) -> Analysis:
        self._latest[uri] = Analysis(text, filename, self._latest.get(uri))
        return self._latest[uri]

    def get(self, uri: str) -> Analysis:
        return self._latest[uri]

    def close(self, uri: str) -> None:
        self._latest.pop(uri, None)


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column of a character as the protocol counts them: from 0, columns in UTF-16 units."""
    start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, offset), len(text[start:offset].encode("utf-16-le")) // 2


def offset_of(text: str, line: int, column: int) -> int:
    """The offset of a position of the protocol; past the end of a line, its end."""
    start = 0
    for _ in range(line):
        following = text.find("\n", start)
        if following < 0:
            return len(text)
        start = following + 1
    end = text.find("\n", start)
    row = text[start : len(text) if end < 0 else end]
    units = row.encode("utf-16-le")[: 2 * column]
    return start + len(units.decode("utf-16-le", "ignore"))


def make_server() -> Any:
    """The server with its features. Raises ImportError without pygls."""
    from lsprotocol import types as lsp
    from pygls.lsp.server import LanguageServer

    server = LanguageServer("tileir", __version__)
    documents = Documents()
    severities = {
        "error": lsp.DiagnosticSeverity.Error,
        "warning": lsp.DiagnosticSeverity.Warning,
        "remark": lsp.DiagnosticSeverity.Information,
    }
    kinds = {
        "value": lsp.CompletionItemKind.Variable,
        "kernel": lsp.CompletionItemKind.Function,
        "op": lsp.CompletionItemKind.Function,
        "keyword": lsp.CompletionItemKind.Keyword,
        "type": lsp.CompletionItemKind.Class,
        "parameter": lsp.CompletionItemKind.Constant,
    }

    def span(text: str, start: int, end: int) -> Any:
        return lsp.Range(lsp.Position(*position(text, start)), lsp.Position(*position(text, end)))

    def word_range(analysis: Analysis, word: Word) -> Any:
        return span(analysis.text, word.start, word.end)

    def place(analysis: Analysis, loc: Loc) -> Any:
        rows = analysis.text.split("\n")
        first, last = max(loc.line, 1), max(loc.end_line, loc.line, 1)
        starts = [0]
        for row in rows:
            starts.append(starts[-1] + len(row) + 1)
        begin = starts[min(first, len(rows)) - 1] + max(loc.column - 1, 0)
        end = starts[min(last, len(rows)) - 1] + max(loc.end_column - 1, 0)
        return span(analysis.text, begin, max(begin, end))

    def shown(analysis: Analysis, uri: str, d: Diagnostic) -> Any:
        related = [
            lsp.DiagnosticRelatedInformation(lsp.Location(uri, place(analysis, n.loc)), n.message)
            for n in d.notes
            if n.loc is not None
        ]
        plain = [f"note: {n.message}" for n in d.notes if n.loc is None]
        message = "\n".join([d.message, *([f"legal: {d.legal}"] if d.legal else []), *plain])
        return lsp.Diagnostic(
            place(analysis, d.loc), message, severities[d.severity], d.code, None, "tileir", None, related or None
        )

    def refresh(uri: str) -> None:
        document = server.workspace.get_text_document(uri)
        analysis = documents.update(uri, document.source, document.path or uri)
        found = [shown(analysis, uri, d) for d in analysis.diagnostics]
        server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, found, document.version))

    def at(params: Any) -> tuple[Analysis, int]:
        analysis = documents.get(params.text_document.uri)
        return analysis, offset_of(analysis.text, params.position.line, params.position.character)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: Any) -> None:
        refresh(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: Any) -> None:
        refresh(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: Any) -> None:
        documents.close(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: Any) -> Any:
        analysis, offset = at(params)
        found = analysis.hover(offset)
        if found is None:
            return None
        text, word = found
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), word_range(analysis, word))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(params: Any) -> Any:
        analysis, offset = at(params)
        word = analysis.definition(offset)
        return lsp.Location(params.text_document.uri, word_range(analysis, word)) if word is not None else None

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(params: Any) -> Any:
        analysis, offset = at(params)
        return [lsp.Location(params.text_document.uri, word_range(analysis, w)) for w in analysis.references(offset)]

    @server.feature(lsp.TEXT_DOCUMENT_RENAME)
    def rename(params: Any) -> Any:
        analysis, offset = at(params)
        name = "%" + params.new_name.removeprefix("%")
        edits = [lsp.TextEdit(word_range(analysis, w), name) for w in analysis.references(offset)]
        return lsp.WorkspaceEdit({params.text_document.uri: edits}) if edits else None

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["%", "@"]))
    def completion(params: Any) -> Any:
        analysis, offset = at(params)
        word = analysis.word(offset)
        start = word.start if word is not None else offset
        if word is None and analysis.text[offset - 1 : offset] in ("%", "@"):
            start = offset - 1
        where = span(analysis.text, start, offset)
        return [
            lsp.CompletionItem(
                c.label, kind=kinds[c.kind], detail=c.detail or None, text_edit=lsp.TextEdit(where, c.label)
            )
            for c in analysis.completions(offset)
        ]

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(params: Any) -> Any:
        analysis = documents.get(params.text_document.uri)
        sorts = {"kernel": lsp.SymbolKind.Function, "schedule": lsp.SymbolKind.Event, "const": lsp.SymbolKind.Constant}
        return [
            lsp.DocumentSymbol(
                s.name,
                sorts.get(s.kind, lsp.SymbolKind.Class),
                span(analysis.text, s.start, s.end),
                span(analysis.text, s.start, s.end),
                s.kind,
            )
            for s in analysis.symbols()
        ]

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatting(params: Any) -> Any:
        analysis = documents.get(params.text_document.uri)
        try:
            text = format_text(analysis.text)
        except CompileError:
            return None  # the faults are on the screen already
        return [lsp.TextEdit(span(analysis.text, 0, len(analysis.text)), text)] if text != analysis.text else []

    return server


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `tileir-lsp`; returns the exit status."""
    p = argparse.ArgumentParser(prog="tileir-lsp", description="A language server for .tile files.")
    p.add_argument("--version", action="version", version=f"tileir {__version__}")
    p.add_argument("--tcp", metavar="PORT", type=int, help="listen on this port of the local host instead")
    args = p.parse_args(argv)
    try:
        server = make_server()
    except ImportError:
        print(MISSING, file=sys.stderr)
        return 2
    if args.tcp is not None:
        server.start_tcp("127.0.0.1", args.tcp)
    else:
        server.start_io()
    return 0


if __name__ == "__main__":
    sys.exit(main())
