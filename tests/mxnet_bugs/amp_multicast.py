"""``amp_multicast`` in double precision.

What: ``amp_multicast`` of tensors one of which is float64.

Expected: that all are cast to the widest type, or an error that says that this type cannot be.

Seen: the operator is handed to oneDNN, which knows no float64: "unknown type for MKLDNN".

How the project avoids it: it does not; ``MXNET_MKLDNN_ENABLED=0`` does, with which the sweep of the zoos runs in
float64.
"""
import mxnet as mx

arrays = [mx.nd.ones((2, 2), dtype="float64"), mx.nd.ones((2, 2), dtype="float64")]
print(mx.nd.amp_multicast(*arrays, num_outputs=2)[0].asnumpy())
