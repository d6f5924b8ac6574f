"""Backward pass of a concatenation of few channels between convolutions.

What: ``concat`` of 4 + 4 channels, each made by a convolution, that another convolution uses.

Expected: gradients.

Seen: oneDNN keeps the gradient in blocks of 8 or 16 channels and cannot take 4 out of one: a floating point exception
ends the process (for 12 + 12 channels: "could not construct a sub-memory").

How the project avoids it: joins run as ``_npi_concatenate``, which has no oneDNN form (csrc/rules/joining.cc).
"""
import json
import sys

import mxnet as mx

operator = sys.argv[1] if len(sys.argv) > 1 else "Concat"
x = mx.sym.Variable("x")
parts = [mx.sym.Convolution(x, num_filter=4, kernel=(3, 3), pad=(1, 1), name=n) for n in "ab"]
joined = mx.sym.Concat(*parts, dim=1)
graph = json.loads(mx.sym.Convolution(joined, num_filter=8, kernel=(3, 3), pad=(1, 1), name="y").tojson())
for node in graph["nodes"]:
    if node["op"] == "Concat" and operator != "Concat":
        node["op"], node["attrs"] = operator, {"num_args": "2", "axis": "1"}
executor = mx.sym.load_json(json.dumps(graph)).simple_bind(mx.cpu(), x=(4, 8, 13, 13))
for array in executor.arg_arrays:
    array[:] = mx.nd.arange(array.size).reshape(array.shape) % 7
executor.forward(is_train=True)
executor.backward([mx.nd.ones(o.shape) for o in executor.outputs])
print("gradient of the first weight:", float(executor.grad_dict["a_weight"].asnumpy().sum()))
