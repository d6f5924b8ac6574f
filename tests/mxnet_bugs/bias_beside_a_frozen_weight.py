"""The gradient of a bias whose weight asks for none.

What: ``FullyConnected`` with ``grad_req`` "write" for the bias and "null" for the weight.

Expected: the sum of the head gradient, 4 in each place.

Seen: with oneDNN the bias's gradient is not written at all. (``MXNET_MKLDNN_ENABLED=0`` is right.)

How the project avoids it: a tiled block computes the gradient of such a weight too, and leaves it
(soybean_mx.graph.weights_beside_trained_biases).
"""
import mxnet as mx

layer = mx.sym.FullyConnected(mx.sym.Variable("x"), mx.sym.Variable("w"), num_hidden=3, name="fc")
executor = layer.simple_bind(mx.cpu(), grad_req={"x": "write", "w": "null", "fc_bias": "write"}, x=(4, 5))
executor.grad_dict["fc_bias"][:] = -7
executor.forward(is_train=True)
executor.backward([mx.nd.ones((4, 3))])
print(f"{executor.grad_dict['fc_bias'].asnumpy().tolist()}, expected [4.0, 4.0, 4.0]")
