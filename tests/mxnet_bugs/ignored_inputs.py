"""Operators that take an input for its shape alone, after convolutions.

What: ``zeros_like`` of a tensor that nothing else needs any more, bound with other tensors before it.

Expected: zeros.

Seen: with oneDNN, "The size of NDArray doesn't match the requested MKLDNN memory desc". As the operator ignores its
input, MXNet gives the input's memory to a convolution, and converts what lies in it into the layout of the input
before the operator runs. So do ``ones_like`` and ``reshape_like``, and ``zeros_like`` in the gradient of ``BlockGrad``.

How the project avoids it: a graph with such an operator is bound so that no tensors share memory
(``NNVM_EXEC_MATCH_RANGE=0``), unless the input is a variable or an output, which keep theirs
(soybean_mx/shared_memory.py).
"""
import mxnet as mx

x = mx.sym.Variable("x")
shape_of = mx.sym.sin(x)
y = x
for layer in range(3):
    y = mx.sym.Convolution(y, num_filter=32, kernel=(3, 3), pad=(1, 1), name=f"conv{layer}")
symbol = mx.sym.Group([mx.sym.sum(shape_of), mx.sym.sum(y), mx.sym.zeros_like(shape_of)])
executor = symbol.simple_bind(mx.cpu(), grad_req="null", x=(2, 16, 24, 24))
print(f"{executor.forward()[2].asnumpy().max()}, expected 0.0")
