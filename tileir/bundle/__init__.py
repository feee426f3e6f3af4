"""Bundles: one file with code objects for several chips and parameter sets, and all that a launcher must know (docs/bundles.md).

    tileir.write_bundle("gemm.tileb", kernels)
    tileir.load_bundle("gemm.tileb").select("gfx950", BM=128).launch(A=a, B=b, C=c)

`tileir_bundle.h` beside this file reads them in C.
"""

from tileir.bundle.bundle import Bundle, BundledKernel, load_bundle, write_bundle
from tileir.bundle.container import BundleError

__all__ = ["Bundle", "BundleError", "BundledKernel", "load_bundle", "write_bundle"]
