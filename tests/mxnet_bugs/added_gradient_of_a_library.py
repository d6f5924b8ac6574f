"""An operator of a library where its gradient is to be added.

What: an operator that a library brings (lib_api.h), one of whose inputs has ``grad_req="add"``, or other users too.

Expected: the gradient is added to what is there: 1 + 1 = 2.

Seen: the library's operator is told nothing, and overwrites: 1.

How the project avoids it: gradients of its own operators never go straight to a variable or a tensor with other
users, but through an identity (``has_backward_node``, csrc/rules/gradient.cc).
"""
import json

import mxnet as mx

from soybean_mx import operators

assert operators.are_usable([mx.cpu()])
names = ("sums", "gamma", "beta")
attrs = {"count": "4", "eps": "0.01", "fix_gamma": "False"}
nodes = [{"op": "null", "name": name, "inputs": []} for name in names]
nodes.append({"op": "_soybean_mx_batch_norm_factors", "name": "y", "attrs": attrs,
              "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 0]]})
symbol = mx.sym.load_json(json.dumps({"nodes": nodes, "arg_nodes": [0, 1, 2], "node_row_ptr": [0, 1, 2, 3, 6],
                                      "heads": [[3, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}))
arguments = {"sums": mx.nd.ones((2, 3), dtype="float64"), "gamma": mx.nd.ones(3), "beta": mx.nd.ones(3)}
gradients = {"beta": mx.nd.ones(3)}
executor = symbol.bind(mx.cpu(), arguments, gradients, {"sums": "null", "gamma": "null", "beta": "add"})
executor.forward(is_train=True)
executor.backward([mx.nd.ones((2, 3))])
print(f"{gradients['beta'].asnumpy().tolist()}, expected [2.0, 2.0, 2.0]")
