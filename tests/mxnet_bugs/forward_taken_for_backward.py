"""gather_nd and scatter_nd with a control dependency.

What: a symbol in which ``gather_nd`` (or ``scatter_nd``) has a control dependency, which nnvm keeps in its JSON, is
bound.

Expected: the dependency orders the two nodes.

Seen: "Cannot find matching backward op for ...". Both operators are registered as ``TIsBackward``, so that what they
depend on is taken for the node whose gradient they are.

How the project avoids it: nodes of these operators depend on none; those behind them depend on what they would have
(csrc/lower/parallel_graph.cc, symbol_json).
"""
import json

import mxnet as mx

data, indices = mx.sym.Variable("data"), mx.sym.Variable("indices")
graph = json.loads(mx.sym.gather_nd(mx.sym.sin(data), indices, name="gather").tojson())
node = next(n for n in graph["nodes"] if n["name"] == "gather")
node["control_deps"] = [next(i for i, n in enumerate(graph["nodes"]) if n["op"] == "sin")]
try:
    mx.sym.load_json(json.dumps(graph)).simple_bind(mx.cpu(), grad_req="null", data=(4, 3), indices=(1, 2))
    print("bound")
except RuntimeError as error:
    print("not bound, expected to be:", str(error).strip().splitlines()[-1])
