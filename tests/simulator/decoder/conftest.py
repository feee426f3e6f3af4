"""Makes the development tools (LLVM as an oracle, random encodings) importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
