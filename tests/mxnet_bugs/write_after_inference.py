"""Weights of Conv1D and Conv3D can no longer be written after an inference on the CPU.

What: an inference leaves the weight of a convolution in a layout of oneDNN's own. MXNet 1.9.1 copies into arrays of 1,
2 and 4 dims whatever their layout is, but not into those of 3 and 5.

Expected: ``set_data``, ``load_parameters`` and ``weight[:] = value`` work after an inference.

Seen: ``Check failed: to.IsDefaultData()`` (ndarray.cc:1146), raised where somebody waits for the array.

How the project avoids it: tiles, and whole arrays that a program holds, are first written by an operator without
inputs, which makes them forget the layout (``overwrite``, soybean_mx/regions.py).
"""
import mxnet as mx
from mxnet.gluon import nn

for layer, shape in ((nn.Conv1D, (8, 3, 8)), (nn.Conv2D, (8, 3, 8, 8)), (nn.Conv3D, (8, 3, 4, 4, 4))):
    net = layer(32, 3, in_channels=3)
    net.initialize()
    net(mx.nd.ones(shape)).wait_to_read()
    try:
        net.weight.set_data(mx.nd.ones(net.weight.shape))
        net.weight.data().wait_to_read()
        print(layer.__name__, "is written")
    except mx.MXNetError as error:
        print(layer.__name__, "fails:", str(error).strip().splitlines()[-1])
