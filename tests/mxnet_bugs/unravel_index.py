"""unravel_index of a matrix.

What: ``unravel_index`` of indices with more than one dim.

Expected: an output of shape (dims of the shape, *dims of the indices).

Seen: the numbers are written beyond the output; the process ends with ``double free or corruption``, at times later.

How the project avoids it: the rule is for vectors of indices only; anything else is computed whole, as MXNet does.
"""
import mxnet as mx

symbol = mx.sym.unravel_index(mx.sym.Variable("x"), shape=(5, 6))
executor = symbol.bind(mx.cpu(), {"x": mx.nd.arange(21).reshape((3, 7))})
print("expected shape (2, 3, 7), found", executor.forward()[0].shape)
print(executor.outputs[0].asnumpy())
