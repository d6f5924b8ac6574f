"""The networks that ``bench_train.py`` trains, each with random inputs and labels of its kind, by name.

=====================  ================================================================================================
``mlp``, ``mlpN``      perceptrons: 784-512-256-1000, and four layers that are all N wide
``cnn5_SxS_F``         five 3x3 convolutions of F filters on S x S images of F channels; the means of the last one's are
                       the scores. SoyBean's two: ``cnn5_6x6_2048`` and ``cnn5_24x24_512``
``lstm``, ``lstmN``    an embedding, two layers of LSTM cells, 1500 (N) wide, unrolled, and scores of 10,000 words: the
                       large network of "Recurrent Neural Network Regularization" (1409.2329), without dropout
``bert_base``          BERT with 12 layers 768 wide, predicting every word and whether two segments follow each other
``bert_LxU``           the same with L layers, U wide, of U / 64 heads (1 at least), and 1,000 words
others                 image classifiers of ``models.py``: 1000 classes, 3 x 224 x 224 images
=====================  ================================================================================================
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import gluon
from soybean_mx.reproduction.networks import five_convolutions

import language_models
import models

CLASSES = 1000
IMAGE_SIZE = 224
WORDS = 10000
LSTM_UNITS, LSTM_LENGTH = 1500, 35
BERT_WORDS, BERT_LENGTH = 30522, 128

Shape = Tuple[int, ...]


@dataclass(frozen=True)
class Task:
    """A network and what it learns from: the shapes are those of one sample.

    Attributes
    ----------
    network : callable
        Gives a new network, not initialised.
    input_shape : tuple of int
        Of the input.
    labels : tuple of (tuple of int, int)
        For each output of the network: the shape of its labels, and the number of classes.
    words : int, optional
        Inputs are whole numbers below this; None: they are normally distributed.
    """

    network: Callable[[], gluon.HybridBlock]
    input_shape: Shape
    labels: Tuple[Tuple[Shape, int], ...]
    words: Optional[int] = None

    def batch(self, batch_size: int, dtype: str) -> Tuple[mx.nd.NDArray, Sequence[mx.nd.NDArray]]:
        """Random inputs of that many samples, and the labels of each output; on the host.

        Words stay in 32 bits: float16 does not hold them.
        """
        rng = np.random.RandomState(0)
        shape = (batch_size, *self.input_shape)
        if self.words is None:
            inputs = mx.nd.array(rng.standard_normal(shape).astype(dtype), dtype=dtype)
        else:
            inputs = mx.nd.array(rng.randint(0, self.words, shape), dtype="float32")
        kind = dtype if self.words is None else "float32"
        return inputs, [mx.nd.array(rng.randint(0, classes, (batch_size, *sample)), dtype=kind)
                        for sample, classes in self.labels]


def task(name: str, sequence_length: Optional[int] = None) -> Task:
    """The task called `name`.

    Parameters
    ----------
    name : str
        As in this module's table.
    sequence_length : int, optional
        Words in a sample of the language models; default: 35 for LSTM, 128 for BERT.

    Raises
    ------
    ValueError
        For an unknown name, or a length that BERT's position embeddings do not reach.
    """
    perceptron = re.fullmatch(r"mlp([1-9][0-9]*)?", name)
    if perceptron:
        width = int(perceptron.group(1) or 784)
        return Task(lambda: models.create(name, CLASSES), (width,), (((), width if perceptron.group(1) else CLASSES),))
    convolutions = re.fullmatch(r"cnn5_([1-9][0-9]*)x\1_([1-9][0-9]*)", name)
    if convolutions:
        size, filters = (int(number) for number in convolutions.groups())
        return Task(lambda: five_convolutions(filters), (filters, size, size), (((), filters),))
    recurrent = re.fullmatch(r"lstm([1-9][0-9]*)?", name)
    if recurrent:
        units, length = int(recurrent.group(1) or LSTM_UNITS), sequence_length or LSTM_LENGTH
        return Task(lambda: language_models.lstm_language_model(2, units, WORDS, 0.0, length), (length,),
                    (((length,), WORDS),), WORDS)
    attentive = re.fullmatch(r"bert_(?:base|([1-9][0-9]*)x([1-9][0-9]*))", name)
    if attentive:
        return _bert_task(sequence_length or BERT_LENGTH, *(int(number) for number in attentive.groups() if number))
    try:
        models.create(name, CLASSES)
    except ValueError as error:
        raise ValueError(f"{str(error).rstrip('.')}; or cnn5_SxS_F, lstm, lstmN, bert_base, bert_LxU.") from None
    return Task(lambda: models.create(name, CLASSES), (3, IMAGE_SIZE, IMAGE_SIZE), (((), CLASSES),))


def _bert_task(length: int, layers: int = 12, units: int = 768) -> Task:
    words = BERT_WORDS if (layers, units) == (12, 768) else CLASSES
    longest = 512
    if length > longest:
        raise ValueError(f"A sequence length of {length} was asked for, but BERT has positions for {longest}: give 1 "
                         f"to {longest}.")
    return Task(lambda: language_models.bert_base(layers, units, max(1, units // 64), 4 * units, longest, words),
                (length,), (((length,), words), ((), 2)), words)
