"""gather_nd and scatter_nd whose node has a control dependency cannot be differentiated by an executor.

What: a symbol in whose JSON the node of a ``gather_nd`` has ``control_deps``, bound with gradients.

Expected: it is bound, as with any other of the 300 operators that have a rule here.

Seen: "FGradient has not been registered for Operator _zeros", or "Cannot find matching backward op" where the node that
is named has a gradient: where MXNet infers the shapes of the gradient, it takes the first control
dependency of the gradient's node for the forward operator, and finds the one that is not. With ``group2ctx`` and a node
without ``__ctx_group__`` it crashes with a segmentation fault instead.

How the project avoids it: control dependencies chain all nodes of a tiled graph, but these; they take their first
operand through an identity that has the dependency in their place (``with_gates`` in csrc/lower/parallel_graph.cc).
"""
import json

import mxnet as mx

graph = json.loads(mx.sym.gather_nd(mx.sym.Variable("x"), mx.sym.Variable("index"), name="picked").tojson())
for with_dependency in (False, True):
    if with_dependency:
        graph["nodes"].insert(2, {"op": "_zeros", "name": "before", "attrs": {"shape": "(1,)"}, "inputs": []})
        graph["nodes"][3]["control_deps"] = [2]
        graph["heads"] = [[3, 0, 0]]
        del graph["node_row_ptr"]
    symbol = mx.sym.load_json(json.dumps(graph))
    values = {"x": mx.nd.ones((4, 5)), "index": mx.nd.array([[0, 1], [2, 3]])}
    try:
        symbol.bind(mx.cpu(), values, {"x": mx.nd.zeros((4, 5))}, {"x": "write", "index": "null"})
        print(f"with a control dependency: {with_dependency}: bound")
    except mx.MXNetError as error:
        print(f"with a control dependency: {with_dependency}:", str(error).strip().splitlines()[-1])
