"""The gradients of image.to_tensor and image.resize.

What: the gradient of an image that goes through ``image.to_tensor`` or ``image.resize``.

Expected: the head gradient, its dims back in order and divided by 255; that of a resized image.

Seen: both hand the head gradient on as it is. Imperatively, shapes disagree and MXNet refuses; in a symbol the numbers
of ``to_tensor`` are taken in their wrong order and not divided, without an error.

How the project avoids it: not at all. Images come from files, and nobody asks for their gradient.
"""
import mxnet as mx

image = mx.nd.arange(24).reshape((2, 3, 4))
executor = mx.sym.image.to_tensor(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=image.shape)
executor.forward(is_train=True, x=image)
head = mx.nd.arange(24).reshape((4, 2, 3))
executor.backward(head)
print("gradient:", executor.grad_dict["x"][0, 0].asnumpy(), "expected:", head[:, 0, 0].asnumpy() / 255)
image.attach_grad()
for operator in (mx.nd.image.to_tensor, lambda x: mx.nd.image.resize(x[:, :, :3], size=(5, 5))):
    with mx.autograd.record():
        out = operator(image)
    try:
        out.backward()
        mx.nd.waitall()
        print("imperatively: a gradient of shape", image.grad.shape)
    except mx.base.MXNetError as error:
        print("imperatively:", str(error).strip().splitlines()[-1][-90:])
