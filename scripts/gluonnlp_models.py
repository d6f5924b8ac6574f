"""GluonNLP's models, small: no weights are downloaded. There are none where GluonNLP is not installed.

Its package has no GPT-2 and no XLNet: these are scripts of its repository.
"""
from __future__ import annotations

import importlib.util
from typing import List

import mxnet as mx
import numpy as np
from mxnet.gluon import nn

from sample_blocks import KEEPS_ALL, Calling, Example, Examples, normal, together, tokens

BATCH, LENGTH, VOCABULARY, UNITS, HEADS = 8, 6, 40, 16, 4
CHARACTERS = 10  # of a token


def lengths(rs: np.random.RandomState) -> List[mx.nd.NDArray]:
    """How many tokens of each sample count."""
    return [mx.nd.array(rs.randint(2, LENGTH + 1, BATCH))]


def _encoder(layers: int):
    from gluonnlp.model import BERTEncoder

    return BERTEncoder(num_layers=layers, units=UNITS, hidden_size=2 * UNITS, num_heads=HEADS, max_length=LENGTH,
                       output_attention=False, output_all_encodings=False)


def _called(net) -> Calling:
    """A block around one that takes other arguments than its ``hybrid_forward``."""
    return Calling(lambda F, children, *inputs: children["net"](*inputs), net=net)


# The type of the interleaved operators of attention.
_INTERLEAVED = "float32"
_WORDS = tokens(VOCABULARY, (BATCH, LENGTH))
_SEGMENTS = tokens(2, (BATCH, LENGTH))
_MASKED = tokens(2, (BATCH, 2))


def bert() -> Example:
    """BERT with all its heads."""
    from gluonnlp.model import BERTModel

    net = BERTModel(_encoder(2), vocab_size=VOCABULARY, token_type_vocab_size=2, units=UNITS, embed_size=UNITS)
    return Example(net, together(_WORDS, _SEGMENTS, lengths, _MASKED), _INTERLEAVED)


def bert_classifier() -> Example:
    """BERT that is tuned for a classification."""
    from gluonnlp.model import BERTClassifier, BERTModel

    net = BERTModel(_encoder(2), vocab_size=VOCABULARY, token_type_vocab_size=2, units=UNITS, embed_size=UNITS,
                    use_classifier=False, use_decoder=False)
    return Example(BERTClassifier(net, num_classes=3), together(_WORDS, _SEGMENTS, lengths),
                   _INTERLEAVED)


def roberta() -> Example:
    """RoBERTa."""
    from gluonnlp.model import RoBERTaModel

    net = RoBERTaModel(_encoder(2), vocab_size=VOCABULARY, units=UNITS, embed_size=UNITS)
    return Example(_called(net), together(_WORDS, lengths, _MASKED), _INTERLEAVED)


def distilbert() -> Example:
    """DistilBERT."""
    from gluonnlp.model import DistilBERTModel

    net = DistilBERTModel(_encoder(1), vocab_size=VOCABULARY, units=UNITS, embed_size=UNITS)
    return Example(_called(net), together(_WORDS, lengths), _INTERLEAVED)


def transformer() -> Example:
    """The Transformer for translation, whose embeddings and scores share one weight."""
    import gluonnlp
    from gluonnlp.model.transformer import get_transformer_encoder_decoder
    from gluonnlp.model.translation import NMTModel

    encoder, decoder, one_step = get_transformer_encoder_decoder(
        num_layers=2, num_heads=HEADS, units=UNITS, hidden_size=2 * UNITS, max_src_length=LENGTH,
        max_tgt_length=LENGTH)
    vocabulary = gluonnlp.Vocab(gluonnlp.data.count_tokens([str(number) for number in range(VOCABULARY - 4)]))
    net = NMTModel(src_vocab=vocabulary, tgt_vocab=vocabulary, encoder=encoder, decoder=decoder,
                   one_step_ahead_decoder=one_step, embed_size=UNITS, tie_weights=True, share_embed=True)
    return Example(net, together(tokens(VOCABULARY, (BATCH, LENGTH), (BATCH, LENGTH - 1)), lengths,
                                 lambda rs: [mx.nd.array(rs.randint(2, LENGTH, BATCH))]))


