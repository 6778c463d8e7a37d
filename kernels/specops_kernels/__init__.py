"""Triton kernels for tree verification, each in files of its own.

    X_kernel.py   what runs on the device: nothing but @triton.jit
    X.py          the typed call: shapes checked, configuration chosen, one launch or two
    X_naive.py    the same in plain PyTorch, for tests to compare with

`tree_attention` and `gather` (KV compaction), `verify_greedy` and `sampling`. `aot`, `subjects` and `budgets`
compile them for GPUs that are not here; `bench` times them on one that is. Tensors go in and come out:
nothing here knows the engine. Importing a kernel needs Triton, which `ragged` and this file do without.
"""
