"""An LSTM that is unrolled over 32 positions, 512 wide, for ``soybean-mx bench unrolled_lstm:unrolled_lstm``."""
from __future__ import annotations

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn, rnn

POSITIONS, WIDTH, CLASSES = 32, 512, 10


class UnrolledLstm(gluon.HybridBlock):
    """Samples (batch, POSITIONS, WIDTH) to classes (batch, CLASSES), by the last position's state."""

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.cell = rnn.LSTMCell(WIDTH, input_size=WIDTH)
            self.classes = nn.Dense(CLASSES, in_units=WIDTH)

    def hybrid_forward(self, F, x: mx.nd.NDArray) -> mx.nd.NDArray:
        """Logits."""
        outputs, _ = self.cell.unroll(POSITIONS, x, layout="NTC", merge_outputs=False)
        return self.classes(outputs[-1])


def unrolled_lstm() -> gluon.HybridBlock:
    """The network, not initialized."""
    return UnrolledLstm()
