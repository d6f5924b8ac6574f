"""The gradient of BilinearResize2D(mode="like") for the tensor whose size is taken.

What: ``contrib.BilinearResize2D(data, like, mode="like")`` reads the extents of ``like`` only, whose gradient is 0.

Expected: 0.

Seen: where the image keeps its size, the backward pass returns before it writes that gradient, which is whatever was in
memory. Where ``like`` has fewer samples than the data, zeros are written beyond its end: MXNet ends with "double free
or corruption". Where it has more, the gradient of the last ones is not written.

How the project avoids it: operators that take an extent from another tensor are given the extents themselves before the
plan (csrc/graph/state_extents.h); where that tensor has no other use, it is given no gradient.
"""
import mxnet as mx

for samples, rows in ((4, 6), (6, 3)):
    data, like = mx.nd.ones((4, 3, 6, 5)), mx.nd.ones((samples, 3, rows, 5))
    data.attach_grad()
    like.attach_grad()
    like.grad[:] = 7  # what is in memory
    with mx.autograd.record():
        out = mx.nd.contrib.BilinearResize2D(data, like, mode="like")
    out.backward()
    print(f"like of shape {like.shape}: its gradient, expected 0, is as large as {like.grad.max().asscalar()}")
