"""What ``soybean-mx doctor`` runs in child processes: each probe prints what it found as a line of JSON.

    python -m soybean_mx.doctor_probes NAME
"""
from __future__ import annotations

import json
import sys
from typing import Any, Callable, Dict


def mxnet() -> Dict[str, Any]:
    """Which of the features that matter here MXNet has."""
    from mxnet.runtime import feature_list

    wanted = ("CUDA", "CUDNN", "NCCL", "MKLDNN", "OPENMP", "BLAS_OPEN", "BLAS_MKL", "OPENCV", "F16C")
    return {"features": [feature.name for feature in feature_list() if feature.enabled and feature.name in wanted]}


def core() -> Dict[str, Any]:
    """Whether the planner loads and plans."""
    from soybean_mx import core as planner
    from soybean_mx import library_path

    plan = planner.plan(_dense_graph(), {"devices": 8})
    if plan["cuts"] != [2, 2, 2] or not plan["exact"]:
        raise RuntimeError(f"a plan for 8 devices has the cuts {plan['cuts']}")
    return {"found": f"{library_path()} plans"}


def graph_pass() -> Dict[str, Any]:
    """Whether MXNet loads the library and runs its graph pass."""
    import mxnet as mx

    import soybean_mx

    mx.library.load(soybean_mx.library_path(), verbose=False)
    symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc")
    shapes, _, _ = symbol.infer_shape(data=(8, 3))
    arguments = {name: mx.nd.ones(shape) for name, shape in zip(symbol.list_arguments(), shapes)}
    tiled = symbol.optimize_for("soybean_mx", args=arguments, devices=2)
    devices = {node["attrs"]["__ctx_group__"] for node in json.loads(tiled.tojson())["nodes"] if node["op"] != "null"}
    if devices != {"d0", "d1"}:
        raise RuntimeError(f"the tiled graph is on {sorted(devices)}")
    return {"found": "MXNet loads the library, and tiles a graph by it"}


def copies() -> Dict[str, Any]:
    """Whether copies between CPU contexts are repaired."""
    import soybean_mx  # noqa: F401  (before MXNet)
    from soybean_mx.executor import copies_are_clean

    return {"repaired": copies_are_clean()}


def training() -> Dict[str, Any]:
    """How far a training step on two contexts is from that on one, relative to the largest weight."""
    import soybean_mx  # noqa: F401  (before MXNet)

    import mxnet as mx  # isort: skip
    import numpy as np  # isort: skip

    def trained(devices: int):
        net = mx.gluon.nn.HybridSequential()
        net.add(mx.gluon.nn.Conv2D(4, 3, in_channels=2), mx.gluon.nn.BatchNorm(in_channels=4), mx.gluon.nn.Flatten(),
                mx.gluon.nn.Dense(16, activation="relu", in_units=64), mx.gluon.nn.Dense(5, in_units=16))
        net.initialize()
        random = np.random.RandomState(0)
        for parameter in net.collect_params().values():
            if parameter.grad_req != "null":
                parameter.set_data(mx.nd.array(random.uniform(-0.5, 0.5, parameter.shape)))
        if devices > 1:
            net.hybridize(backend="soybean_mx", devices=[mx.cpu(index) for index in range(devices)])
        trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        data, label = mx.nd.array(random.normal(size=(8, 2, 6, 6))), mx.nd.array(random.randint(0, 5, 8))
        for _ in range(2):
            with mx.autograd.record():
                loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(data), label)
            loss.backward()
            trainer.step(8)
        return [parameter.data().asnumpy() for parameter in net.collect_params().values()]

    pairs = list(zip(trained(1), trained(2)))
    largest = max(float(np.abs(one).max()) for one, _ in pairs)
    return {"error": max(float(np.abs(one - two).max()) for one, two in pairs) / largest}


def _dense_graph() -> Dict[str, Any]:
    """A layer of 64 units on 32 samples of 128 numbers."""
    nodes = [{"op": "null", "name": name, "inputs": []} for name in ("data", "weight")]
    nodes.append({"op": "FullyConnected", "name": "fc", "attrs": {"num_hidden": "64", "no_bias": "True"},
                  "inputs": [[0, 0, 0], [1, 0, 0]]})
    shapes = {"data": [[32, 128]], "weight": [[64, 128]], "fc": [[32, 64]]}
    return {"symbol": json.dumps({"nodes": nodes, "arg_nodes": [0, 1], "heads": [[2, 0, 0]]}), "shapes": shapes,
            "itemsizes": {name: [4] for name in shapes}, "training": True,
            "variables": {"data": {"role": "input", "requires_grad": False},
                          "weight": {"role": "parameter", "requires_grad": True}}}


PROBES: Dict[str, Callable[[], Dict[str, Any]]] = {
    "mxnet": mxnet, "core": core, "graph_pass": graph_pass, "copies": copies, "training": training}

if __name__ == "__main__":
    try:
        print(json.dumps(PROBES[sys.argv[1]]()))
    except Exception as error:
        text = " ".join(str(error).split())
        raise SystemExit(f"{type(error).__name__}: {text[:300]}") from None
