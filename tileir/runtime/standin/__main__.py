"""Command line: see the package."""

import argparse
from pathlib import Path

from tileir.runtime.standin import build

parser = argparse.ArgumentParser(prog="python -m tileir.runtime.standin", description=build.__doc__)
parser.add_argument("directory", type=Path)
parser.add_argument("--major", type=int, choices=(5, 6, 7), default=6, help="ROCm that it stands for (default 6)")
options = parser.parse_args()
print(build(options.directory, options.major))
