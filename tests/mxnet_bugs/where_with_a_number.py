"""The gradient of NumPy's ``where`` with a number.

What: ``np.where(condition, x, 0.0)``.

Expected: the gradient reaches x where the condition holds.

Seen: it reaches x where the condition does not hold.

How the project avoids it: its masks are ``_npi_where`` with a tensor of zeros (csrc/lower/lower.cc).
"""
import mxnet as mx

mx.npx.set_np()
x = mx.np.array([1.0, 2.0, 3.0])
x.attach_grad()
with mx.autograd.record():
    y = mx.np.where(mx.np.array([True, True, False]), x, 0.0)
y.backward()
print(f"{x.grad.asnumpy().tolist()}, expected [1.0, 1.0, 0.0]")
