"""The fused batch path: gather, pad/crop/flip, table, erase, cast and layout in one pass.

`program` lowers a chain of operations to plain arrays (pure); `numba_cpu` and `triton_cuda`
execute a program; `dispatch` chooses between them and the reference. A kernel is never another
algorithm: it gives the reference's bits.
"""
