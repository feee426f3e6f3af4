"""Configuration of the file tests: one file is input, command (`// RUN:`) and expectation (`// CHECK:`, `// error:`).

Run with `make filetests`, or `lit -v tests/filetests/some/file.tile` in the environment. `tileir-opt`, `tileir-tune` and
`tileir-run` in a RUN line mean the tools of this source tree under the interpreter that runs lit.
"""

import os
import shlex
import sys
from typing import Any

import lit.formats

config: Any = globals()["config"]
here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(os.path.dirname(here))

config.name = "tileir"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".tile", ".mlir", ".ll", ".s", ".test"]
config.test_exec_root = os.path.join(root, "build", "filetests")

config.environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
config.environment["PYTHONPATH"] = root
config.environment["TILEIR_CACHE"] = "simulator"  # what the compiler does now, not what it did when it was last called
config.environment["PYTHONDONTWRITEBYTECODE"] = os.environ.get("PYTHONDONTWRITEBYTECODE", "")

python = shlex.quote(sys.executable)
for tool in ("opt", "run", "tune"):
    config.substitutions.append((rf"(?<![\w/.-])tileir-{tool}\b", f"{python} -m tileir.tools.{tool}"))
config.substitutions.append(("%python", python))
