#!/usr/bin/env python3
"""SageMaker's PipeModeDataset for TensorFlow, as training programs use it.

    tensorflow_pipes.py STEP...

* epochs:CHANNEL=FORMAT:N reads N epochs of a channel, repeated as one data set.
* zip:CHANNEL=FORMAT:CHANNEL=FORMAT:N reads N epochs of two channels record by record; the shorter
  one ends the epoch of both.
* early:CHANNEL=FORMAT:TAKE reads TAKE records of an epoch, leaves it, and reads the next.

FORMAT is RecordIO, TFRecord or TextLine. The steps run one after the other, in one process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from records import report

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow  # noqa: E402
from sagemaker_tensorflow import PipeModeDataset  # noqa: E402

INPUT = Path(os.environ["SM_INPUT_DIR"])


def dataset(word: str) -> PipeModeDataset:
    """One epoch of a channel."""
    channel, record_format = word.split("=")
    return PipeModeDataset(channel, record_format, pipe_dir=str(INPUT / "data"),
                           state_dir=str(INPUT.parent / "pipe_state"),
                           config_dir=str(INPUT / "config"))


def epochs(word: str, count: str) -> None:
    """All epochs in one go."""
    repeated = dataset(word).repeat(int(count))
    report(f"epochs:{word}", (record.numpy() for record in repeated))


def zipped(left: str, right: str, count: str) -> None:
    """Two channels side by side."""
    pairs = tensorflow.data.Dataset.zip((dataset(left), dataset(right))).repeat(int(count))
    found = [(first.numpy(), second.numpy()) for first, second in pairs]
    report(f"zip:{left}", (first for first, _ in found))
    report(f"zip:{right}", (second for _, second in found))


def early(word: str, take: str) -> None:
    """The beginning of an epoch, then the next one."""
    report(f"early:{word}", (record.numpy() for record in dataset(word).take(int(take))))
    report(f"next:{word}", (record.numpy() for record in dataset(word)))


def main() -> None:
    """The steps."""
    for step in sys.argv[1:]:
        name, *words = step.split(":")
        {"epochs": epochs, "zip": zipped, "early": early}[name](*words)


if __name__ == "__main__":
    main()
