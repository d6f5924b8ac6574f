"""Two recorded calls of a network with a state, each with a backward pass of its own.

What: a CachedOp with BatchNorm is called twice under ``autograd.record``, then ``backward`` is called for each result.

Expected: the gradients of both.

Seen: the states, which have no gradient, are on the tape of both calls as one node, whose record the first backward
pass clears: the second fails with "The any container is empty".

How the project avoids it: a pipeline's stage is given states and frozen weights by a new handle in each call
(``NDArray.detach``, soybean_mx/pipeline/trainer.py).
"""
import mxnet as mx

call = mx.nd.CachedOp(mx.sym.BatchNorm(mx.sym.Variable("x"), name="norm"))
x, gamma, beta, mean, variance = (mx.nd.ones(shape) for shape in ((2, 3), (3,), (3,), (3,), (3,)))
gamma.attach_grad()
with mx.autograd.record():
    first = call(x, gamma, beta, mean, variance)
    second = call(x, gamma, beta, mean, variance)
for result in (first, second):
    try:
        result.backward()
        print("a backward pass, as expected:", gamma.grad.shape)
    except mx.MXNetError as error:
        print(str(error).strip().splitlines()[-1])
