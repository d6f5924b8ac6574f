"""Small models of every layer of ``gluon.nn``, ``gluon.contrib`` and every loss of ``gluon.loss``."""
from __future__ import annotations

from typing import List, Optional, Sequence

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import HybridBlock, contrib, nn

from sample_blocks import KEEPS_ALL, Calling, Example, Examples, Inputs, normal, sequential, together, tokens

BATCH = 8


def on_vectors(*blocks: HybridBlock, features: int = 10) -> Example:
    """Blocks between two dense layers, on vectors."""
    return Example(sequential(nn.Dense(12, in_units=features), *blocks, nn.Dense(5)), normal((BATCH, features)))


def on_images(dims: int, *blocks: HybridBlock, image: Sequence[int] = (12, 10, 6), dtype: Optional[str] = None
              ) -> Example:
    """Blocks between a convolution to 6 channels and a dense layer, on images of 1 to 3 dims."""
    convolution = (nn.Conv1D, nn.Conv2D, nn.Conv3D)[dims - 1]
    net = sequential(convolution(6, 3, padding=1, in_channels=4), *blocks, nn.Flatten(), nn.Dense(5))
    return Example(net, normal((BATCH, 4, *image[:dims])), dtype)


def side_by_side(*blocks: HybridBlock) -> HybridBlock:
    """The blocks' outputs for one input, each as vectors, joined."""
    net = contrib.nn.HybridConcurrent(axis=1)
    for block in blocks:
        net.add(sequential(block, nn.Flatten()))
    return net


def convolutions(dims: int) -> Example:
    """Convolutions with strides, groups, dilation and without bias, and their transposes."""
    conv = (nn.Conv1D, nn.Conv2D, nn.Conv3D)[dims - 1]
    transpose = (nn.Conv1DTranspose, nn.Conv2DTranspose, nn.Conv3DTranspose)[dims - 1]
    return on_images(dims, conv(8, 3, strides=2, padding=1, activation="tanh"), conv(8, 3, padding=1, groups=2),
                     conv(8, 3, padding=2, dilation=2, use_bias=False), conv(8, 1, groups=8),
                     transpose(6, 3, strides=2, padding=1, output_padding=1, in_channels=8),
                     transpose(6, 2, strides=2, groups=2, in_channels=6), image=(8, 6, 4),
                     dtype="float32" if dims == 3 else None)


def poolings(dims: int) -> Example:
    """Every pooling of images of `dims` dims."""
    suffix = f"{dims}D"

    def pool(kind: str, **options) -> HybridBlock:
        return getattr(nn, kind + suffix)(**options)

    return on_images(dims, side_by_side(
        pool("MaxPool", pool_size=2), pool("MaxPool", pool_size=3, strides=2, padding=1),
        pool("MaxPool", pool_size=3, strides=2, ceil_mode=True), pool("AvgPool", pool_size=2),
        pool("AvgPool", pool_size=3, strides=2, padding=1),
        pool("AvgPool", pool_size=3, strides=1, padding=1, count_include_pad=False),
        pool("AvgPool", pool_size=3, strides=2, ceil_mode=True), pool("GlobalMaxPool"), pool("GlobalAvgPool")))


def normalizations() -> Example:
    """Every normalization that is not over the batch."""
    return on_images(2, side_by_side(nn.LayerNorm(), nn.GroupNorm(2), nn.InstanceNorm(),
                                     nn.LayerNorm(axis=1, scale=False), nn.InstanceNorm(center=False)), dtype="float32")


def batch_norms() -> Example:
    """BatchNorm in all its forms."""
    return on_images(2, side_by_side(nn.BatchNorm(), nn.BatchNorm(axis=3, momentum=0.5), nn.BatchNorm(scale=False),
                                     nn.BatchNorm(center=False, epsilon=1e-3),
                                     nn.BatchNorm(use_global_stats=True, running_mean_initializer="ones")))


