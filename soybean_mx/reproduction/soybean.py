"""The evaluation of the SoyBean paper (arXiv 1805.04170), made again.

``networks`` (estimated)
    Steps of the MLP, the CNNs, AlexNet and VGG-16 on 8 devices of p2.8xlarge, as data parallelism, model parallelism
    and soybean_mx's plan of least time; their speedups and shares of communication.
``traffic`` (counted)
    What data parallelism, model parallelism, the paper's recursion and soybean_mx's plan move for the MLP.
``example`` (counted)
    The same for 5 layers of 300 x 300 on 16 devices.
``partitioning`` (measured on this machine)
    Table 1: the time per batch of the MLP on one device, by plain MXNet and with the partitions of several devices.

All are plain JSON values. What is estimated and counted is the same on every machine.
"""
from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from soybean_mx import model_loading
from soybean_mx import topology as topologies
from soybean_mx.benchmark import contenders as running
from soybean_mx.progress import Advance
from soybean_mx.reproduction import estimates, networks, traffic

TOPOLOGY = "p2.8xlarge"
# The paper's claim: throughput of AlexNet and VGG over that of data parallelism.
CLAIM = (1.5, 4.0)
BASES = ("mxnet", "data", "overlapped")  # kinds of data parallelism
WIDTH, LAYERS, DEVICES, CUTS = 8192, 4, 8, 3
EXAMPLE = {"batch": 400, "width": 300, "layers": 5, "devices": 16}
# What the paper prints, in GB: for each batch data and model parallelism and k cuts; and in MB for 16, 1 and 4 groups.
PRINTED_TRAFFIC = {512: (15.03, 0.94, 0.37), 1024: (15.03, 1.88, 0.74), 2048: (15.03, 3.76, 1.48),
                   4096: (15.03, 7.52, 2.95), 8192: (15.03, 15.03, 5.37)}
PRINTED_EXAMPLE = {"data": (16, 57.6), "model": (1, 76.8), "4 groups of 4": (4, 33.6)}

Graph = Mapping[str, Any]


@dataclass(frozen=True)
class Network:
    """One network of the evaluation.

    Parameters
    ----------
    name, title : str
        In JSON, and on the page.
    graph : callable
        Of the batch size: the planner's graph.
    batches : tuple of int
        Sizes of batches, of all devices together.
    claimed : bool
        Whether the paper's claim is about it.
    """

    name: str
    title: str
    graph: Callable[[int], Graph]
    batches: Tuple[int, ...]
    claimed: bool = False


NETWORKS = (
    Network("mlp", "MLP, 4 layers 8192 wide", lambda batch: networks.perceptron_graph(WIDTH, LAYERS, batch),
            traffic.BATCHES),
    Network("cnn_6x6_2048", "CNN, 5 layers of 2048 filters, 6x6", lambda batch: networks.convolutions_graph(
        6, 2048, batch), (32, 64, 128, 256, 512)),
    Network("cnn_24x24_512", "CNN, 5 layers of 512 filters, 24x24", lambda batch: networks.convolutions_graph(
        24, 512, batch), (32, 64, 128, 256, 512)),
    Network("alexnet", "AlexNet", lambda batch: model_loading.load("alexnet", batch).graph,
            (32, 64, 128, 256, 512, 1024, 2048), True),
    Network("vgg16", "VGG-16", lambda batch: model_loading.load("vgg16", batch).graph, (16, 32, 64, 128, 256, 512),
            True),
)


@dataclass(frozen=True)
class Table1:
    """How Table 1 is measured.

    Parameters
    ----------
    width : int
        Of the four layers.
    batches, tiles : tuple of int
        Sizes of batches, and numbers of devices whose partitions the one device runs.
    rounds, repeat, warmup : int
        Rounds through all contenders, timed steps in each, and steps before them.
    """

    width: int = 1024
    batches: Tuple[int, ...] = (128, 512)
    tiles: Tuple[int, ...] = (1, 2, 4, 8)
    rounds: int = 3
    repeat: int = 3
    warmup: int = 1


QUICK_TABLE1 = Table1(width=256, batches=(64,), tiles=(1, 8), rounds=1, repeat=2)
SERIAL = "plain MXNet"
_TIMEOUT = 1800.0  # of one process, in seconds


def quick(network: Network) -> Network:
    """The same network at its smallest and largest batch."""
    return Network(network.name, network.title, network.graph, (network.batches[0], network.batches[-1]),
                   network.claimed)


def estimated(chosen: Sequence[Network] = NETWORKS, advance: Optional[Advance] = None) -> Dict[str, Any]:
    """What needs no device: ``networks``, ``traffic`` and ``example``.

    Parameters
    ----------
    chosen : sequence of Network
        The networks.
    advance : callable, optional
        Told how many steps are estimated, and of how many.
    """
    topology = topologies.named(TOPOLOGY)
    total, done, found = sum(len(network.batches) for network in chosen), 0, []
    for network in chosen:
        rows = []
        for batch in network.batches:
            rows.append(compared(network.graph(batch), batch, topology))
            done += 1
            if advance is not None:
                advance(done, total)
        found.append({"name": network.name, "title": network.title, "claimed": network.claimed, "rows": rows})
    return {"topology": topology.to_json(), "claim": list(CLAIM), "networks": found, "traffic": traffic_table(),
            "example": example()}


