"""Gradients that are written where they are to be added.

What: a tensor with many users, one of which is Crop, BilinearResize2D(mode="like"), SpatialTransformer,
DeformableConvolution, box_nms or MultiBoxPrior.

Expected: the sum of all users' gradients.

Seen: with 8 users and more MXNet sums in place (``MXNET_EXEC_INPLACE_GRAD_SUM_CAP``), and these operators set the sum
to 0, or write over it, whatever they are asked for. The other users' gradients so far are lost.

How the project avoids it: no tensor of the graphs that it binds has more than 4 users (csrc/lower/parallel_graph.cc).
"""
import mxnet as mx


def gradient(users: int) -> float:
    """Return the gradient of x in Crop(x) + x + 2 x + 3 x + ..., of which x has ``users``, where it was not cropped."""
    x = mx.sym.Variable("x")
    shared = x * 1
    heads = [mx.sym.Crop(shared, num_args=1, h_w=(1, 1))] + [shared * i for i in range(1, users)]
    losses = mx.sym.Group([mx.sym.make_loss(mx.sym.sum(head)) for head in heads])
    executor = losses.simple_bind(mx.cpu(), x=(1, 1, 2, 2))
    executor.forward(is_train=True)
    executor.backward()
    return float(executor.grad_dict["x"].asnumpy()[0, 0, 1, 1])


for users in (4, 10):
    print(f"{users} users: gradient {gradient(users)}, expected {users * (users - 1) / 2}")
