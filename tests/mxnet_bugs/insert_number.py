"""insert of a number in a graph.

What: ``np.insert(x, slice, number)`` or ``(x, indices, number)`` in a symbol.

Expected: the array with the number inserted.

Seen: the process ends with a segmentation fault; with one index, binding fails.

How the project avoids it: numbers are not inserted by a rule, and the operator has no gradient; a tensor of one element
works.
"""
import mxnet as mx

mx.npx.set_np()
symbol = mx.sym.np.insert(mx.sym.var("x").as_np_ndarray(), slice(0, 3, 2), 3, axis=1)
executor = symbol.bind(mx.cpu(), {"x": mx.np.ones((4, 3), dtype="float64")})
print("expected shape (4, 5), found", executor.forward()[0].asnumpy().shape)
