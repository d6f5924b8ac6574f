"""The gradient of polyval for x alone.

What: ``np.polyval(p, x)`` where only x has a gradient.

Expected: the derivative of the polynomial.

Seen: nothing is written; x's gradient is what was in memory (0 in fresh memory), and spoils the sum where x has other
users.

How the project avoids it: it does not, as one device computes no other gradient; the tests ask for p's gradient, too.
"""
import mxnet as mx
import numpy as np

mx.npx.set_np()
x = mx.np.array(np.arange(4.0))
for coefficients_too in (False, True):
    p = mx.np.array(np.array([1.0, 2.0, 3.0]))
    x.attach_grad()
    if coefficients_too:
        p.attach_grad()
    with mx.autograd.record():
        y = mx.np.polyval(p, x)
    y.backward()
    print(f"p's gradient asked for: {coefficients_too}; expected {2 * x + 2}, found {x.grad}")
