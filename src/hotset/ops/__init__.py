"""The batched operations: each defined once, slowly and obviously, in PyTorch, for any device.

An operation is a frozen dataclass with three methods: `out_shape` (what it makes of a shape),
`draw` (the parameters of every sample, as integers) and `apply` (a pure function of images and
parameters). The kernels in `hotset.kernels` are the same operations, fused.
"""
