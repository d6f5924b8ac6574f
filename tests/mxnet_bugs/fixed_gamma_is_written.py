"""BatchNorm with fix_gamma writes 1 into its gamma.

What: ``BatchNorm(..., fix_gamma=True)``, the operator's default, with a gamma of other values.

Expected: gamma counts as 1, and stays what it is: it is an input.

Seen: in every forward pass, be it outside of training, the array that holds gamma is filled with 1, though MXNet's
engine was told that it is only read. Weight decay takes it away from 1 between two passes.

How the project avoids it: where several devices hold gamma, or copies of it, which of them is written would depend on
the plan. The runtime fills all tiles of such a gamma with 1 before each forward pass (``fixed_scales`` in
soybean_mx/graph.py), so that they are what one device leaves.
"""
import mxnet as mx

gamma = mx.nd.array([0.5, 2.0, 3.0])
mx.nd.BatchNorm(mx.nd.ones((4, 3)), gamma, mx.nd.zeros(3), mx.nd.zeros(3), mx.nd.ones(3), fix_gamma=True)
mx.nd.waitall()
print(f"{gamma.asnumpy().tolist()}, expected [0.5, 2.0, 3.0]")
