"""The worked example of docs/search.md: two layers on two devices, planned at three batch sizes."""
from __future__ import annotations

from mxnet.gluon import nn
from rich.console import Console
from rich.table import Table
from soybean_mx import core, model_loading


class TwoLayers(nn.HybridBlock):
    """Two fully connected layers of width 4 without bias."""

    def __init__(self) -> None:
        super().__init__(prefix="net_")
        with self.name_scope():
            self.first = nn.Dense(4, use_bias=False, in_units=4, prefix="first_")
            self.second = nn.Dense(4, use_bias=False, in_units=4, prefix="second_")

    def hybrid_forward(self, F, x):
        """Return the second layer of the first; x has shape (batch, 4)."""
        return self.second(self.first(x))


def main() -> None:
    """Print how each layer is cut, and the bytes moved."""
    table = Table("batch", "first layer", "second layer", "bytes moved")
    for batch in (4, 8, 16):
        loaded = model_loading.load(f"{__name__}:TwoLayers", input_shapes=[(batch, 4)])
        plan = core.plan(loaded.graph, {"devices": 2})
        cuts = plan["operators"]
        table.add_row(str(batch), *cuts["net_first_fwd"], *cuts["net_second_fwd"], str(plan["bytes"]["total"]))
    Console().print(table)


if __name__ == "__main__":
    main()