def activations() -> Example:
    """Every activation, with parameters and without."""
    kinds = [nn.Activation(kind) for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign")]
    return on_vectors(side_by_side(*kinds, nn.LeakyReLU(0.1), nn.PReLU(), nn.PReLU(in_channels=12), nn.ELU(0.7),
                                   nn.SELU(), nn.GELU(), nn.Swish(1.5)))


def lambdas() -> Example:
    """Functions as blocks."""
    return on_vectors(nn.HybridLambda("tanh"), nn.HybridLambda(lambda F, x: F.broadcast_mul(x, F.softmax(x))))


def embeddings() -> Example:
    """Embeddings of tokens of two types."""
    def forward(F, children, first, second):
        return children["scores"](F.concat(children["words"](first), children["others"](second), dim=2))

    net = Calling(forward, words=nn.Embedding(20, 8), others=nn.Embedding(20, 6), scores=nn.Dense(5))
    return Example(net, together(tokens(20, (BATCH, 6)), tokens(20, (BATCH, 6), dtype="int64")))


def pixel_shuffle(dims: int) -> Example:
    """Channels that become pixels."""
    factors = (3, (2, 3), (2, 1, 3))[dims - 1]
    return on_images(dims, getattr(contrib.nn, f"PixelShuffle{dims}D")(factors), image=(4, 6, 2))


def deformable() -> Example:
    """A deformable convolution, whose offsets are those of a drawn weight.

    The modulated one of ``gluon.contrib`` is not here: MXNet computes its gradient on GPUs only.
    """
    return on_images(2, contrib.cnn.DeformableConvolution(
        8, kernel_size=(3, 3), padding=(1, 1), num_deformable_group=2,
        offset_weight_initializer=mx.init.Uniform(0.2)), image=(6, 5))


def loss(function: gluon.loss.Loss, draws: Inputs, trained: int = 1, features: int = 6,
         activation: Optional[str] = None, dtype: Optional[str] = None) -> Example:
    """A loss on what a dense layer makes of the first inputs; the others are handed on as they are.

    Parameters
    ----------
    function : gluon.loss.Loss
        The loss.
    draws : callable
        Draws the inputs.
    trained : int
        How many of the inputs go through the dense layer.
    features : int
        What it makes of each vector.
    activation : str, optional
        Of the dense layer.
    dtype : str, optional
        As of SampleModel.
    """
    def forward(F, children, *inputs):
        made = [children["dense"](x) for x in inputs[:trained]]
        return children["loss"](*made, *inputs[trained:])

    return Example(Calling(forward, dense=nn.Dense(features, flatten=False, activation=activation), loss=function),
                   draws, dtype)


def signs(*shape: int) -> Inputs:
    """Labels of 1 and -1."""
    return lambda rs: [mx.nd.array(rs.choice([-1.0, 1.0], shape))]


def positive(*shape: int) -> Inputs:
    """Numbers between 0.1 and 1."""
    return lambda rs: [mx.nd.array(rs.uniform(0.1, 1, shape))]


def counts(*shape: int) -> Inputs:
    """Small whole numbers above 0, in a floating type."""
    return lambda rs: [mx.nd.array(rs.poisson(3, shape) + 1)]


def probabilities(*shape: int) -> Inputs:
    """Distributions along the last dim."""
    return lambda rs: [mx.nd.array(rs.dirichlet([1.0] * shape[-1], shape[:-1]))]


def ctc_lengths(rs: np.random.RandomState) -> List[mx.nd.NDArray]:
    """Lengths of the predictions (up to 9) and of the labels (up to 3)."""
    return [mx.nd.array(rs.randint(7, 10, BATCH)), mx.nd.array(rs.randint(1, 4, BATCH))]


_X = normal((BATCH, 10))
_LABELS = tokens(6, (BATCH,), dtype="float32")
_SEQUENCES = together(normal((BATCH, 9, 7)), tokens(5, (BATCH, 3), dtype="float32"))

_LOSSES: Examples = {
    "l1": lambda: loss(gluon.loss.L1Loss(), together(_X, normal((BATCH, 6)))),
    "l2": lambda: loss(gluon.loss.L2Loss(weight=0.5), together(_X, normal((BATCH, 6)), positive(BATCH, 1))),
    "sigmoid_bce": lambda: loss(gluon.loss.SigmoidBCELoss(), together(_X, positive(BATCH, 6))),
    "sigmoid_bce_weighted": lambda: loss(gluon.loss.SigmoidBCELoss(), together(
        _X, positive(BATCH, 6), positive(BATCH, 6), positive(1, 6))),
    "softmax_ce": lambda: loss(gluon.loss.SoftmaxCELoss(), together(_X, _LABELS, positive(BATCH, 1))),
    "softmax_ce_dense": lambda: loss(gluon.loss.SoftmaxCELoss(sparse_label=False), together(
        _X, probabilities(BATCH, 6))),
    "softmax_ce_axis": lambda: loss(gluon.loss.SoftmaxCELoss(axis=1), together(
        normal((BATCH, 4, 10)), tokens(4, (BATCH, 6), dtype="float32")), activation="tanh"),
    "kl_div": lambda: loss(gluon.loss.KLDivLoss(from_logits=False), together(_X, probabilities(BATCH, 6))),
    "ctc": lambda: loss(gluon.loss.CTCLoss(), _SEQUENCES, dtype="float32"),
    "ctc_lengths": lambda: loss(gluon.loss.CTCLoss(), together(_SEQUENCES, ctc_lengths), dtype="float32"),
    "ctc_time_first": lambda: loss(gluon.loss.CTCLoss(layout="TNC", label_layout="TN"), together(
        normal((9, BATCH, 7)), tokens(5, (3, BATCH), dtype="float32")), dtype="float32"),
    "huber": lambda: loss(gluon.loss.HuberLoss(rho=0.5), together(_X, normal((BATCH, 6)))),
    "hinge": lambda: loss(gluon.loss.HingeLoss(), together(_X, signs(BATCH, 6))),
    "squared_hinge": lambda: loss(gluon.loss.SquaredHingeLoss(margin=2), together(_X, signs(BATCH, 6))),
    "logistic": lambda: loss(gluon.loss.LogisticLoss(), together(_X, signs(BATCH, 6))),
    "logistic_binary": lambda: loss(gluon.loss.LogisticLoss(label_format="binary"), together(
        _X, tokens(2, (BATCH, 6), dtype="float32"))),
    "triplet": lambda: loss(gluon.loss.TripletLoss(margin=3), normal(*[(BATCH, 10)] * 3), trained=3,
                            activation="tanh"),
    "poisson_nll": lambda: loss(gluon.loss.PoissonNLLLoss(), together(_X, counts(BATCH, 6))),
    "poisson_nll_values": lambda: loss(gluon.loss.PoissonNLLLoss(from_logits=False), together(
        _X, counts(BATCH, 6)), activation="sigmoid"),
    "cosine_embedding": lambda: loss(gluon.loss.CosineEmbeddingLoss(margin=0.1), together(
        normal((BATCH, 10), (BATCH, 10)), signs(BATCH)), trained=2, dtype="float32"),
}

EXAMPLES: Examples = {
    "dense": lambda: on_vectors(nn.Dense(9, activation="relu"), nn.Dense(8, use_bias=False)),
    "dense_not_flattened": lambda: Example(
        sequential(nn.Dense(9, flatten=False, activation="sigmoid"), nn.Dense(5)), normal((BATCH, 3, 10))),
    "dropout": lambda: on_vectors(nn.Dropout(KEEPS_ALL), nn.Dropout(KEEPS_ALL, axes=(0,))),
    **{f"convolutions_{dims}d": lambda dims=dims: convolutions(dims) for dims in (1, 2, 3)},
    **{f"poolings_{dims}d": lambda dims=dims: poolings(dims) for dims in (1, 2, 3)},
    "reflection_pad": lambda: on_images(2, nn.ReflectionPad2D(2)),
    "normalizations": normalizations,
    "batch_norms": batch_norms,
    "batch_norm_relu": lambda: on_images(2, nn.BatchNormReLU(), dtype="float32"),
    "sync_batch_norm": lambda: on_images(2, contrib.nn.SyncBatchNorm(num_devices=1), dtype="float32"),
    "activations": activations,
    "lambdas": lambdas,
    "embeddings": embeddings,
    "concurrent": lambda: on_vectors(side_by_side(nn.Dense(6), contrib.nn.Identity(), nn.Dense(4))),
    **{f"pixel_shuffle_{dims}d": lambda dims=dims: pixel_shuffle(dims) for dims in (1, 2, 3)},
    "deformable_convolution": deformable,
    **{f"loss_{name}": model for name, model in _LOSSES.items()},
}
