"""Highlighting for Pygments (and what is built on it: Sphinx, MkDocs, IPython, minted)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from tileir.editor import words as language


class TileLexer(RegexLexer):
    """`.tile` files."""

    name = "TileIR"
    aliases: ClassVar[Sequence[str]] = ("tile", "tileir")
    filenames: ClassVar[Sequence[str]] = ("*.tile",)
    mimetypes: ClassVar[Sequence[str]] = ("text/x-tileir",)
    url = "https://pypi.org/project/tileir/"

    tokens: ClassVar[dict[str, Any]] = {
        "root": [
            (r"\s+", Whitespace),
            (r"//[^\n]*", Comment.Single),
            (r'"([^"\\\n]|\\.)*"', String),
            (r"%\w+", Name.Variable),
            (r"@\w+", Name.Function),
            (words(language.elements(), suffix=r"\b"), Keyword.Type),
            (words(language.SPACES, suffix=r"\b(?=\s*<)"), Keyword.Type),
            (words(language.CONSTANTS, suffix=r"\b"), Keyword.Constant),
            (words(language.DECLARATIONS, suffix=r"\b"), Keyword.Declaration),
            (words(language.CONTROL, suffix=r"\b"), Keyword),
            (words(language.ops(), suffix=r"\b(?=\s*[(<])"), Name.Builtin),
            (words(language.keywords(), suffix=r"\b"), Keyword.Reserved),
            (r"[A-Z]\w*", Name.Constant),
            (r"[a-z]\w*", Name.Attribute),
            (r"\d+(\s*x\s*\d+)+", Number.Integer),
            (r"\d+\.\d*([eE][+-]?\d+)?|\d+[eE][+-]?\d+", Number.Float),
            (r"\d+", Number.Integer),
            (r"\+:|==|!=|<=|>=|<<|>>|[-+*/|^&<>!=]", Operator),
            (r"[()\[\]{},:]", Punctuation),
        ]
    }
