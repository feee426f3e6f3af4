"""Shared by all tests: a reproducible hypothesis profile, the source tree, and the optional LLVM development tools."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# Tests see what the compiler does now, not what it did when it was last called: nothing from the cache of compiled kernels.
os.environ["TILEIR_CACHE"] = "simulator"

settings.register_profile("reproducible", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("reproducible")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return ROOT


@pytest.fixture(scope="session")
def llvm_tool() -> Callable[[str], str]:
    """Path of an LLVM 22 tool by plain name (`llvm_tool("llvm-mc")`); skips the test where it is not installed.

    These tools are oracles for development; the product never needs them.
    """

    def find(name: str) -> str:
        path = shutil.which(f"{name}-22")
        if path is None:
            pytest.skip(f"{name}-22 is not installed")
        return path

    return find
