"""The reference interpreter: what the IR means, computed with NumPy, at tile level and at wave level."""

from tileir.interpreter.errors import InterpreterError
from tileir.interpreter.machine import run

__all__ = ["InterpreterError", "run"]
