"""The gradient of the label of a regression output is not written.

What: ``LinearRegressionOutput``, ``LogisticRegressionOutput`` and ``MAERegressionOutput`` with a gradient asked for of
the label too.

Expected: zeros.

Seen: the memory that is to hold it stays what it was, so that it is whatever an earlier operator left there.

How the project avoids it: it does not; whoever asks gets what MXNet leaves. Gluon's data loaders attach no gradient.
"""
import mxnet as mx

scores, label = mx.nd.ones((2, 3)), mx.nd.zeros((2, 3))
for array in (scores, label):
    array.attach_grad()
label.grad[:] = 7
with mx.autograd.record():
    loss = mx.nd.LinearRegressionOutput(scores, label)
loss.backward()
print(f"{label.grad.asnumpy().tolist()}, expected zeros")
