"""The networks on which the planner is proved."""
from __future__ import annotations

import sys
from typing import Dict

from soybean_mx.model_loading import load
from tests.child import ROOT

NETWORKS = ("alexnet", "vgg16", "resnet50_v1", "inceptionv3", "densenet121", "bert_base")


def graph_of_network(name: str) -> Dict:
    """Return the graph of a network: a batch of 256, or 32 sequences of 128 tokens."""
    if name != "bert_base":
        return load(name, batch_size=256).graph
    scripts = str(ROOT / "scripts")
    if scripts not in sys.path:
        sys.path.append(scripts)
    return load("language_models:bert_base", input_shapes=[(32, 128)]).graph
