"""The training scripts, run as a user runs them, for a few batches each."""
from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Dict, List, Optional

import mxnet as mx
import numpy as np
import pytest

from tests.child import ChildFailure, run_child
from tests.scripts import digit_files
from tests.scripts.script_modules import SCRIPTS

TILED = pytest.param("cpu:2", marks=pytest.mark.skipif(
    importlib.util.find_spec("soybean_mx.gluon_front") is None, reason="soybean_mx.gluon_front is not there"))
SMALL = {"alexnet": ["--width", "0.125"], "vgg": ["--width", "0.125"], "mlp": []}
ENVIRONMENT: Dict[str, Optional[str]] = dict.fromkeys(("SOYBEAN_MX", "SOYBEAN_MX_DEVICES", "SOYBEAN_MX_STRATEGY"))


def train(model: str, save_dir: Path, *flags: object, devices: str = "none", **environment: str) -> str:
    """Run ``train_MODEL.py`` and return its log."""
    arguments = ["--devices", devices, "--save-dir", save_dir, *flags]
    run_child(str(SCRIPTS / f"train_{model}.py"), arguments, env={**ENVIRONMENT, **environment})
    return (save_dir / "train.log").read_text()


def losses(log: str) -> List[float]:
    return [float(value) for value in re.findall(r"training: accuracy=\S+ loss=(\S+)", log)]


def message(*flags: object, **environment: str) -> str:
    """What ``train_mlp.py`` says when it refuses `flags`."""
    with pytest.raises(ChildFailure) as failure:
        run_child(str(SCRIPTS / "train_mlp.py"), flags, env={**ENVIRONMENT, **environment})
    assert "Traceback" not in str(failure.value)
    return str(failure.value)


def assert_same_parameters(first: Path, second: Path) -> None:
    one, other = mx.nd.load(str(first)), mx.nd.load(str(second))
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name].asnumpy(), other[name].asnumpy(), rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("devices", ["none", TILED])
@pytest.mark.parametrize("model", sorted(SMALL))
def test_script_trains_and_saves(model, devices, tmp_path):
    log = train(model, tmp_path, *SMALL[model], "--num-epochs", 2, "--batches-per-epoch", 3, "--log-interval", 2,
                devices=devices)
    assert re.search(r"^Epoch\[0\] Batch \[2\]\tSpeed: \d+\.\d+ samples/sec\taccuracy=0\.\d+\tlr=0\.\d+$", log, re.M)
    assert len(losses(log)) == 2
    assert re.search(r"^Accuracy on 360 held-back images: \d+\.\d\d % after 2 epochs", log, re.M)
    saved = sorted(path.suffix for path in tmp_path.iterdir())
    assert saved == [".log", ".params", ".states"]


@pytest.mark.parametrize("devices", ["none", TILED])
def test_mlp_learns_the_digits(devices, tmp_path):
    log = train("mlp", tmp_path, "--num-epochs", 4, devices=devices)
    assert losses(log)[-1] < 0.3 * losses(log)[0]
    assert float(re.search(r"held-back images: (\S+) %", log).group(1)) >= 95


@pytest.mark.parametrize("devices", ["none", TILED])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_resumed_run_ends_as_the_uninterrupted_one(optimizer, devices, tmp_path):
    flags = [*SMALL["alexnet"], "--optimizer", optimizer, "--lr", 0.001, "--num-epochs", 3, "--batches-per-epoch", 3,
             "--save-frequency", 1]
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    train("alexnet", whole, *flags, devices=devices)
    train("alexnet", resumed, *flags, "--resume-epoch", 2, "--resume-params", whole / "alexnet-0002.params",
          "--resume-states", whole / "alexnet-0002.states", devices=devices)
    assert not (resumed / "alexnet-0002.params").exists()
    assert_same_parameters(whole / "alexnet-0003.params", resumed / "alexnet-0003.params")


@pytest.mark.parametrize("schedule", ["flush", "1f1b"])
def test_pipeline(schedule, tmp_path):
    flags = [*SMALL["vgg"], "--num-epochs", 2, "--batches-per-epoch", 3, "--save-frequency", 1, "--parallel",
             "pipeline", "--schedule", schedule]
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    log = train("vgg", whole, *flags, devices="cpu:2")
    assert re.search(r"^Accuracy on 360 held-back images: \d+\.\d\d % after 2 epochs", log, re.M)
    train("vgg", resumed, *flags, "--resume-epoch", 1, "--resume-params", whole / "vgg11_bn-0001.params",
          "--resume-states", whole / "vgg11_bn-0001.states", devices="cpu:2")
    assert_same_parameters(whole / "vgg11_bn-0002.params", resumed / "vgg11_bn-0002.params")


def test_pipeline_that_flushes_is_as_one_device(tmp_path):
    flags = ["--num-epochs", 1, "--batches-per-epoch", 4]
    plain = train("mlp", tmp_path / "plain", *flags)
    flushed = train("mlp", tmp_path / "flushed", *flags, "--parallel", "pipeline", "--schedule", "flush",
                    devices="cpu:2")
    assert losses(flushed) == pytest.approx(losses(plain), rel=1e-5)
    assert_same_parameters(tmp_path / "plain" / "mlp-0001.params", tmp_path / "flushed" / "mlp-0001.params")


def test_parameters_of_another_network_are_refused(tmp_path):
    train("mlp", tmp_path, "--num-epochs", 1, "--batches-per-epoch", 1)
    said = message("--devices", "none", "--width", "0.5", "--resume-params", tmp_path / "mlp-0001.params")
    assert "does not fit --model mlp at --width 0.5" in said


