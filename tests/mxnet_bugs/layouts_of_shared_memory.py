"""A copy between contexts into memory that was another tensor's.

What: an executor over several CPU contexts (``group2ctx``) of convolutions, in which tensors share memory.

Expected: gradients as on one context.

Seen: oneDNN's layout of the tensor that had the memory before is believed by MXNet's copy between contexts: a failed
check of a reshape (VGG-16), "could not create a primitive descriptor for a sum primitive" (ResNet-50), or wrong
numbers, or a segmentation fault (AlexNet). ``NNVM_EXEC_MATCH_RANGE=0``, where no tensors share memory, avoids it at
the price of memory.

How the project avoids it: a library in front of MXNet makes the array forget the layout first (csrc/copies), tried
out at the first bind; where it is not in force, tensors share no memory.
"""
import json

import mxnet as mx
from mxnet.gluon.model_zoo import vision

DEVICES = 4

graph = json.loads(vision.vgg16(classes=10)(mx.sym.Variable("data")).tojson())
nodes = graph["nodes"]
for index in reversed(range(len(nodes))):  # a variable is where its operator is
    users = [n for n in nodes[index:] if any(entry[0] == index for entry in n["inputs"])]
    place = f"dev{index * DEVICES // len(nodes)}"
    if nodes[index]["op"] == "null":
        place = users[0]["attrs"]["__ctx_group__"]
    nodes[index]["attrs"] = {**nodes[index].get("attrs", {}), "__ctx_group__": place}
groups = {f"dev{index}": mx.cpu(index) for index in range(DEVICES)}
executor = mx.sym.load_json(json.dumps(graph)).simple_bind(mx.cpu(), group2ctx=groups, data=(8, 3, 64, 64))
executor.forward(is_train=True)
executor.backward([mx.nd.ones(o.shape) for o in executor.outputs])
mx.nd.waitall()
print("it was not found to fail this time")
