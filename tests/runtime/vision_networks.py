"""Networks of vision and detection operators, trained plain and tiled and compared.

``python -m tests.runtime.vision_networks NAME DEVICES STRATEGY`` prints nothing where they agree.
"""
from __future__ import annotations

import sys

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn
from mxnet.gluon.contrib.cnn import DeformableConvolution
from mxnet.gluon.contrib.nn import SyncBatchNorm

from tests.runtime.pairs import assert_close, assert_same_parameters, pair, parameters, samples

BATCH = 8


class Network(gluon.HybridBlock):
    """Two convolutions, and what a subclass does with what they make of an image."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.first = nn.Conv2D(8, 3, padding=1, use_bias=False)
            self.second = nn.Conv2D(8, 3, strides=2, padding=1, use_bias=False)
            self.add_layers()

    def add_layers(self) -> None:
        """Add what the subclass needs."""


class Deformable(Network):
    def add_layers(self) -> None:
        self.deformable = DeformableConvolution(8, kernel_size=(3, 3), padding=(1, 1), num_deformable_group=2,
                                                offset_bias_initializer=mx.init.Uniform(0.5))

    def hybrid_forward(self, F, x):
        return self.deformable(F.tanh(self.second(self.first(x))))


class Synchronised(Network):
    """SyncBatchNorm, and BatchNorm with a ReLU.

    The tiled network is told of four devices: MXNet's operator would wait for the other three.
    """

    plain = True  # of the first that is made

    def add_layers(self) -> None:
        self.normal = SyncBatchNorm(in_channels=8, num_devices=1 if Synchronised.plain else 4)
        Synchronised.plain = False
        self.relu = nn.BatchNormReLU(in_channels=8)

    def hybrid_forward(self, F, x):
        return self.normal(self.second(self.relu(self.first(x))))


class Sized(Network):
    """Extents that other tensors give.

    Where nothing changes its size, MXNet's gradient of what it is taken from is memory that nobody wrote
    (tests/mxnet_bugs/resize_like.py), so that the plain network does without.
    """

    plain = True  # of the first that is made

    def add_layers(self) -> None:
        self.same = (lambda F, x: x) if Sized.plain else \
            (lambda F, x: F.contrib.BilinearResize2D(x, like=x * 2, mode="like"))
        Sized.plain = False

    def hybrid_forward(self, F, x):
        fine = self.first(x)
        coarse = self.second(fine)
        up = F.contrib.BilinearResize2D(coarse, like=fine, mode="like", align_corners=False)
        same = self.same(F, coarse)
        other = F.tanh(coarse)  # 8 users of one tensor are too many: see tests/mxnet_bugs/overwritten_gradients.py
        crop = F.slice_like(fine, other, axes=(2, 3))
        older = F.Crop(fine, other, num_args=2, center_crop=True)
        flat = F.reshape_like(coarse, F.Flatten(other))
        wide = F.broadcast_like(F.mean(other, axis=(2, 3), keepdims=True), other)
        return F.tanh(up), same + crop * older + wide, flat


class Detector(Network):
    """Anchors, targets and decoded boxes, suppressed and pooled from."""

    def add_layers(self) -> None:
        self.classes = nn.Conv2D(3 * 2, 3, padding=1)
        self.boxes = nn.Conv2D(4 * 2, 3, padding=1)

    def hybrid_forward(self, F, x):
        features = F.relu(self.second(self.first(x)))
        anchors = F.contrib.MultiBoxPrior(features, sizes=(0.4, 0.2), ratios=(1,))
        classes = F.reshape(F.transpose(self.classes(features), axes=(0, 2, 3, 1)), (0, -1, 3))
        boxes = F.Flatten(F.transpose(self.boxes(features), axes=(0, 2, 3, 1)))
        labels = F.reshape(F.BlockGrad(F.sigmoid(F.slice_axis(boxes, axis=1, begin=0, end=10))), (0, 2, 5))
        labels = F.concat(F.round(F.slice_axis(labels, axis=2, begin=0, end=1)),
                          F.slice_axis(labels, axis=2, begin=1, end=3) * 0.5,
                          F.slice_axis(labels, axis=2, begin=3, end=5) * 0.5 + 0.4, dim=2)
        predictions = F.transpose(classes, axes=(0, 2, 1))
        targets, masks, wanted = F.contrib.MultiBoxTarget(anchors, labels, predictions, negative_mining_ratio=3,
                                                          overlap_threshold=0.3)
        decoded = F.contrib.box_decode(F.reshape(boxes, (0, -1, 4)), anchors, format="corner", std0=0.1, std1=0.1,
                                       std2=0.2, std3=0.2)
        scored = F.concat(F.slice_axis(F.softmax(classes), axis=2, begin=1, end=2), decoded, dim=2)
        kept = F.contrib.box_nms(scored, overlap_thresh=0.5, topk=8, coord_start=1, score_index=0)
        found = F.contrib.MultiBoxDetection(F.transpose(F.softmax(classes), axes=(0, 2, 1)), boxes, anchors)
        regions = F.slice_axis(F.slice_axis(kept, axis=1, begin=0, end=2), axis=2, begin=1, end=5)
        numbers = F.contrib.arange_like(kept, axis=0)
        numbers = F.broadcast_like(F.reshape(numbers, (-1, 1, 1)), F.slice_axis(regions, axis=2, begin=0, end=1))
        regions = F.BlockGrad(F.reshape(F.concat(numbers, F.clip(regions * 4, 0, 4), dim=2), (-1, 5)))
        pooled = F.contrib.ROIAlign(features, regions, pooled_size=(2, 2), spatial_scale=1.0, sample_ratio=2)
        overlap = F.contrib.box_iou(decoded, F.reshape(anchors, (-1, 4)))
        return (F.sum(F.smooth_l1((boxes - targets) * masks)), F.pick(F.log_softmax(classes), wanted) * (wanted >= 0),
                kept, found, pooled, overlap)


class Warped(Network):
    """Images sampled at learned places, and compared with each other."""

    def add_layers(self) -> None:
        self.place = nn.Dense(6, weight_initializer=mx.init.Normal(0.01), bias_initializer=mx.init.One())

    def hybrid_forward(self, F, x):
        image = self.first(x)
        matrix = F.tanh(self.place(self.second(image)))
        warped = F.SpatialTransformer(image, matrix, target_shape=(5, 6), transform_type="affine",
                                      sampler_type="bilinear")
        grid = F.GridGenerator(matrix, transform_type="affine", target_shape=(5, 6))
        sampled = F.BilinearSampler(F.sin(image), grid)
        compared = F.Correlation(warped, sampled, max_displacement=1, pad_size=1)
        columns = F.im2col(sampled, kernel=(3, 3), pad=(1, 1))
        return warped, compared, F.col2im(columns * columns, output_size=(5, 6), kernel=(3, 3), pad=(1, 1))


class Gathered(Network):
    """Pixels picked by number, and put elsewhere."""

    def hybrid_forward(self, F, x):
        pixels = F.reshape(F.transpose(self.second(self.first(x)), axes=(0, 2, 3, 1)), (0, -1, 8))
        places = F.BlockGrad(F.topk(F.mean(pixels, axis=2), k=3))
        samples = F.broadcast_like(F.expand_dims(F.contrib.arange_like(places, axis=0), axis=1), places)
        picked = F.gather_nd(pixels, F.stack(samples, places, axis=0))
        return picked, F.scatter_nd(F.sin(picked), F.stack(samples, places, axis=0), shape=(BATCH, 16, 8))


NETWORKS = {"deformable": Deformable, "synchronised": Synchronised, "sized": Sized, "detector": Detector,
            "warped": Warped, "gathered": Gathered}
DOUBLE = ("deformable",)  # MXNet has operators of the others in single precision only


def flat(outputs) -> list:
    """Return the outputs of a network as a list."""
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def run(net, data, step: int) -> list:
    """Return the outputs and the data's gradient of one step, which moves the parameters."""
    data.attach_grad()
    with autograd.record():
        outputs = flat(net(data))
    heads = [samples(*o.shape, seed=step, dtype=o.dtype) for o in outputs]
    autograd.backward(outputs, heads)
    for parameter in parameters(net):
        if parameter.grad_req != "null":
            parameter.set_data(parameter.data() - 1e-4 * parameter.grad())
    return [*outputs, data.grad]


def main(name: str, devices: str, strategy: str) -> None:
    """Compare outputs, gradients and moving statistics in two steps, and a prediction."""
    dtype, tolerance = ("float64", 1e-9) if name in DOUBLE else ("float32", 1e-4)
    data = samples(BATCH, 3, 8, 8, dtype=dtype)
    nets = pair(lambda prefix: NETWORKS[name](prefix=prefix), data, devices=devices, dtype=dtype, strategy=strategy)
    for step in range(2):
        results = [run(net, samples(BATCH, 3, 8, 8, seed=step, dtype=dtype), step) for net in nets]
        for number, (theirs, ours) in enumerate(zip(*results)):
            assert_close(ours, theirs, tolerance, f"result {number} of step {step}")
        assert_same_parameters(nets[1], nets[0], tolerance)
    for theirs, ours in zip(flat(nets[0](data)), flat(nets[1](data))):
        assert_close(ours, theirs, tolerance, "prediction")


if __name__ == "__main__":
    main(*sys.argv[1:])