def compared(graph: Graph, batch: int, topology: topologies.Topology) -> Dict[str, Any]:
    """One batch size of a network: a step of each kind, and the speedups of soybean_mx's."""
    passes = estimates.data_parallel_passes(graph, topology)
    steps = {"mxnet": estimates.mxnet_data_parallelism(passes, topology),
             "data": estimates.planned(graph, topology, "data"),
             "overlapped": estimates.overlapped_data_parallelism(passes, topology),
             "model": estimates.planned(graph, topology, "model"),
             "soybean_mx": estimates.planned(graph, topology, "optimal")}
    ours = steps["soybean_mx"]
    return {"batch_size": batch, **{name: step.to_json() for name, step in steps.items()},
            "samples_per_second": batch / ours.seconds,
            **{f"speedup_over_{base}": steps[base].seconds / ours.seconds for base in BASES}}


def traffic_table() -> List[Dict[str, Any]]:
    """Bytes that each batch of the MLP moves, with what the paper prints in GB."""
    return [{"batch_size": batch, "data": traffic.data_bytes(WIDTH, LAYERS, DEVICES),
             "model": traffic.model_bytes(batch, WIDTH, LAYERS, DEVICES),
             "k_cut": traffic.recursive_bytes(batch, WIDTH, LAYERS, CUTS),
             "soybean_mx": networks.planned_bytes(networks.products(WIDTH, LAYERS, batch), DEVICES),
             "printed_gigabytes": list(PRINTED_TRAFFIC[batch])} for batch in traffic.BATCHES]


def example() -> Dict[str, Any]:
    """Bytes of the motivating example, with what the paper prints in MB."""
    shape = (EXAMPLE["batch"], EXAMPLE["width"], EXAMPLE["layers"])
    graph = networks.products(EXAMPLE["width"], EXAMPLE["layers"], EXAMPLE["batch"])
    return {**EXAMPLE, "soybean_mx": networks.planned_bytes(graph, EXAMPLE["devices"]),
            "counted": {name: {"bytes": traffic.example_bytes(*shape, groups, EXAMPLE["devices"]),
                               "printed_megabytes": printed}
                        for name, (groups, printed) in PRINTED_EXAMPLE.items()}}


def measured(setting: Table1, advance: Optional[Advance] = None) -> Dict[str, Any]:
    """Table 1, on one CPU context with one thread.

    Parameters
    ----------
    setting : Table1
        What is measured.
    advance : callable, optional
        Told how many processes are done, and of how many.

    Returns
    -------
    dict
        ``machine``, and for each batch what each contender takes: the median of its steps, their least and most, the
        processor seconds of a step, and the ratio of these to plain MXNet's in the same round (median, least and most
        of the rounds).
    """
    device, threads = (("cpu", 0),), 1
    chosen = [running.Contender(SERIAL, "serial", device, threads),
              *(running.Contender(f"{count} tile{'s' * (count > 1)}", "soybean_mx", device, threads, "optimal", count)
                for count in setting.tiles)]
    total, done, rows = len(setting.batches) * setting.rounds * len(chosen), 0, []
    for batch in setting.batches:
        workload = {"task": ["soybean_mx.reproduction.networks:perceptron_task", setting.width, LAYERS, batch],
                    "dtype": "float32", "batch_size": batch, "warmup": setting.warmup, "repeat": setting.repeat}

        def starting(*_) -> None:
            nonlocal done
            if advance is not None:
                advance(done, total)
            done += 1

        results = running.run_rounds(chosen, workload, setting.rounds, _TIMEOUT, starting=starting)
        rows.append({"batch_size": batch, "contenders": [_contender(name, rounds, results[SERIAL])
                                                         for name, rounds in results.items()]})
    return {"width": setting.width, "layers": LAYERS, "rounds": setting.rounds, "repeat": setting.repeat,
            "machine": running.machine(), "batches": rows}


def _contender(name: str, rounds: Sequence[Dict], base: Sequence[Dict]) -> Dict[str, Any]:
    found = running.summarise(rounds)
    if "seconds" not in found:
        return {"name": name, "error": found["error"]}
    ratios = running.ratios(rounds, base, "processor_seconds_all")
    return {"name": name, "seconds": found["seconds"], "seconds_min": found["seconds_min"],
            "seconds_max": found["seconds_max"], "processor_seconds": found["processor_seconds"],
            "peak_bytes": found["peak_bytes"], "bytes_exchanged": found["bytes_moved"],
            **({"ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios)}
               if ratios else {})}


def verdict(network: Mapping[str, Any]) -> Dict[str, Any]:
    """Whether the claim is met for a network, over each kind of data parallelism, and what keeps it from that.

    Parameters
    ----------
    network : mapping
        Of :func:`estimated`.

    Returns
    -------
    dict
        For each of :data:`BASES` the batches at which soybean_mx is at least as much faster as the claim begins
        at, and the least and most speedup; ``why``, a sentence.
    """
    rows = network["rows"]
    result: Dict[str, Any] = {"name": network["name"]}
    for base in BASES:
        speedups = [row[f"speedup_over_{base}"] for row in rows]
        result[base] = {"met_at": [row["batch_size"] for row, speedup in zip(rows, speedups) if speedup >= CLAIM[0]],
                        "least": min(speedups), "most": max(speedups)}
    last = rows[-1]
    result["why"] = (
        f"at batch {last['batch_size']} computing is {100 * (1 - last['soybean_mx']['communication_share']):.0f} % of "
        "soybean_mx's step, of which tilings save little, and "
        f"{100 * (1 - last['overlapped']['communication_share']):.0f} % of that of ideal data parallelism")
    return result
