"""Gradients of ``contrib.foreach`` in a hybridized block.

What: a loop whose body hands a gradient on as it is (that of ``a + b`` for ``b``).

Expected: the gradients of the same block that is not hybridized, where the loop runs in Python.

Seen: each iteration is to add to the gradient of what all of them read; where that gradient is at the same time one of
another tensor, both are added up in the same memory, and what comes behind is too large. For other bodies the backward
pass fails (``storage_type_num_unknown_nodes``).

How the project avoids it: each input of a body gets a second use, so that its gradient is a sum of its own
(``soybean_mx/control_flow.py``).
"""
import mxnet as mx
from mxnet import autograd
from mxnet.gluon import HybridBlock


class Loop(HybridBlock):
    def hybrid_forward(self, F, x, state, v, q):
        x, state, v, q = (F.identity(array) for array in (x, state, v, q))
        return F.contrib.foreach(lambda a, b: (F.tanh(a * v + q + b), F.sin(b * a)), x, state)


for hybridized in (False, True):
    net = Loop()
    net.hybridize(hybridized)
    inputs = [mx.nd.ones(shape) / 2 for shape in ((4, 3), (3,), (3,), (3,))]
    for array in inputs:
        array.attach_grad()
    with autograd.record():
        outputs, last = net(*inputs)
        loss = outputs.sum() + last.sum()
    loss.backward()
    print("hybridized" if hybridized else "not hybridized", [round(float(array.grad.sum().asscalar()), 4)
                                                              for array in inputs])
