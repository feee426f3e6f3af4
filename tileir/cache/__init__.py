"""Compiled kernels on disk: what was compiled once is not compiled again, by whatever process asks (docs/cache.md).

* `store`: files that are private, atomic, checked and bounded; knows nothing of kernels.
* `location`: where they lie, how large they may become, whether they are wanted (environment).
* `keys`: everything that determines a compilation, as one digest.
* `outcome`: a compiled kernel as bytes and back.
* `compiling`: the front door, compiling through the cache.
"""
