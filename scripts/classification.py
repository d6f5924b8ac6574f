"""The command line of the training scripts.

``main`` parses the flags, sets up the devices, and only then imports MXNet and trains: everything that MXNet reads
once, at its start, is in the environment by then. The training itself (``training.py``) is an ordinary single-device
Gluon program.
"""
from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, fields
from typing import List, Optional, Tuple

import devices
from learning_rates import MODES


@dataclass(frozen=True)
class Recipe:
    """Values of the flags that the user did not give; they depend on the model and on the data."""

    batch_size: int
    num_epochs: int
    lr: float
    warmup_epochs: float
    wd: float
    width: float
    input_size: int


DIGITS_RECIPES = {
    "alexnet": Recipe(32, 8, 0.01, 1, 5e-4, 1.0, 64),
    "vgg": Recipe(32, 5, 0.02, 1, 5e-4, 0.5, 32),
    "mlp": Recipe(32, 20, 0.05, 0, 5e-4, 1.0, 8),
    "": Recipe(32, 6, 0.02, 1, 5e-4, 1.0, 32),
}
LARGE_IMAGE_RECIPES = {
    "alexnet": Recipe(128, 90, 0.01, 0, 5e-4, 1.0, 224),
    "vgg": Recipe(128, 90, 0.01, 0, 5e-4, 1.0, 224),
    "mlp": Recipe(128, 90, 0.01, 0, 1e-4, 1.0, 28),
    "": Recipe(128, 120, 0.05, 5, 1e-4, 1.0, 224),
}


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Appends the default, except where the text tells it or there is none."""

    def _get_help_string(self, action: argparse.Action) -> Optional[str]:
        if action.default is None or action.default is False:
            return action.help
        return super()._get_help_string(action)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} was given, but at least 1 is needed")
    return value


def _not_negative(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} was given, but at least 0 is needed")
    return value


def _epochs(text: str) -> Tuple[float, ...]:
    try:
        return tuple(float(epoch) for epoch in text.split(",") if epoch.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} was given, but numbers such as 40,60 are needed") from None


def build_parser(default_model: str) -> argparse.ArgumentParser:
    """The parser of a script whose ``--model`` is `default_model` when it is not given."""
    parser = argparse.ArgumentParser(
        description="Train an image classifier with Gluon. Without data arguments: scikit-learn's handwritten digits.",
        formatter_class=_HelpFormatter,
    )
    _add_device_flags(parser)
    _add_data_flags(parser)
    _add_model_flags(parser, default_model)
    _add_optimization_flags(parser)
    _add_output_flags(parser)
    return parser


def _add_device_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("devices")
    group.add_argument("--devices", default=None,
                       help="devices to tile the training over: cpu:8, gpu:4 (that many), gpu:0-3, gpu:0,2 (these); "
                       "none: plain MXNet on one device (default: SOYBEAN_MX and SOYBEAN_MX_DEVICES, else "
                       f"{devices.DEFAULT})")
    group.add_argument("--strategy", default=None, choices=devices.STRATEGIES,
                       help="how the tiling is chosen (default: SOYBEAN_MX_STRATEGY, else optimal)")
    group.add_argument("--parallel", default="tiling", choices=devices.PARALLEL,
                       help="tiling, or pipeline: each device has a stage of the network")
    group.add_argument("--schedule", default=None, choices=devices.SCHEDULES,
                       help=f"of the pipeline (default: {devices.DEFAULT_SCHEDULE})")
    group.add_argument("--microbatches", type=_positive, default=None,
                       help="into how many a batch is cut by the pipeline (default: of the schedule)")


def _add_data_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data")
    group.add_argument("--data-dir", default=None, help="folder with train/CLASS/*.jpg and val/CLASS/*.jpg; "
                       "with --use-rec, with train.rec, train.idx, val.rec and val.idx")
    group.add_argument("--use-rec", action="store_true", help="read the RecordIO files of --data-dir")
    group.add_argument("--rec-train", default=None, help="RecordIO file to train on")
    group.add_argument("--rec-train-idx", default=None, help="its index (default: the same name with .idx)")
    group.add_argument("--rec-val", default=None, help="RecordIO file to validate on")
    group.add_argument("--rec-val-idx", default=None, help="its index (default: the same name with .idx)")
    group.add_argument("--benchmark", action="store_true", help="train on one batch of random images, no validation")
    group.add_argument("--num-classes", type=_positive, default=None,
                       help="number of classes (default: what a folder holds, 10 for digits, else 1000)")
    group.add_argument("--input-size", type=_positive, default=None,
                       help="height and width of the images (default: of the model and the data)")
    group.add_argument("--crop-ratio", type=float, default=0.875,
                       help="size of the validation crop relative to the resized image")
    group.add_argument("--augmentation", choices=["standard", "none"], default="standard",
                       help="standard: random crop and mirror (digits: random shift); none: as in validation")
    group.add_argument("-j", "--num-data-workers", type=_not_negative, default=2,
                       help="threads that prepare images; with 0 a folder's augmentation is reproducible")
    group.add_argument("--batches-per-epoch", type=_positive, default=None,
                       help="end an epoch after this many batches (default: all of the data; 50 with --benchmark)")


def _add_model_flags(parser: argparse.ArgumentParser, default_model: str) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--model", default=default_model,
                       help="alexnet, vgg11 to vgg19 (also with _bn), mlp, mlpN, or a Gluon model zoo name")
    group.add_argument("--width", type=float, default=None,
                       help="factor on the hidden layers (default: 1; vgg on digits 0.5)")
    group.add_argument("--dtype", default="float32", choices=["float32", "float64", "float16"], help="data type")
    group.add_argument("--mode", default="hybrid", choices=["hybrid", "imperative"],
                       help="hybrid: net.hybridize(); imperative: operator by operator, only on one device")


def _add_optimization_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("optimization")
    group.add_argument("--batch-size", type=_positive, default=None, help="images per step, all devices together")
    group.add_argument("--num-epochs", type=_positive, default=None, help="number of epochs")
    group.add_argument("--optimizer", default="sgd", help="name of an MXNet optimizer")
    group.add_argument("--lr", type=float, default=None, help="learning rate")
    group.add_argument("--lr-mode", default="cosine", choices=MODES, help="course of the learning rate")
    group.add_argument("--lr-decay", type=float, default=0.1, help="factor of each step of --lr-mode step")
    group.add_argument("--lr-decay-epoch", type=_epochs, default="40,60", help="epochs at which --lr-mode step steps")
    group.add_argument("--warmup-epochs", type=float, default=None, help="epochs of linear increase at the start")
    group.add_argument("--warmup-lr", type=float, default=0.0, help="learning rate at the start of the increase")
    group.add_argument("--momentum", type=float, default=None, help="momentum (default: 0.9 where there is one)")
    group.add_argument("--wd", type=float, default=None, help="weight decay")
    group.add_argument("--no-wd", action="store_true", help="no weight decay of biases and BatchNorm")
    group.add_argument("--label-smoothing", type=float, default=0.0, help="mass moved from the label to all classes")
    group.add_argument("--seed", type=_not_negative, default=0,
                       help="seed of initialisation, order, augmentation and dropout")


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--log-interval", type=_positive, default=20, help="batches between two lines of the log")
    group.add_argument("--logging-file", default=None, help="file that the log is appended to "
                       "(default: train.log in --save-dir)")
    group.add_argument("--save-dir", default=None, help="folder of checkpoints (default: logs/MODEL)")
    group.add_argument("--save-frequency", type=_not_negative, default=10,
                       help="epochs between two checkpoints, the last epoch always; 0: no checkpoints")
    group.add_argument("--resume-params", default=None, help="parameters to start from")
    group.add_argument("--resume-states", default=None, help="trainer states to start from")
    group.add_argument("--resume-epoch", type=_not_negative, default=0,
                       help="number of epochs that were already trained")


def recipe_for(args: argparse.Namespace) -> Recipe:
    """The values for `args.model` and the data that `args` names."""
    on_digits = not (args.data_dir or args.rec_train or args.benchmark)
    recipes = DIGITS_RECIPES if on_digits else LARGE_IMAGE_RECIPES
    family = next((name for name in ("alexnet", "vgg", "mlp") if args.model.startswith(name)), "")
    return recipes[family]


def parse(default_model: str, argv: Optional[List[str]] = None) -> argparse.Namespace:
    """Parse `argv`, fill in the recipe, and refuse combinations that could only be ignored.

    Parameters
    ----------
    default_model : str
        The value of ``--model`` when it is not given.
    argv : list of str, optional
        Arguments; ``sys.argv[1:]`` when not given.

    Raises
    ------
    SystemExit
        As argparse does, after a message.
    """
    parser = build_parser(default_model)
    args = parser.parse_args(argv)
    recipe = recipe_for(args)
    for field in fields(Recipe):
        if getattr(args, field.name) is None:
            setattr(args, field.name, getattr(recipe, field.name))
    if args.save_dir is None:
        args.save_dir = os.path.join("logs", args.model)
    args.devices = devices.requested(args.devices)
    problem = _conflict(args)
    if problem:
        parser.error(problem)
    return args


def _conflict(args: argparse.Namespace) -> Optional[str]:
    """What is wrong with the combination of flags, or None."""
    sources = [bool(args.data_dir), bool(args.rec_train), args.benchmark]
    if sum(sources) > 1:
        return "--data-dir, --rec-train and --benchmark each name the data; give one of them."
    if args.use_rec and not args.data_dir:
        return "--use-rec reads RecordIO files of --data-dir, which was not given; give it, or --rec-train."
    if args.rec_val and not args.rec_train:
        return "--rec-val was given without --rec-train; give both."
    if args.mode == "imperative" and args.devices is not None:
        return (f"--mode imperative runs on one device, but {args.devices} was asked for; "
                "give --devices none, or --mode hybrid.")
    if args.strategy and args.devices is None:
        return f"--strategy {args.strategy} needs several devices; give --devices, for example cpu:2."
    if args.parallel == "pipeline":
        if args.devices is None:
            return "--parallel pipeline needs several devices; give --devices, for example cpu:2."
        if args.strategy:
            return f"--strategy {args.strategy} is for --parallel tiling; drop one of them."
        args.schedule = args.schedule or devices.DEFAULT_SCHEDULE
    for flag in ("schedule", "microbatches"):
        value = getattr(args, flag)
        if value is not None and args.parallel == "tiling":
            return f"--{flag} {value} is for --parallel pipeline; give both."
    if args.width <= 0:
        return f"--width {args.width:g} was given; it must be above 0."
    if not 0 < args.crop_ratio <= 1:
        return f"--crop-ratio {args.crop_ratio:g} was given; it must be above 0 and at most 1."
    if not 0 <= args.label_smoothing < 1:
        return f"--label-smoothing {args.label_smoothing:g} was given; it must be at least 0 and below 1."
    if args.resume_states and not args.resume_params:
        return "--resume-states was given without --resume-params; give both."
    if args.resume_epoch >= args.num_epochs:
        return (f"--resume-epoch {args.resume_epoch} was given with --num-epochs {args.num_epochs}; "
                "it must be smaller, since --num-epochs counts from the first start.")
    return None


def main(default_model: str, argv: Optional[List[str]] = None) -> None:
    """Run a training script."""
    args = parse(default_model, argv)
    devices.set_up(args.devices, args.strategy, args.parallel)
    import training  # imports MXNet, so only after the devices are set up

    try:
        training.run(args)
    except (training.DataError, training.SettingError) as error:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {error}")
