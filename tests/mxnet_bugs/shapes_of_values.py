"""Operators whose result's shape depends on values, in an executor.

What: ``np.unique``, ``np.nonzero``, ``np.delete`` and ``np.bincount`` in a symbol that is bound.

Expected: the results, or an error that says that the shape is not known.

Seen: a result of shape (0,), without an error; even where the shape is known, as for ``delete`` of one index.

How the project avoids it: the shape of every tensor is inferred before a block is tiled, and a block in which one is
not known is refused.
"""
import mxnet as mx

mx.npx.set_np()
x = mx.sym.var("x").as_np_ndarray()
for name, symbol in (("unique", mx.sym.np.unique(x)), ("delete", mx.sym.np.delete(x, 1, axis=0))):
    executor = symbol.bind(mx.cpu(), {"x": mx.np.array([3.0, 1.0, 3.0])})
    print(f"{name}: expected shape (2,), found", executor.forward()[0].shape)
