"""Everything compiled, sealed: loops for a CPU between and around PyTorch's matrix products.

ops.py        typed functions over tensors; the only module that others import
reference.py  the plain PyTorch definition of each, which the tests compare it with
loops.py      the loops, for Numba
compiler.py   compiles loops to machine code with Numba and LLVM, and stores it

Nothing outside this package imports Numba or llvmlite, or handles an address.
"""