@pytest.mark.parametrize("workers", [0, 2])
def test_image_folder(workers, tmp_path):
    digit_files.write_folder(tmp_path / "images")
    log = train("mlp", tmp_path, "--data-dir", tmp_path / "images", "--batch-size", 4, "--num-epochs", 1,
                "--input-size", 16, "-j", workers)
    assert "Accuracy on 7 held-back images" in log
    assert mx.nd.load(str(tmp_path / "mlp-0001.params"))["2.bias"].shape == (digit_files.CLASSES,)


def test_image_folder_is_resumed_exactly(tmp_path):
    digit_files.write_folder(tmp_path / "images")
    flags = ["--data-dir", tmp_path / "images", "--batch-size", 4, "--num-epochs", 2, "--input-size", 16, "-j", 0,
             "--save-frequency", 1]
    assert_resumes(tmp_path, flags)


def test_records(tmp_path):
    digit_files.write_records(tmp_path)
    log = train("mlp", tmp_path / "named", "--rec-train", tmp_path / "train.rec", "--rec-val", tmp_path / "val.rec",
                "--num-classes", digit_files.CLASSES, "--batch-size", 4, "--num-epochs", 1, "--input-size", 16)
    assert "Accuracy on 7 held-back images" in log
    flags = ["--data-dir", tmp_path, "--use-rec", "--num-classes", digit_files.CLASSES, "--batch-size", 4,
             "--num-epochs", 2, "--input-size", 16, "--save-frequency", 1]
    assert_resumes(tmp_path, flags)


def test_records_without_an_index(tmp_path):
    digit_files.write_records(tmp_path)
    (tmp_path / "train.idx").unlink()
    log = train("mlp", tmp_path, "--rec-train", tmp_path / "train.rec", "--num-classes", digit_files.CLASSES,
                "--batch-size", 4, "--num-epochs", 1, "--input-size", 16)
    assert len(losses(log)) == 1 and "held-back" not in log


def assert_resumes(folder: Path, flags: List[object]) -> None:
    """Two epochs at once and in two runs end with the same parameters."""
    train("mlp", folder / "whole", *flags)
    train("mlp", folder / "resumed", *flags, "--resume-epoch", 1,
          "--resume-params", folder / "whole" / "mlp-0001.params",
          "--resume-states", folder / "whole" / "mlp-0001.states")
    assert_same_parameters(folder / "whole" / "mlp-0002.params", folder / "resumed" / "mlp-0002.params")


@pytest.mark.parametrize("flags", [
    ["--benchmark", "--input-size", "28"],
    ["--mode", "imperative"],
    ["--dtype", "float64"],
    ["--optimizer", "nag", "--momentum", "0.5", "--warmup-epochs", "1", "--warmup-lr", "0.01"],
    ["--label-smoothing", "0.1", "--no-wd"],
    ["--augmentation", "none", "--lr-mode", "step", "--lr-decay-epoch", "1", "--optimizer", "adam"],
    ["--model", "mlp64", "--num-classes", "64", "--save-frequency", "0"],
    ["--model", "resnet18_v1", "--batches-per-epoch", "1"],
], ids=" ".join)
def test_flags(flags, tmp_path):
    log = train("mlp", tmp_path, "--num-epochs", 2, "--batches-per-epoch", 2, *flags)
    assert len(losses(log)) == 2 and np.isfinite(losses(log)).all()
    assert any(path.suffix == ".params" for path in tmp_path.iterdir()) == ("--save-frequency" not in flags)


def test_messages():
    assert "give one of them" in message("--benchmark", "--data-dir", "images")
    assert "--devices none" in message("--mode", "imperative", "--devices", "cpu:2")
    assert "give --devices" in message("--devices", "none", "--strategy", "data")
    assert "give --devices" in message("--devices", "none", "--parallel", "pipeline")
    assert "for --parallel tiling" in message("--parallel", "pipeline", "--strategy", "data")
    assert "for --parallel pipeline" in message("--schedule", "flush")
    assert "1, for it updates after each" in message("--parallel", "pipeline", "--microbatches", "2")
    assert "give both" in message("--devices", "none", "--resume-states", "a.states")
    assert "There is no file" in message("--devices", "none", "--resume-params", "missing.params")
    assert "There is no folder" in message("--devices", "none", "--data-dir", "missing")
    assert "There is no RecordIO file" in message("--devices", "none", "--rec-train", "missing.rec")
    assert "give 1437 or less" in message("--devices", "none", "--batch-size", "2000")
    assert "resnet18_v1" in message("--devices", "none", "--model", "alexnett")
    assert "unknown to MXNet" in message("--devices", "none", "--optimizer", "sdg")
    assert "drop --momentum" in message("--devices", "none", "--optimizer", "adam", "--momentum", "0.9")
    if mx.context.num_gpus() == 0:
        assert "give float32 or float64" in message("--devices", "none", "--dtype", "float16")
    assert "unset SOYBEAN_MX" in message("--devices", "none", SOYBEAN_MX="1")
    assert "numbers such as 40,60" in message("--lr-decay-epoch", "four")
    assert "at least 63" in message("--devices", "none", "--model", "alexnet", "--input-size", "32")
    assert "above 0" in message("--width", "0")
    assert "'tpu'" in message("--devices", "tpu:2")
