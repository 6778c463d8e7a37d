"""Triton kernels for tree verification. None is here yet: the engine runs on PyTorch's own operators."""
