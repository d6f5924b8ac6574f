"""SGD of more than 60 tensors at once.

What: ``multi_sgd_update`` of 61 weights.

Expected: an update, or an error.

Seen: the operator holds 60 in an array of fixed size, and writes beyond its end: wrong weights, or a crash.

How the project avoids it: groups of tiles that are updated together have 60 at most (soybean_mx/sgd.py).
"""
import mxnet as mx

count = 61
weights = [mx.nd.ones(1) for _ in range(count)]
pairs = [array for weight in weights for array in (weight, mx.nd.ones(1))]
mx.nd.multi_sgd_update(*pairs, lrs=[0.5] * count, wds=[0.0] * count, num_weights=count, out=weights)
print("weights:", sorted({float(weight.asscalar()) for weight in weights}), "expected [0.5]")
