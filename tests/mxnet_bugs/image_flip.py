"""Flips of images with an odd extent, and their gradient.

What: ``image.flip_left_right(x)``, ``image.flip_top_bottom(x)``.

Expected: what ``reverse`` gives, the gradient as the head gradient flipped.

Seen: the middle column (row) of an odd extent is never written, and holds what was in memory; the gradient is the head
gradient as it is.

How the project avoids it: the parts run as ``reverse`` (csrc/rules/image.cc).
"""
import mxnet as mx

for extent in (4, 5):
    x = mx.nd.arange(1, extent + 1).reshape((1, extent, 1))
    x.attach_grad()
    buffer = mx.nd.full(x.shape, -7)
    mx.nd.image.flip_left_right(x, out=buffer)
    print(f"flipped: {buffer.asnumpy().ravel()}, expected {x.asnumpy().ravel()[::-1]}")
    with mx.autograd.record():
        out = mx.nd.image.flip_left_right(x)
    out.backward(x)
    print(f"gradient: {x.grad.asnumpy().ravel()}, expected {x.asnumpy().ravel()[::-1]}")
