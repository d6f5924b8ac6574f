"""Markdown pages of the reproductions. Each says of its figures whether they are estimated, counted or measured."""
from __future__ import annotations

import textwrap
from typing import Any, Iterable, List, Mapping, Sequence

from soybean_mx.reproduction import pipedream as pipedream_tables
from soybean_mx.reproduction import soybean as evaluation

_MEBIBYTE = 2 ** 20
_WIDTH = 120


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _command(command: str, test: str) -> str:
    """The command, with the mark by which tests of the documentation know that another test runs it."""
    return f"<!-- not run: it writes this page; {test} runs it into another folder -->\n```sh\n{command}\n```"


def _paragraph(*texts: str, indent: str = "") -> str:
    return textwrap.fill("".join(texts), _WIDTH, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)


def _image(name: str, text: str) -> str:
    return f"![{text}]({name}.svg)\n\n([PNG]({name}.png))"


def _milliseconds(step: Mapping[str, Any]) -> str:
    return f"{1e3 * step['seconds']:.2f}"


def _share(step: Mapping[str, Any]) -> str:
    return f"{100 * step['communication_share']:.0f} %"


def soybean(report: Mapping[str, Any], command: str) -> str:
    """The page of ``reproduce soybean``.

    Parameters
    ----------
    report : mapping
        Of ``reproduce soybean --json``.
    command : str
        The command that makes it.
    """
    sections = [_soybean_head(command), *soybean_estimated(report), _partitioning(report["partitioning"])]
    return "\n\n".join(sections) + "\n"


def _soybean_head(command: str) -> str:
    return f"""# The SoyBean paper, made again

What the evaluation of SoyBean (arXiv 1805.04170) shows, by this planner. This page and its plots are written by

{_command(command, "tests/reproduction/test_soybean.py")}

- **Estimated**: steps on 8 devices of AWS's p2.8xlarge, as in the paper: no such machine was used. A device is a GK210
  at its nominal {_flops()}, links are of 10 GB/s and direction for each device (`soybean-mx topology p2.8xlarge`); the
  step of each plan, without the optimizer's updates, is played with its copies beside its computation
  ([simulation.md](../simulation.md)). Real devices do not reach their nominal figures, so that shares and ratios count
  here, and not seconds.
- **Counted**: bytes, by the paper's formulas and on this planner's plans.
- **Measured on this machine**: Table 1 only.

Plans are those of the least predicted time. There are three kinds of data parallelism to compare with:

- **MXNet's**, its key-value store `device`, which is what a user of MXNet has: each gradient goes to one device and its
  sum from there to all, while the backward pass goes on. Only that device's link counts, so that this is the store at
  its best. (`soybean-mx bench` measures it on real devices.)
- **Same runtime**: the plan `data`, lowered and scheduled like soybean_mx's own; devices hold a part of each weight and
  gather it one layer ahead.
- **Ideal**: all weights on every device, and each gradient's all-reduce, as fast as any can be, beside the rest of the
  backward pass. Its communication is hidden where computing takes long enough, and soybean_mx's plans, whose exchanges
  stand between layers, are then slower than it."""


def _flops() -> str:
    from soybean_mx import topology

    return f"{topology.named(evaluation.TOPOLOGY).device.flops / 1e12:g} TFLOP/s"


def soybean_estimated(report: Mapping[str, Any]) -> List[str]:
    """The sections with estimated and counted figures, which are the same on every machine."""
    return [_claims(report), *map(_network, report["networks"]), _shares(report), _traffic(report), _example(report)]


_BASES = {"mxnet": "MXNet's", "data": "same runtime", "overlapped": "ideal"}


def _claims(report: Mapping[str, Any]) -> str:
    low, high = report["claim"]
    rows, reasons = [], []
    for network in report["networks"]:
        found = evaluation.verdict(network)
        rows.append([network["title"], f"{low:g}x to {high:g}x" if network["claimed"] else "-",
                     *(text for base in evaluation.BASES for text in (
                         f"{found[base]['least']:.2f} to {found[base]['most']:.2f}", _met(network, found[base])))])
        reasons.append(_paragraph(f"- {network['title']}: {found['why']}.", indent="  "))
    return "\n\n".join([
        "## The claim",
        _paragraph(
            f"{low:g}x to {high:g}x the throughput of data parallelism, for AlexNet and VGG. Estimated; \"met\" lists "
            f"the batches at which soybean_mx is {low:g} times as fast or more:"),
        _table(["network", "claimed", *(text for base in evaluation.BASES for text in (
            f"over {_BASES[base]}", "met at batches"))], rows),
        _image("soybean_speedup", "Speedup over data parallelism by batch size, estimated"),
        "Where it is not met, and what takes the time there:", "\n".join(reasons)])


