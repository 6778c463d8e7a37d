"""The bench of the kernels on a GPU, beside what others take for the same work: `specops bench kernels`."""
