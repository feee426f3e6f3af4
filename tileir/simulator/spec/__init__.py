"""NumPy specifications of the ops: what the native library must compute, in readable form.

Written from the ISA documents and independent of the native builders; the differential tests compare the two. Vector
ops work on arrays of 64 lanes, scalar ops on Python integers.
"""
