"""The shapes of cond and while_loop cannot be inferred.

What: ``infer_shape`` of a symbol with ``contrib.cond`` or ``contrib.while_loop``.

Expected: the shapes of their outputs, which their bodies tell. (``foreach`` gives them.)

Seen: unknown shapes; an executor finds them while it runs.

How the project avoids it: it infers shapes of a graph into which the bodies are written (soybean_mx/control_flow.py),
and takes an executor's outputs anew after each run.
"""
import mxnet as mx

x = mx.sym.Variable("x")
either = mx.sym.contrib.cond(mx.sym.sum(x) > 0, lambda: mx.sym.tanh(x), lambda: x * 3)
print("cond:", either.infer_shape_partial(x=(3, 4))[1], "expected [(3, 4)]")
