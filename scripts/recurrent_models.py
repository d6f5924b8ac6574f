"""Small recurrent models: every cell and fused layer of ``gluon.rnn`` and ``gluon.contrib.rnn``."""
from __future__ import annotations

from typing import Callable, Dict, List, Optional, Sequence

import mxnet as mx
import numpy as np
from mxnet.gluon import contrib, nn, rnn

from sample_blocks import (
    DROPS_ALL,
    KEEPS_ALL,
    Calling,
    Example,
    Examples,
    Inputs,
    normal,
    together,
)

BATCH, LENGTH, FEATURES, UNITS = 8, 5, 6, 8


def unrolled(cell: rnn.HybridRecurrentCell, length: int = LENGTH, sample: Sequence[int] = (FEATURES,),
             layout: str = "NTC", merge: bool = True, inputs: Optional[Inputs] = None,
             states: Sequence[Sequence[int]] = ()) -> Example:
    """A cell that is unrolled; outputs are all steps' and the last states.

    Parameters
    ----------
    cell : HybridRecurrentCell
        The cell.
    length : int
        Number of steps.
    sample : sequence of int
        Shape of one sample's input at one step.
    layout : str
        ``"NTC"`` or ``"TNC"``.
    merge : bool
        Whether the steps' outputs are joined.
    inputs : callable, optional
        Further inputs: the number of steps that count in each sample, if any.
    states : sequence of sequence of int
        Shapes of the states that are given; none: the cell begins with zeros.
    """
    def forward(F, children, x, *rest):
        children["cell"].reset()
        begin = list(rest[:len(states)]) or zeros(F, children["cell"], x, layout)
        valid_length = rest[len(states)] if rest[len(states):] else None
        return children["cell"].unroll(length, x, begin_state=begin, layout=layout, merge_outputs=merge,
                                       valid_length=valid_length)

    shape = (BATCH, length, *sample) if layout == "NTC" else (length, BATCH, *sample)
    draws = normal(shape, *states)
    return Example(Calling(forward, cell=cell), draws if inputs is None else together(draws, inputs))


def zeros(F, cell: rnn.HybridRecurrentCell, x, layout: str) -> list:
    """The states that the cell begins with by itself, but of the type of its parameters: ``unroll`` takes float32."""
    batch = 0 if F is mx.sym else x.shape[layout.find("N")]
    dtype = next((parameter.dtype for parameter in cell.collect_params().values()), "float32")
    return cell.begin_state(batch_size=batch, func=F.zeros, dtype=dtype)


def lengths(rs: np.random.RandomState) -> List[mx.nd.NDArray]:
    """How many of the steps count in each sample."""
    return [mx.nd.array(rs.randint(1, LENGTH + 1, BATCH))]


def stacked() -> Example:
    """Cells one after the other, with dropout between them and a residual connection."""
    cell = rnn.HybridSequentialRNNCell()
    cell.add(rnn.LSTMCell(UNITS, input_size=FEATURES))
    cell.add(rnn.DropoutCell(KEEPS_ALL))
    cell.add(rnn.ResidualCell(rnn.GRUCell(UNITS, input_size=UNITS)))
    return unrolled(cell)


def bidirectional() -> Example:
    """A cell from each end, and another pair on what they return."""
    cell = rnn.HybridSequentialRNNCell()
    cell.add(rnn.BidirectionalCell(rnn.LSTMCell(UNITS, input_size=FEATURES), rnn.LSTMCell(UNITS, input_size=FEATURES)))
    cell.add(rnn.BidirectionalCell(rnn.GRUCell(4, input_size=2 * UNITS), rnn.GRUCell(4, input_size=2 * UNITS)))
    return unrolled(cell)


def zoneout(outputs: float, states: float) -> Example:
    """Elements of the outputs and states that stay what they were."""
    return unrolled(rnn.ZoneoutCell(rnn.RNNCell(UNITS, input_size=FEATURES), outputs, states))


def variational(inputs: float, states: float, outputs: float) -> Example:
    """The same dropout at every step."""
    return unrolled(contrib.rnn.VariationalDropoutCell(rnn.LSTMCell(UNITS, input_size=FEATURES), inputs, states,
                                                       outputs))


def attended() -> Example:
    """A cell that is called step by step on what attention over a memory returns."""
    def forward(F, children, x, memory, hidden):
        keys = children["keys"](memory)
        state, outputs = [hidden], []
        children["cell"].reset()
        for step in range(3):
            query = F.slice_axis(x, axis=1, begin=step, end=step + 1)
            weights = F.softmax(F.batch_dot(query, keys, transpose_b=True))
            context = F.batch_dot(weights, memory).reshape((0, -1))
            out, state = children["cell"](F.concat(query.reshape((0, -1)), context, dim=1), state)
            outputs.append(out.expand_dims(1))
        return children["scores"](F.concat(*outputs, dim=1))

    net = Calling(forward, keys=nn.Dense(FEATURES, in_units=10, flatten=False),
                  cell=rnn.GRUCell(UNITS, input_size=FEATURES + 10),
                  scores=nn.Dense(7, in_units=UNITS, flatten=False))
    return Example(net, normal((BATCH, 3, FEATURES), (BATCH, LENGTH, 10), (BATCH, UNITS)))


