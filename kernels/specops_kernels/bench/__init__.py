"""The kernels on a GPU, beside what others take for the same work: `benchmarks/gpu_kernels.py`."""
