"""The shapes of cond and while_loop cannot be inferred.

What: ``infer_shape`` of a symbol with ``contrib.cond`` or ``contrib.while_loop``.

Expected: the shapes of their outputs, which their bodies tell. (``foreach`` gives them.)

Seen: unknown shapes; an executor finds them while it runs.

How the project avoids it: a block with one of them cannot be tiled; it says so when it is called.
"""
import mxnet as mx

x = mx.sym.Variable("x")
either = mx.sym.contrib.cond(mx.sym.sum(x) > 0, lambda: mx.sym.tanh(x), lambda: x * 3)
print("cond:", either.infer_shape_partial(x=(3, 4))[1], "expected [(3, 4)]")
