"""Gradients of ``contrib.cond`` in a hybridized block.

What: two branches that use the same computed tensor, which is so two inputs of the operator.

Expected: the same gradient in every step.

Seen: the gradient of an input that the branch not taken uses is not written. What was in its memory is added to that of
the other: from the second step on the gradient is wrong. ``contrib.while_loop`` leaves gradients unwritten where it has
no iteration.

How the project avoids it: both branches use every input, and what a loop only reads becomes a variable that it hands on
(``soybean_mx/control_flow.py``).
"""
import mxnet as mx
from mxnet import autograd
from mxnet.gluon import HybridBlock


class Branch(HybridBlock):
    def hybrid_forward(self, F, x, number):
        h = F.tanh(x)
        return F.contrib.cond(number > 0, lambda: h * 2, lambda: F.sin(h))


for hybridized in (False, True):
    net = Branch()
    net.hybridize(hybridized)
    x, number = mx.nd.ones((2, 3)), mx.nd.array([-1])
    x.attach_grad()
    for step in range(3):
        with autograd.record():
            loss = net(x, number).sum()
        loss.backward()
        print("hybridized" if hybridized else "not hybridized", step, x.grad[0, 0].asscalar())
