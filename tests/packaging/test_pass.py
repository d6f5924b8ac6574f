"""The graph pass on plain symbols: right results, and its error messages."""
from __future__ import annotations

import mxnet as mx
import pytest

import soybean_mx
from tests.child import run_child


@pytest.mark.parametrize("strategy, devices", [
    ("optimal", 4), ("data", 4), ("model", 4), ("recursive", 4), ("optimal", 1), ("optimal", 3), ("optimal", 8)])
@pytest.mark.parametrize("network", ["convolutional", "two_outputs"])
def test_same_results_as_the_serial_symbol(network, strategy, devices):
    run_child("tests.packaging.pass_cases", [network, strategy, str(devices)])


@pytest.fixture(scope="module")
def symbol():
    mx.library.load(soybean_mx.library_path(), verbose=False)
    return mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc")


def arguments():
    return {"data": mx.nd.ones((8, 6)), "fc_weight": mx.nd.ones((4, 6)), "fc_bias": mx.nd.ones(4)}


@pytest.mark.parametrize("args, options, part", [
    (None, {"devices": 2}, "shape of node 'data' is not known: pass arrays for all arguments"),
    (arguments(), {}, "option devices is missing"),
    (arguments(), {"devices": 0}, "option devices is '0'"),
    (arguments(), {"devices": "many"}, "option devices is 'many'"),
    (arguments(), {"devices": 2, "strategy": "best"}, "'best'"),
    (arguments(), {"devices": 2, "stragety": "data"}, "no option 'stragety'"),
])
def test_messages(symbol, args, options, part):
    with pytest.raises(mx.base.MXNetError) as failure:
        symbol.optimize_for("soybean_mx", args=args, **options)
    message = str(failure.value)
    assert part in message
    assert message.count("soybean_mx: ") == 1  # earlier failures are not repeated


def test_the_symbol_stays_usable_after_a_failure(symbol):
    with pytest.raises(mx.base.MXNetError):
        symbol.optimize_for("soybean_mx", args=arguments(), devices=-1)
    tiled = symbol.optimize_for("soybean_mx", args=arguments(), devices=2)
    assert sorted(tiled.list_arguments()) == ["data", "fc_bias", "fc_weight"]


def test_library_path(monkeypatch, tmp_path):
    assert soybean_mx.library_path().endswith("libsoybean_mx.so")
    monkeypatch.setattr(soybean_mx, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(FileNotFoundError, match="make build"):
        soybean_mx.library_path()