def _met(network: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    batches = [row["batch_size"] for row in network["rows"]]
    if found["met_at"] == batches:
        return "all"
    return ", ".join(map(str, found["met_at"])) or "none"


def _network(network: Mapping[str, Any]) -> str:
    rows = [[str(row["batch_size"]), *(_milliseconds(row[kind]) for kind in (*evaluation.BASES, "model", "soybean_mx")),
             f"{row['samples_per_second']:.0f}", *(f"{row[f'speedup_over_{base}']:.2f}" for base in evaluation.BASES),
             f"{row['overlapped']['bytes_moved'] / 1e6:.0f}", f"{row['soybean_mx']['bytes_moved'] / 1e6:.0f}"]
            for row in network["rows"]]
    return "\n\n".join([
        f"## {network['title']}",
        "Estimated: milliseconds for a step, soybean_mx's speedups, and MB that all devices together move in a step.",
        _table(["batch", *(f"data parallelism, {_BASES[base]}" for base in evaluation.BASES), "model parallelism",
                "soybean_mx", "samples/s", *(f"over {_BASES[base]}" for base in evaluation.BASES),
                "MB, data parallelism", "MB, soybean_mx"], rows)])


def _shares(report: Mapping[str, Any]) -> str:
    kinds = (*evaluation.BASES, "model", "soybean_mx")
    rows = [[network["title"], str(row["batch_size"]), *(_share(row[kind]) for kind in kinds)]
            for network in report["networks"] for row in network["rows"]]
    return "\n\n".join([
        "## The share of communication",
        "Estimated: the part of a step that would be saved if exchanges took no time.",
        _image("soybean_communication", "Share of communication in a step by batch size, estimated"),
        _table(["network", "batch", *(f"data parallelism, {_BASES[base]}" for base in evaluation.BASES),
                "model parallelism", "soybean_mx"], rows)])


def _traffic(report: Mapping[str, Any]) -> str:
    rows = [[str(row["batch_size"]), *(f"{row[kind] / 1e9:.2f} ({printed:.2f})" for kind, printed in zip(
        ("data", "model", "k_cut"), row["printed_gigabytes"])), f"{row['soybean_mx'] / 1e9:.2f}"]
        for row in report["traffic"]]
    return "\n\n".join([
        "## Traffic",
        _paragraph(
            "Counted: GB in a step of the MLP on 8 devices, all together; in brackets what the paper's counting comes "
            "to. The paper leaves the output in any tiling, where soybean_mx holds every element of it once: up to "
            "24/22 of its figure at small batches."),
        _table(["batch", "data parallelism", "model parallelism", "the paper's recursion", "soybean_mx"], rows),
        _image("soybean_traffic", "Traffic of the MLP by batch size, counted")])


def _example(report: Mapping[str, Any]) -> str:
    found = report["example"]
    rows = [[name, f"{item['bytes'] / 1e6:.1f}", f"{item['printed_megabytes']:.1f}"]
            for name, item in found["counted"].items()]
    return "\n\n".join([
        "## The example",
        _paragraph(
            f"Counted: MB for {found['layers']} layers of {found['width']} x {found['width']}, batch {found['batch']}, "
            f"{found['devices']} devices. The paper counts p where p - 1 copies move."),
        _table(["", "counted", "the paper"], rows),
        f"soybean_mx's plan moves {found['soybean_mx'] / 1e6:.1f} MB (what moves, not as the paper counts)."])


def _partitioning(found: Mapping[str, Any]) -> str:
    machine = found["machine"]
    rows = []
    for batch in found["batches"]:
        for item in batch["contenders"]:
            if "seconds" not in item:
                rows.append([str(batch["batch_size"]), item["name"], "failed", item["error"], "", "", ""])
                continue
            rows.append([str(batch["batch_size"]), item["name"],
                         f"{item['seconds']:.3f} ({item['seconds_min']:.3f} to {item['seconds_max']:.3f})",
                         f"{item['processor_seconds']:.3f}",
                         f"{item['ratio']:.2f} ({item['ratio_min']:.2f} to {item['ratio_max']:.2f})",
                         f"{item['peak_bytes'] / _MEBIBYTE:.0f}", f"{item['bytes_exchanged'] / _MEBIBYTE:.0f}"])
    return "\n\n".join([
        "## Table 1: what partitioning itself costs",
        _paragraph(
            f"Measured on this machine: {machine['processor']}, {machine['cores']} cores with a load of "
            f"{machine['load']:.1f}, MXNet {machine['mxnet']}, Python {machine['python']}; one CPU context with one "
            f"thread. The MLP of {found['layers']} layers, {found['width']} wide (the paper's 8192 needs 3 GB and "
            "more: `scripts/bench_partitioning.py`), by plain MXNet, and as the tiles of several devices that the one "
            f"device computes all. Each runs in a process of its own, in turn, in {found['rounds']} rounds of "
            f"{found['repeat']} steps; seconds are the median (least to most) of the steps. Ratios are of the "
            "processor time of a process, which other programs hardly change, in each round. The paper's own values "
            "are not known here; what its table shows is what partitioning itself costs. Where a ratio is above 1, "
            "smaller products and the copies between tiles take the time; where it is below, soybean_mx updates large "
            "weights by another operator than Gluon's trainer ([performance.md](../performance.md))."),
        _table(["batch", "", "seconds per step", "of processors", "relative to plain MXNet", "peak MiB",
                "MiB between tiles"], rows),
        _image("soybean_partitioning", "Time per batch relative to plain MXNet, measured")])


def pipedream(report: Mapping[str, Any], command: str) -> str:
    """The page of ``reproduce pipedream``, all of which is estimated.

    Parameters
    ----------
    report : mapping
        Of ``reproduce pipedream --json``.
    command : str
        The command that makes it.
    """
    return "\n\n".join([_pipedream_head(command), _released(report), _published(report), _bandwidths(report)]) + "\n"


def _pipedream_head(command: str) -> str:
    return f"""# PipeDream's tables, made again

What PipeDream's slides (2017), arXiv 1806.03377 ("v1") and SOSP 2019 publish, by this planner. This page and its plots
are written by

{_command(command, "tests/reproduction/test_pipedream.py")}

Everything here is **estimated**, from the profiles that PipeDream's repository ships: the times of each layer on its
authors' device, which the repository does not name, and the sizes of its weights and outputs. Nothing was trained for
it; [pipeline_runtime.md](../pipeline_runtime.md) has measured runs."""


def _released(report: Mapping[str, Any]) -> str:
    rows = []
    for row in report["released"]:
        printed, found = row["printed"], row["found"]
        rows.append([row["profile"], f"{row['devices']}, {row['bandwidth']}", f"{printed['config']}; {found['config']}",
                     *(f"{printed[name]:.3f}; {found[name]:.3f}" for name in ("stage_ms", "over_one", "over_data")),
                     "yes" if row["same"] else "**no**"])
    same = sum(row["same"] for row in report["released"])
    return "\n\n".join([
        "## The released optimizer",
        _paragraph(
            "What the optimizer of msr-fiddle/pipedream prints; what `soybean-mx stages --cost-model released` finds. "
            f"{same} of {len(rows)} rows are the same to the last digit."),
        _table(["profile", "machines, links", "replicas", "ms of the slowest stage", "over one device",
                "over plain data parallelism", "same"], rows)])


def _published(report: Mapping[str, Any]) -> str:
    rows, reasons = [], []
    for claim in report["claims"]:
        predicted = claim["predicted"]
        head = [claim["source"], claim["network"], claim["machines"], f"{claim['published']:.2f}",
                claim["published_config"] or "-"]
        if predicted is None:
            rows.append([*head, "-", "-", "-", f"cannot be made: {claim['why']}"])
            continue
        rows.append([*head, predicted["config"], f"{predicted['over_plain']:.2f}",
                     f"{predicted['over_overlapped']:.2f}", claim["met"]])
        why = "; ".join(filter(None, [claim["note"], claim["why"]]))
        if why:
            reasons.append(_paragraph(f"- {claim['source']}, {claim['network']}, {claim['machines']}: {why}.",
                                      indent="  "))
    return "\n\n".join([
        "## Published speedups over data parallelism",
        _paragraph(
            "Predicted by `soybean-mx stages` (cost model `overlap`) on the same number of machines and links. *Plain* "
            "data parallelism exchanges gradients after the backward pass, *overlapped* while it goes on; what the "
            "papers compared with was measured. \"Met\": the prediction is at least what is published, over both."),
        _table(["source", "network", "machines", "published", "replicas", "predicted replicas", "over plain",
                "over overlapped", "met"], rows),
        _image("pipedream_claims", "Published and predicted speedups over data parallelism"),
        "Where it is not met, and why:", "\n".join(reasons),
        _paragraph("Published figures are of machines whose layers take other times than the profile's: the faster the "
                   "device, the more exchanges weigh, and the more a pipeline gains.")])


def _bandwidths(report: Mapping[str, Any]) -> str:
    sweep = report["bandwidths"]
    rows = [[str(line["devices"]), f"{point['gigabits']:g}", point["config"], f"{point['over_plain']:.2f}",
             f"{point['over_overlapped']:.2f}"] for line in sweep["lines"] for point in line["points"]]
    return "\n\n".join([
        f"## The slides' {pipedream_tables.SLIDES_CLAIM:g}x for VGG, by the links",
        _image("pipedream_bandwidth", "Speedup of VGG-16 by bandwidth, estimated"),
        _table(["machines", "Gb/s", "replicas", "over plain", "over overlapped"], rows)])
