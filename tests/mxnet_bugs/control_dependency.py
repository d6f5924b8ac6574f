"""A control dependency of an operator that is also a gradient.

What: ``scatter_nd`` or ``gather_nd``, each registered as the other's gradient, in a graph with a control dependency.

Expected: the graph is bound; the operator runs after the one that it depends on.

Seen: MXNet takes the operator that it depends on for the one whose gradient it is: binding fails (``Cannot find
matching backward op``, or that FGradient was not registered).

How the project avoids it: these nodes get no control dependency; the node behind them depends on what is before them.
"""
import json

import mxnet as mx

symbol = mx.sym.scatter_nd(mx.sym.Variable("x"), mx.sym.Variable("i"), shape=(4,))
graph = json.loads((symbol + mx.sym.zeros((4,))).tojson())
names = [node["op"] for node in graph["nodes"]]
zeros = graph["nodes"].pop(names.index("_zeros"))
graph["nodes"].insert(0, zeros)  # nodes now: zeros, x, i, scatter_nd, sum
graph["nodes"][3].update(inputs=[[1, 0, 0], [2, 0, 0]], control_deps=[0])
graph["nodes"][4]["inputs"] = [[3, 0, 0], [0, 0, 0]]
graph["arg_nodes"] = [1, 2]
values = {"x": mx.nd.ones((2,)), "i": mx.nd.array([[1, 3]])}
try:
    print(mx.sym.load_json(json.dumps(graph)).bind(mx.cpu(), values).forward()[0])
except mx.base.MXNetError as error:
    print("not bound:", str(error).strip().splitlines()[-1])