def standard_rnn(mode: str) -> Example:
    """A language model of fused layers."""
    from gluonnlp.model.train import StandardRNN

    net = StandardRNN(mode, VOCABULARY, embed_size=UNITS, hidden_size=UNITS, num_layers=2, dropout=KEEPS_ALL,
                      tie_weights=True)
    return Example(net, tokens(VOCABULARY, (LENGTH, BATCH)))


def awd_rnn(drop: float) -> Example:
    """The language model of "Regularizing and Optimizing LSTM Language Models", whose weights are dropped out."""
    from gluonnlp.model.train import AWDRNN

    net = AWDRNN("lstm", VOCABULARY, embed_size=UNITS, hidden_size=UNITS + 4, num_layers=3, tie_weights=True,
                 dropout=drop, weight_drop=drop, drop_h=drop, drop_i=drop, drop_e=drop)
    return Example(net, tokens(VOCABULARY, (LENGTH, BATCH)))


def elmo() -> Example:
    """ELMo: convolutions over the characters, and loops over time from both ends.

    Without a mask, with which it cannot be hybridized.
    """
    from gluonnlp.model import ELMoBiLM

    layers, hidden, projected = 2, 12, 8

    def forward(F, children, characters, *states):
        pairs = [list(states[index:index + 2]) for index in range(0, len(states), 2)]
        return children["elmo"](characters, [pairs[:layers], pairs[layers:]])

    net = Calling(forward, elmo=ELMoBiLM(
        rnn_type="lstmpc", output_size=projected, filters=[[1, 4], [2, 6], [3, 6]], char_embed_size=6,
        char_vocab_size=30, num_highway=1, conv_layer_activation="relu", max_chars_per_token=CHARACTERS,
        input_size=projected, hidden_size=hidden, proj_size=projected, num_layers=layers, cell_clip=3.0,
        proj_clip=3.0))
    states = [(BATCH, projected), (BATCH, hidden)] * (2 * layers)
    return Example(net, together(tokens(30, (BATCH, LENGTH, CHARACTERS)), normal(*states)))


def attention(kind: str) -> Example:
    """An attention cell between two dense layers."""
    from gluonnlp.model.attention_cell import DotProductAttentionCell, MLPAttentionCell, MultiHeadAttentionCell

    cell = {"mlp": lambda: MLPAttentionCell(UNITS, normalized=True),
            "dot_product": lambda: DotProductAttentionCell(units=UNITS, scaled=True),
            "multi_head": lambda: MultiHeadAttentionCell(DotProductAttentionCell(), UNITS, UNITS, UNITS, HEADS)}[kind]()

    def forward(F, children, query, memory):
        context, weights = children["cell"](children["query"](query), memory)
        return children["scores"](context), weights

    net = Calling(forward, query=nn.Dense(UNITS, flatten=False), cell=cell, scores=nn.Dense(5, flatten=False))
    return Example(net, normal((BATCH, 3, 10), (BATCH, LENGTH, UNITS)))


def convolutional_encoder() -> Example:
    """Convolutions of several widths over a sequence, and layers that let part of it pass."""
    from gluonnlp.model import ConvolutionalEncoder

    net = ConvolutionalEncoder(embed_size=UNITS, num_filters=(4, 6), ngram_filter_sizes=(1, 3), num_highway=2,
                               output_size=8)
    return Example(net, normal((LENGTH, BATCH, UNITS)))


EXAMPLES: Examples = {} if importlib.util.find_spec("gluonnlp") is None else {
    "gluonnlp_bert": bert,
    "gluonnlp_bert_classifier": bert_classifier,
    "gluonnlp_roberta": roberta,
    "gluonnlp_distilbert": distilbert,
    "gluonnlp_transformer": transformer,
    "gluonnlp_standard_lstm": lambda: standard_rnn("lstm"),
    "gluonnlp_standard_gru": lambda: standard_rnn("gru"),
    "gluonnlp_awd_lstm": lambda: awd_rnn(0.0),
    "gluonnlp_awd_lstm_dropped": lambda: awd_rnn(KEEPS_ALL),
    "gluonnlp_elmo": elmo,
    **{f"gluonnlp_{kind}_attention": lambda kind=kind: attention(kind)
       for kind in ("mlp", "dot_product", "multi_head")},
    "gluonnlp_convolutional_encoder": convolutional_encoder,
}
