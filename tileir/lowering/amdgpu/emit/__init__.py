"""Wave-level IR → MLIR text: a module per family of ops, `kernel.py` puts them together.

The text is written directly, without the MLIR library: the user's process never loads it, and mistakes come back from the
code generation worker as located messages.
"""