def convolutional(name: str, dims: int) -> Example:
    """A cell of ``gluon.contrib.rnn`` whose products are convolutions, over images of 1 to 3 dims."""
    image = (8, 6, 4)[:dims]
    cell = getattr(contrib.rnn, f"Conv{dims}D{name}Cell")((3, *image), 4, 3, 3, i2h_pad=1)
    states = [(BATCH, 4, *image)] * (2 if name == "LSTM" else 1)
    return unrolled(cell, length=3, sample=(3, *image), states=states)


def fused(layer: Callable[..., rnn.rnn_layer._RNNLayer], states: int = 0, **options) -> Example:
    """A layer of ``gluon.rnn``, which is one operator, between dense layers.

    Parameters
    ----------
    layer : callable
        ``rnn.LSTM``, ``rnn.GRU`` or ``rnn.RNN``.
    states : int
        Number of states that are given; 0: the layer begins with zeros.
    **options
        Of the layer. (The numbers of steps that count are for GPUs alone.)
    """
    options = {"num_layers": 1, "layout": "TNC", "bidirectional": False, **options}
    directions = 2 if options["bidirectional"] else 1
    shape = (LENGTH, BATCH, FEATURES) if options["layout"] == "TNC" else (BATCH, LENGTH, FEATURES)
    state = (options["num_layers"] * directions, BATCH, UNITS)

    def forward(F, children, x, *rest):
        x = children["first"](x)
        given = list(rest)
        result = children["layer"](x, given) if given else children["layer"](x)
        if isinstance(result, (list, tuple)):
            return children["last"](result[0]), result[1]
        return children["last"](result)

    net = Calling(forward, first=nn.Dense(10, in_units=FEATURES, flatten=False, activation="tanh"),
                  layer=layer(UNITS, input_size=10, **options),
                  last=nn.Dense(7, in_units=directions * UNITS, flatten=False))
    return Example(net, normal(shape, *[state] * states))


_CELLS: Dict[str, Callable[[], rnn.HybridRecurrentCell]] = {
    "rnn_cell": lambda: rnn.RNNCell(UNITS, input_size=FEATURES),
    "rnn_cell_relu": lambda: rnn.RNNCell(UNITS, activation="relu", input_size=FEATURES),
    "lstm_cell": lambda: rnn.LSTMCell(UNITS, input_size=FEATURES),
    "gru_cell": lambda: rnn.GRUCell(UNITS, input_size=FEATURES),
    "lstmp_cell": lambda: contrib.rnn.LSTMPCell(12, UNITS, input_size=FEATURES),
}

EXAMPLES: Examples = {
    **{name: lambda cell=cell: unrolled(cell()) for name, cell in _CELLS.items()},
    "lstm_cell_35_steps": lambda: unrolled(rnn.LSTMCell(UNITS, input_size=FEATURES), length=35),
    "lstm_cell_time_first": lambda: unrolled(rnn.LSTMCell(UNITS, input_size=FEATURES), layout="TNC"),
    "gru_cell_outputs_apart": lambda: unrolled(rnn.GRUCell(UNITS, input_size=FEATURES), merge=False),
    "lstm_cell_lengths": lambda: unrolled(rnn.LSTMCell(UNITS, input_size=FEATURES), inputs=lengths),
    "stacked_cells": stacked,
    "bidirectional_cells": bidirectional,
    "residual_cell": lambda: unrolled(rnn.ResidualCell(rnn.RNNCell(UNITS, input_size=UNITS)), sample=(UNITS,)),
    "zoneout_cell_new": lambda: zoneout(KEEPS_ALL, KEEPS_ALL),
    "zoneout_cell_old": lambda: zoneout(DROPS_ALL, 0.0),
    "variational_dropout_cell": lambda: variational(KEEPS_ALL, KEEPS_ALL, KEEPS_ALL),
    "variational_dropout_cell_sequence": lambda: variational(KEEPS_ALL, 0.0, KEEPS_ALL),
    "attended_gru_cell": attended,
    **{f"conv{dims}d_{name.lower()}_cell": lambda name=name, dims=dims: convolutional(name, dims)
       for dims in (1, 2, 3) for name in ("RNN", "LSTM", "GRU")},
    "rnn_layer": lambda: fused(rnn.RNN),
    "rnn_layer_tanh": lambda: fused(rnn.RNN, activation="tanh", layout="NTC"),
    "lstm_layer": lambda: fused(rnn.LSTM),
    "gru_layer": lambda: fused(rnn.GRU),
    "lstm_layers": lambda: fused(rnn.LSTM, num_layers=3),
    "lstm_layers_dropout": lambda: fused(rnn.LSTM, num_layers=2, dropout=KEEPS_ALL),
    "lstm_layer_batch_first": lambda: fused(rnn.LSTM, layout="NTC", num_layers=2),
    "gru_layer_batch_first": lambda: fused(rnn.GRU, layout="NTC", bidirectional=True),
    "lstm_layer_bidirectional": lambda: fused(rnn.LSTM, num_layers=2, bidirectional=True),
    "lstm_layer_states": lambda: fused(rnn.LSTM, states=2),
    "lstm_layer_states_bidirectional": lambda: fused(rnn.LSTM, states=2, num_layers=2, bidirectional=True,
                                                     layout="NTC"),
    "gru_layer_states": lambda: fused(rnn.GRU, states=1, num_layers=2),
    "rnn_layer_states": lambda: fused(rnn.RNN, states=1),
}
