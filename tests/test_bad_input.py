"""Whatever a command is given that it cannot use, it says so in one line, ends with status 2 and writes nothing."""
from __future__ import annotations

import json
import sys

import pytest

from soybean_mx import cli

NETWORKS = '''
from mxnet import gluon

def broken():
    raise RuntimeError("first line\\nsecond line")

def number():
    return 3

class Untraceable(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x.no_such_operator()

def narrow():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(4, in_units=3))
    return net
'''
PROFILE = """node1 -- Input0 -- forward_compute_time=0, backward_compute_time=0, activation_size=0, parameter_size=0
node2 -- layer -- forward_compute_time=1, backward_compute_time=1, activation_size=2, parameter_size=3
\tnode1 -- node9
"""
TOPOLOGY = {"name": "odd", "device": {"flops": 1e12, "memory": 1e9, "memory_bandwidth": 1e9},
            "levels": [{"name": "links", "groups": 2, "bandwidth": -5, "latency": 0}]}
ON_TWO = {"plan": "--devices 2", "explain": "layer --devices 2", "simulate": "--devices 2", "bench": "--devices cpu:2",
          "profile": ""}
NETWORK = "bad_networks:narrow --input-shape 8,3"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "bad_networks.py").write_text(NETWORKS)
    (tmp_path / "bad-symbol.json").write_text('{"nodes": 3}')
    (tmp_path / "bad.graph.txt").write_text(PROFILE)
    (tmp_path / "bad.json").write_text(json.dumps(TOPOLOGY))
    (tmp_path / "text.json").write_text("no JSON")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def refused(capsys, folder, command):
    """The one line of a command that cannot do what it is asked to."""
    before = sorted(folder.rglob("*"))
    try:
        status = cli.main(command.split())
    except SystemExit as error:  # from the parser
        status = error.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, ""), err
    assert err.count("\n") == 1 and err.startswith("soybean-mx") and ": error: " in err, err
    assert sorted(folder.rglob("*")) == before
    return err


@pytest.mark.parametrize("command", ON_TWO)
@pytest.mark.parametrize("model, said", [
    ("no_such_model", "no model"), ("bad_networks:absent", "absent"), ("no_such_module:net", "no_such_module"),
    ("bad_networks:broken", "first line"), ("bad_networks:number", "Gluon block"),
    ("bad_networks:Untraceable --input-shape 8,3", "no_such_operator"), ("bad-symbol.json", "bad-symbol.json"),
    ("bad_networks:narrow --input-shape 8,7", "8x7"), ("bad_networks:narrow --input-shape eight", "eight")])
def test_a_model_that_does_not_load_or_fit(capsys, folder, command, model, said):
    name, *options = model.split()
    assert said in refused(capsys, folder, " ".join([command, name, ON_TWO[command], *options]))


@pytest.mark.parametrize("command", [
    f"plan {NETWORK} --devices 2 -o", f"plan {NETWORK} --devices 2 --html", f"plan {NETWORK} --devices 2 --dot",
    f"simulate {NETWORK} --devices 2 --trace", f"simulate {NETWORK} --devices 2 --times measured --write-times",
    "topology p2.8xlarge -o", "operators --markdown", f"profile {NETWORK} --repeats 1 -o"])
@pytest.mark.parametrize("path", ["absent/file", "folder"])
def test_an_output_that_cannot_be_written(capsys, folder, command, path):
    assert path in refused(capsys, folder, f"{command} {path}")


@pytest.mark.parametrize("command, said", [
    (f"plan {NETWORK} --topology bad.json", "-5"), (f"simulate {NETWORK} --topology bad.json", "-5"),
    ("topology bad.json", "-5"), ("stages bad.graph.txt --devices 2 --bandwidth 1GB/s", "node9"),
    ("simulate bad.graph.txt --profile --topology p2.8xlarge", "node9"),
    (f"simulate {NETWORK} --devices 2 --plan text.json", "text.json"),
    (f"simulate {NETWORK} --devices 2 --times text.json", "text.json"),
    (f"plan {NETWORK} --topology no_such_machine", "no_such_machine"), (f"plan {NETWORK} --devices 0", "0"),
    (f"explain {NETWORK} no_layer --devices 2", "no_layer"), (f"bench {NETWORK} --devices cpu:x", "'x'"),
    ("run --devices gpu:x bad_networks.py", "'x'"), ("run absent.py", "absent.py"),
    ("run --trace absent/trace.json --devices cpu:2 bad_networks.py", "absent/trace.json"),
    ("reproduce soybean --output bad.json/pages", "bad.json/pages"), ("doctor --no-such-option", "--no-such-option")])
def test_what_cannot_be_read_or_used(capsys, folder, command, said):
    assert said in refused(capsys, folder, command)
