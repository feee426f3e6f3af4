"""TileIR: a compiler for a textual tile IR, with the simulator that runs what it emits."""

__version__ = "0.1.0"
