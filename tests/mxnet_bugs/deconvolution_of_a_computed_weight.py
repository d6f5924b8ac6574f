"""Deconvolution with a weight that is not a variable.

What: ``Deconvolution(x, identity(w))`` in single precision.

Expected: the same as ``Deconvolution(x, w)``.

Seen: "could not execute a primitive" of oneDNN.

How the project avoids it: its weight stays a variable, so that a deconvolution of two dims in single precision is
computed whole (``takes_variable_only``, csrc/rules/convolution.cc).
"""
import sys

import mxnet as mx

computed = sys.argv[1:] != ["variable"]
w = mx.sym.Variable("w")
y = mx.sym.Deconvolution(mx.sym.Variable("x"), mx.sym.identity(w) if computed else w, kernel=(3, 2), num_filter=4,
                         no_bias=True)
executor = y.simple_bind(mx.cpu(), x=(2, 3, 4, 5))
executor.forward(is_train=True)
executor.backward([mx.nd.ones(o.shape) for o in executor.outputs])
print("gradient of the weight:", float(executor.grad_dict["w"].asnumpy().sum()))
