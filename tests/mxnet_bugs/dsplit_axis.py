"""dsplit with another axis than its own.

What: ``_npi_dsplit`` without ``axis`` (its default is 1).

Expected: parts along dim 2, or an error.

Seen: shapes are inferred along dim 1 and the parts written along dim 2, beyond the outputs; the process ends with
``free(): invalid next size``.

How the project avoids it: both dims must fit a rule, or the operator is computed whole; ``np.dsplit`` always says 2.
"""
import json

import mxnet as mx

mx.npx.set_np()
symbol = mx.sym.load_json(json.dumps({
    "nodes": [{"op": "null", "name": "x", "inputs": []},
              {"op": "_npi_dsplit", "name": "y", "attrs": {"indices": "(0, 2)"}, "inputs": [[0, 0, 0]]}],
    "arg_nodes": [0], "heads": [[1, 0, 0], [1, 1, 0]], "attrs": {"mxnet_version": ["int", 10901]}}))
executor = symbol.bind(mx.cpu(), {"x": mx.np.ones((4, 3, 6))})
print("expected (4, 3, 2) and (4, 3, 4), found", [part.asnumpy().shape for part in executor.forward()])
