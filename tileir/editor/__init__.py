"""What editors need: words of the language, highlighting for Pygments and TextMate, analysis, a language server."""
