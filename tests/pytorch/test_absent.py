"""Without PyTorch, `tileir.torch` says how to get it, and nothing else of TileIR asks for it."""

from __future__ import annotations

import subprocess
import sys


def test_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import tileir; tileir.compile\n"
        "try:\n    import tileir.torch\nexcept ModuleNotFoundError as e:\n    print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "tileir.torch needs PyTorch: pip install 'tileir[torch]'\n", done.stderr


def test_an_old_version_is_refused() -> None:
    code = (
        "import sys, types; old = types.ModuleType('torch'); old.__version__ = '2.3.1+cpu'; sys.modules['torch'] = old\n"
        "try:\n    import tileir.torch\nexcept ImportError as e:\n    print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "tileir.torch needs PyTorch 2.4 or newer, this is 2.3.1+cpu\n", done.stderr
