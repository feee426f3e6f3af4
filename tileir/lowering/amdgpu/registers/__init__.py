"""How many registers code will take, found in the text that is handed to MLIR: see `predict`."""
