"""Language models in Gluon: BERT, GPT-2, the Transformer, and LSTM networks, as one device would run them.

Every function returns an uninitialised, hybridizable block. Depths, widths, lengths and vocabularies are parameters, so
that a small network of the same structure can be had. Tokens are whole numbers in any type, ``(batch, length)``.

The three ways in which attention is written in MXNet are all here: BERT merges samples and heads into one dim for
``batch_dot``, GPT-2 multiplies tensors of four dims with ``linalg.gemm2``, and the Transformer uses the interleaved
operators, which take queries, keys and values side by side for each head, the length first.
"""
from __future__ import annotations

from typing import Optional

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn

MASKED = 1e4  # what is taken off the score of a masked position; float16 holds it


def hidden_positions(F, scores, visible):
    """Take MASKED off the `scores` where `visible`, which is broadcast to them, is 0."""
    return F.broadcast_add(scores, (visible - 1) * MASKED)


def causal_mask(F, scores):
    """Which keys each query may see: ``(length, length)``, 1 up to the diagonal; `scores` are (..., length, length)."""
    position = F.contrib.arange_like(scores, axis=-1)
    return F.broadcast_greater_equal(position.expand_dims(1), position.expand_dims(0))


class PositionwiseNetwork(nn.HybridBlock):
    """Two dense layers with an activation between them, at every position alike."""

    def __init__(self, units: int, hidden: int, activation: str, dropout: float, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.up = nn.Dense(hidden, in_units=units, flatten=False)
            self.activation = nn.GELU() if activation == "gelu" else nn.Activation(activation)
            self.down = nn.Dense(units, in_units=hidden, flatten=False)
            self.dropout = nn.Dropout(dropout)

    def hybrid_forward(self, F, x):
        """``(..., units)`` from `x` of the same shape."""
        return self.dropout(self.down(self.activation(self.up(x))))


class Positions(nn.HybridBlock):
    """Learned embeddings of the positions 0, 1, ... of a sequence, added to it."""

    def __init__(self, max_length: int, units: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embedding = nn.Embedding(max_length, units)

    def hybrid_forward(self, F, x):
        """`x`, ``(batch, length, units)``, with the embedding of each position added."""
        position = F.contrib.arange_like(x, axis=1)
        return F.broadcast_add(x, self.embedding(position).expand_dims(0))


class MergedHeadsAttention(nn.HybridBlock):
    """Self-attention of several heads; samples and heads are one dim for ``batch_dot``."""

    def __init__(self, units: int, heads: int, dropout: float, **kwargs):
        super().__init__(**kwargs)
        self._heads = heads
        with self.name_scope():
            self.query = nn.Dense(units, in_units=units, flatten=False)
            self.key = nn.Dense(units, in_units=units, flatten=False)
            self.value = nn.Dense(units, in_units=units, flatten=False)
            self.out = nn.Dense(units, in_units=units, flatten=False)
            self.dropout = nn.Dropout(dropout)

    def _merged(self, F, x):
        """``(batch, length, units)`` as ``(batch * heads, length, units / heads)``."""
        split = F.reshape(x, shape=(0, 0, self._heads, -1))
        return F.reshape(F.transpose(split, axes=(0, 2, 1, 3)), shape=(-1, 0, 0), reverse=True)

    def hybrid_forward(self, F, x, visible=None):
        """``(batch, length, units)`` from `x` of that shape; `visible`, ``(batch, length)``, is 0 for masked keys."""
        query, key, value = (self._merged(F, layer(x)) for layer in (self.query, self.key, self.value))
        scores = F.batch_dot(F.contrib.div_sqrt_dim(query), key, transpose_b=True)
        if visible is not None:
            repeated = F.broadcast_axis(visible.expand_dims(1), axis=1, size=self._heads)
            scores = hidden_positions(F, scores, F.reshape(repeated, shape=(-1, 0), reverse=True).expand_dims(1))
        context = F.batch_dot(self.dropout(F.softmax(scores, axis=-1)), value)
        split = F.reshape(context, shape=(-1, self._heads, 0, 0), reverse=True)
        return self.out(F.reshape(F.transpose(split, axes=(0, 2, 1, 3)), shape=(0, 0, -1)))


class EncoderLayer(nn.HybridBlock):
    """A layer of BERT: attention and a position-wise network, each added to its input and then normalised."""

    def __init__(self, units: int, hidden: int, heads: int, dropout: float, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.attention = MergedHeadsAttention(units, heads, dropout)
            self.dropout = nn.Dropout(dropout)
            self.attention_norm = nn.LayerNorm(in_channels=units, epsilon=1e-12)
            self.network = PositionwiseNetwork(units, hidden, "gelu", dropout)
            self.network_norm = nn.LayerNorm(in_channels=units, epsilon=1e-12)

    def hybrid_forward(self, F, x, visible=None):
        """``(batch, length, units)`` from `x` of that shape; `visible` as in MergedHeadsAttention."""
        attended = self.attention(x) if visible is None else self.attention(x, visible)
        x = self.attention_norm(x + self.dropout(attended))
        return self.network_norm(x + self.network(x))


class BERT(nn.HybridBlock):
    """The encoder of "BERT: Pre-training of Deep Bidirectional Transformers" (1810.04805) with both its heads.

    Parameters
    ----------
    layers, units, heads, hidden : int
        Number of layers, width of the residual stream, attention heads, width inside of the position-wise networks.
    max_length : int
        Longest sequence.
    vocabulary : int
        Number of different tokens.
    dropout : float
        Share of what is dropped in training.

    Notes
    -----
    Input: tokens ``(batch, length)``; optionally the segment of each token, 0 or 1, in the same shape, and the number
    of tokens that count, ``(batch,)`` in the network's type. Outputs: scores of the vocabulary for every position
    ``(batch, length, vocabulary)``, and of whether two segments follow each other ``(batch, 2)``. The scores are made
    with the weight of the embedding.
    """

    def __init__(self, layers: int, units: int, heads: int, hidden: int, max_length: int = 512, vocabulary: int = 30522,
                 dropout: float = 0.1, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.words = nn.Embedding(vocabulary, units, prefix="words_")
            self.segments = nn.Embedding(2, units, prefix="segments_")
            self.positions = Positions(max_length, units)
            self.norm = nn.LayerNorm(in_channels=units, epsilon=1e-12)
            self.dropout = nn.Dropout(dropout)
            self.layers = nn.HybridSequential()
            for _ in range(layers):
                self.layers.add(EncoderLayer(units, hidden, heads, dropout))
            self.pooler = nn.Dense(units, in_units=units, activation="tanh")
            self.next_sentence = nn.Dense(2, in_units=units)
            self.transform = nn.Dense(units, in_units=units, flatten=False)
            self.activation = nn.GELU()
            self.transform_norm = nn.LayerNorm(in_channels=units, epsilon=1e-12)
            self.scores = nn.Dense(vocabulary, in_units=units, flatten=False, params=self.words.params)

    def hybrid_forward(self, F, tokens, segments=None, valid_length=None):
        """Scores of the vocabulary and of the next sentence."""
        segments = F.zeros_like(tokens) if segments is None else segments
        x = self.positions(self.words(tokens) + self.segments(segments))
        x = self.dropout(self.norm(x))
        visible = None
        if valid_length is not None:
            position = F.contrib.arange_like(x, axis=1)
            visible = F.broadcast_lesser(position.expand_dims(0), valid_length.expand_dims(1))
        for layer in self.layers:
            x = layer(x) if visible is None else layer(x, visible)
        first = F.slice_axis(x, axis=1, begin=0, end=1)
        next_sentence = self.next_sentence(self.pooler(first))
        return self.scores(self.transform_norm(self.activation(self.transform(x)))), next_sentence


def bert_base(layers: int = 12, units: int = 768, heads: int = 12, hidden: int = 3072, max_length: int = 512,
              vocabulary: int = 30522, dropout: float = 0.1) -> BERT:
    """BERT with 110 million parameters."""
    return BERT(layers, units, heads, hidden, max_length, vocabulary, dropout)


def bert_large(layers: int = 24, units: int = 1024, heads: int = 16, hidden: int = 4096, max_length: int = 512,
               vocabulary: int = 30522, dropout: float = 0.1) -> BERT:
    """BERT with 340 million parameters."""
    return BERT(layers, units, heads, hidden, max_length, vocabulary, dropout)


class CausalAttention(nn.HybridBlock):
    """Self-attention in which no position sees a later one; tensors have a dim for the heads.

    The projection holds the query, the key and the value of one head side by side, then those of the next.
    """

    def __init__(self, units: int, heads: int, dropout: float, **kwargs):
        super().__init__(**kwargs)
        self._heads, self._scale = heads, (units // heads) ** -0.5
        with self.name_scope():
            self.projection = nn.Dense(3 * units, in_units=units, flatten=False)
            self.out = nn.Dense(units, in_units=units, flatten=False)
            self.dropout = nn.Dropout(dropout)

    def hybrid_forward(self, F, x):
        """``(batch, length, units)`` from `x` of that shape."""
        split = F.reshape(self.projection(x), shape=(0, 0, self._heads, 3, -1))
        parts = F.split(split, num_outputs=3, axis=3, squeeze_axis=True)
        query, key, value = (F.transpose(part, axes=(0, 2, 1, 3)) for part in parts)
        scores = F.linalg.gemm2(query, key, transpose_b=True, alpha=self._scale)
        scores = hidden_positions(F, scores, causal_mask(F, scores).expand_dims(0).expand_dims(0))
        context = F.linalg.gemm2(self.dropout(F.softmax(scores, axis=-1)), value)
        return self.out(F.reshape(F.transpose(context, axes=(0, 2, 1, 3)), shape=(0, 0, -1)))


class DecoderBlock(nn.HybridBlock):
    """A layer of GPT-2: what is normalised goes through attention, then a network, and is added each time."""

    def __init__(self, units: int, heads: int, dropout: float, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.attention_norm = nn.LayerNorm(in_channels=units)
            self.attention = CausalAttention(units, heads, dropout)
            self.dropout = nn.Dropout(dropout)
            self.network_norm = nn.LayerNorm(in_channels=units)
            self.network = PositionwiseNetwork(units, 4 * units, "gelu", dropout)

    def hybrid_forward(self, F, x):
        """``(batch, length, units)`` from `x` of that shape."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.network(self.network_norm(x))


class GPT2(nn.HybridBlock):
    """The decoder of "Language Models are Unsupervised Multitask Learners" (Radford et al., 2019).

    Parameters
    ----------
    layers, units, heads, max_length, vocabulary, dropout
        As in BERT.

    Notes
    -----
    Input: tokens ``(batch, length)``. Output: scores of the token after each, ``(batch, length, vocabulary)``, made
    with the weight of the embedding.
    """

    def __init__(self, layers: int, units: int, heads: int, max_length: int, vocabulary: int, dropout: float, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.words = nn.Embedding(vocabulary, units, prefix="words_")
            self.positions = Positions(max_length, units)
            self.dropout = nn.Dropout(dropout)
            self.layers = nn.HybridSequential()
            for _ in range(layers):
                self.layers.add(DecoderBlock(units, heads, dropout))
            self.norm = nn.LayerNorm(in_channels=units)
            self.scores = nn.Dense(vocabulary, in_units=units, flatten=False, use_bias=False, params=self.words.params)

    def hybrid_forward(self, F, tokens):
        """Scores of the vocabulary."""
        x = self.dropout(self.positions(self.words(tokens)))
        return self.scores(self.norm(self.layers(x)))


def gpt2_small(layers: int = 12, units: int = 768, heads: int = 12, max_length: int = 1024, vocabulary: int = 50257,
               dropout: float = 0.1) -> GPT2:
    """GPT-2 with 124 million parameters."""
    return GPT2(layers, units, heads, max_length, vocabulary, dropout)


def sinusoids(max_length: int, units: int) -> np.ndarray:
    """The fixed position embeddings of the Transformer, ``(max_length, units)``: sines, then cosines."""
    rates = 10000.0 ** -(np.arange(units // 2) / (units / 2))
    angles = np.arange(max_length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


class InterleavedSelfAttention(nn.HybridBlock):
    """Self-attention with MXNet's interleaved operators, the length first."""

    def __init__(self, units: int, heads: int, dropout: float, causal: bool, **kwargs):
        super().__init__(**kwargs)
        self._heads, self._causal = heads, causal
        with self.name_scope():
            self.projection = nn.Dense(3 * units, in_units=units, flatten=False)
            self.out = nn.Dense(units, in_units=units, flatten=False)
            self.dropout = nn.Dropout(dropout)

    def hybrid_forward(self, F, x):
        """``(length, batch, units)`` from `x` of that shape."""
        projected = self.projection(x)
        scores = F.contrib.interleaved_matmul_selfatt_qk(projected, heads=self._heads)
        if self._causal:
            scores = hidden_positions(F, scores, causal_mask(F, scores).expand_dims(0))
        weights = self.dropout(F.softmax(scores, axis=-1))
        return self.out(F.contrib.interleaved_matmul_selfatt_valatt(projected, weights, heads=self._heads))


class InterleavedCrossAttention(nn.HybridBlock):
    """Attention from one sequence to another with MXNet's interleaved operators, the lengths first."""

    def __init__(self, units: int, heads: int, dropout: float, **kwargs):
        super().__init__(**kwargs)
        self._heads = heads
        with self.name_scope():
            self.query = nn.Dense(units, in_units=units, flatten=False)
            self.keys_values = nn.Dense(2 * units, in_units=units, flatten=False)
            self.out = nn.Dense(units, in_units=units, flatten=False)
            self.dropout = nn.Dropout(dropout)

    def hybrid_forward(self, F, x, memory):
        """``(length, batch, units)`` from `x` of that shape and the `memory` ``(source length, batch, units)``."""
        keys_values = self.keys_values(memory)
        scores = F.contrib.interleaved_matmul_encdec_qk(self.query(x), keys_values, heads=self._heads)
        weights = self.dropout(F.softmax(scores, axis=-1))
        return self.out(F.contrib.interleaved_matmul_encdec_valatt(keys_values, weights, heads=self._heads))


class TransformerLayer(nn.HybridBlock):
    """A layer of the Transformer's encoder, or with `cross`, of its decoder."""

    def __init__(self, units: int, hidden: int, heads: int, dropout: float, cross: bool, **kwargs):
        super().__init__(**kwargs)
        self._cross = cross
        with self.name_scope():
            self.attention = InterleavedSelfAttention(units, heads, dropout, causal=cross)
            self.attention_norm = nn.LayerNorm(in_channels=units)
            if cross:
                self.cross_attention = InterleavedCrossAttention(units, heads, dropout)
                self.cross_norm = nn.LayerNorm(in_channels=units)
            self.network = PositionwiseNetwork(units, hidden, "relu", dropout)
            self.network_norm = nn.LayerNorm(in_channels=units)
            self.dropout = nn.Dropout(dropout)

    def hybrid_forward(self, F, x, memory=None):
        """``(length, batch, units)`` from `x` of that shape and, in a decoder, the encoder's output."""
        x = self.attention_norm(x + self.dropout(self.attention(x)))
        if self._cross:
            x = self.cross_norm(x + self.dropout(self.cross_attention(x, memory)))
        return self.network_norm(x + self.network(x))


class Transformer(nn.HybridBlock):
    """The encoder and decoder of "Attention Is All You Need" (1706.03762).

    Parameters
    ----------
    encoder_layers, decoder_layers : int
        Numbers of layers.
    units, heads, hidden, max_length, vocabulary, dropout
        As in BERT.

    Notes
    -----
    Inputs: source tokens ``(batch, source length)`` and target tokens ``(batch, length)``. Output: scores of the token
    after each of the target, ``(batch, length, vocabulary)``. One weight serves both embeddings and the scores.
    """

    def __init__(self, encoder_layers: int, decoder_layers: int, units: int, heads: int, hidden: int, max_length: int,
                 vocabulary: int, dropout: float, **kwargs):
        super().__init__(**kwargs)
        self._units, self._max_length = units, max_length
        with self.name_scope():
            self.words = nn.Embedding(vocabulary, units, prefix="words_")
            self.sinusoids = self.params.get_constant("sinusoids", sinusoids(max_length, units))
            self.dropout = nn.Dropout(dropout)
            self.encoder = nn.HybridSequential()
            for _ in range(encoder_layers):
                self.encoder.add(TransformerLayer(units, hidden, heads, dropout, cross=False))
            self.decoder = nn.HybridSequential()
            for _ in range(decoder_layers):
                self.decoder.add(TransformerLayer(units, hidden, heads, dropout, cross=True))
            self.scores = nn.Dense(vocabulary, in_units=units, flatten=False, use_bias=False, params=self.words.params)

    def _embedded(self, F, tokens, table):
        """``(length, batch, units)`` of `tokens`."""
        x = self.words(tokens) * self._units ** 0.5
        position = F.contrib.arange_like(x, axis=1)
        x = F.broadcast_add(x, F.take(table, position).expand_dims(0))
        return F.transpose(self.dropout(x), axes=(1, 0, 2))

    def hybrid_forward(self, F, source, target, sinusoids):
        """Scores of the vocabulary."""
        memory = self.encoder(self._embedded(F, source, sinusoids))
        x = self._embedded(F, target, sinusoids)
        for layer in self.decoder:
            x = layer(x, memory)
        return self.scores(F.transpose(x, axes=(1, 0, 2)))


def transformer_encoder_decoder(encoder_layers: int = 6, decoder_layers: int = 6, units: int = 512, heads: int = 8,
                                hidden: int = 2048, max_length: int = 512, vocabulary: int = 37000,
                                dropout: float = 0.1) -> Transformer:
    """The base model of the Transformer, with 63 million parameters."""
    return Transformer(encoder_layers, decoder_layers, units, heads, hidden, max_length, vocabulary, dropout)


class LSTMLanguageModel(nn.HybridBlock):
    """An embedding, layers of LSTM and a dense layer, as in "Recurrent Neural Network Regularization" (1409.2329).

    Parameters
    ----------
    layers, units : int
        Number and width of the layers, and width of the embedding.
    vocabulary : int
        Number of different tokens.
    dropout : float
        Share of what is dropped in training, before, between and behind the layers.
    length : int, optional
        Number of steps for which ``gluon.rnn.LSTMCell`` is unrolled; None for the fused ``gluon.rnn.LSTM``, which takes
        any length.

    Notes
    -----
    Input: tokens ``(batch, length)``. Output: scores of the token after each, ``(batch, length, vocabulary)``.
    """

    def __init__(self, layers: int, units: int, vocabulary: int, dropout: float, length: Optional[int], **kwargs):
        super().__init__(**kwargs)
        self._length = length
        with self.name_scope():
            self.words = nn.Embedding(vocabulary, units)
            self.dropout = nn.Dropout(dropout)
            self.layers = nn.HybridSequential()
            for _ in range(layers):
                self.layers.add(gluon.rnn.LSTMCell(units, input_size=units) if length is not None else
                                gluon.rnn.LSTM(units, layout="NTC", input_size=units))
            self.scores = nn.Dense(vocabulary, in_units=units, flatten=False)

    def hybrid_forward(self, F, tokens):
        """Scores of the vocabulary."""
        x = self.dropout(self.words(tokens))
        for layer in self.layers:
            if self._length is not None:
                x, _ = layer.unroll(self._length, x, layout="NTC", merge_outputs=True)
            else:
                x = layer(x)
            x = self.dropout(x)
        return self.scores(x)


def lstm_language_model(layers: int = 2, units: int = 650, vocabulary: int = 10000, dropout: float = 0.5,
                        length: int = 35) -> LSTMLanguageModel:
    """The medium network of 1409.2329, unrolled for `length` steps."""
    return LSTMLanguageModel(layers, units, vocabulary, dropout, length)


def fused_lstm_language_model(layers: int = 2, units: int = 650, vocabulary: int = 10000, dropout: float = 0.5
                              ) -> LSTMLanguageModel:
    """The medium network of 1409.2329 with MXNet's fused operator."""
    return LSTMLanguageModel(layers, units, vocabulary, dropout, None)


def parameter_count(net: mx.gluon.Block) -> int:
    """Number of trained elements of a block with known shapes."""
    return sum(int(np.prod(p.shape)) for p in net.collect_params().values() if p.grad_req != "null")
