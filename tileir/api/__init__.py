"""Building and compiling kernels from Python; `import tileir` hands on what is here."""
