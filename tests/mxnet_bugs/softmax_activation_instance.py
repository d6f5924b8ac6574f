"""SoftmaxActivation in its default mode, on more than two dims: the gradient is not that of what it computes.

What: ``SoftmaxActivation(data)`` with ``mode="instance"`` on data of three dims.

Expected: softmax over all dims but the first, as documented, and its gradient.

Seen: each last dim is normalised for itself, but the gradient is that of another function.

How the project avoids it: the rule (csrc/rules/softmax.cc) keeps all dims but the first whole, so that a tiled graph
gives exactly what one device gives; with two dims, and in the mode "channel", it is right and can be cut.
"""
import mxnet as mx
import numpy as np

x = mx.nd.array(np.random.RandomState(0).normal(size=(2, 3, 4)))
head = mx.nd.array(np.random.RandomState(1).normal(size=(2, 3, 4)))
x.attach_grad()
with mx.autograd.record():
    y = mx.nd.SoftmaxActivation(x)
y.backward(head)
print("sums over the last dim:", y.sum(axis=2).asnumpy().ravel())
numeric = np.zeros(x.shape)
for place in np.ndindex(*x.shape):
    step = np.zeros(x.shape, "float32")
    step[place] = 1e-2
    up, down = (mx.nd.SoftmaxActivation(x + mx.nd.array(s * step)) for s in (1, -1))
    numeric[place] = ((up - down) * head).sum().asscalar() / 2e-2
print("gradient:", x.grad.asnumpy()[0, 0], "by differences:", numeric[0, 0])
print("largest error of the gradient:", np.abs(x.grad.asnumpy() - numeric).max())
