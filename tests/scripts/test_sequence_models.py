"""The catalogue of models that are no zoo's: some of each kind train tiled as on one device.

``test_sweep_zoo.py`` trains others of it from day to day.
"""
from __future__ import annotations

import numpy as np
import pytest

from tests.scripts.script_modules import load, load_with_siblings

sweep_zoo = load("sweep_zoo")
sequence_models = load_with_siblings("sequence_models")

# In the order of the modules that they come from; GluonNLP's where it is installed.
CHOSEN = [name for name in ("variational_dropout_cell", "lstm_layer_states_bidirectional", "control_flow",
                            "numpy_convolutional", "gluonnlp_elmo") if name in sequence_models.MODELS]


@pytest.mark.parametrize("name", CHOSEN)
def test_a_model_trains_as_on_one_device(name):
    row, = sweep_zoo.run_model(name, ["cpu:4"], "float64", 300)
    assert sweep_zoo.passes(row) and row["cut"] > row["whole"], row


def test_every_model_can_be_made_twice_and_its_inputs_are_those_of_a_seed():
    for name, find in sequence_models.MODELS.items():
        if name.startswith(("numpy_", "gluonnlp_")):  # the first switch the mode of this process, the others are slow
            continue
        model = find()
        assert list(model.network()._children) == list(model.network()._children), name
        first, second = (model.inputs(np.random.RandomState(3)) for _ in range(2))
        assert first and all((a.asnumpy() == b.asnumpy()).all() for a, b in zip(first, second)), name
