"""Gradients that are zero and should not be.

What: the gradients of ``np.std``, ``np.var``, ``np.percentile``, ``np.atleast_1d`` to ``3d``, ``np.linalg.eigh``,
``eigvalsh``, ``eig``, ``eigvals`` and ``pinv``.

Expected: their derivatives, or an error that there is none.

Seen: zeros, silently.

How the project avoids it: it gives the same zeros, as a program that was right on one device must not change; the
operators are listed as such that stop gradients (csrc/rules/gradient.cc), so that nothing is sent for them.
"""
import mxnet as mx

mx.npx.set_np()
x = mx.np.array([[1.0, 2.0], [4.0, 8.0]])
for name, function in (("var", mx.np.var), ("std", mx.np.std), ("atleast_3d", mx.np.atleast_3d)):
    x.attach_grad()
    with mx.autograd.record():
        y = function(x)
    y.backward()
    print(f"gradient of {name}, expected nonzero:", x.grad.asnumpy().tolist())
