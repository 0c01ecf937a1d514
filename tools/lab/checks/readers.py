"""Every record that programs which read training input get from `inrush train`.

Each case is a real job: `inrush train` takes its channels from the in-repo origin on loopback and
runs a consumer of tools/lab/consumers as its command. What the consumer prints of each record is
compared with what was put there, in order.

* tensorflow: SageMaker's PipeModeDataset with RecordIO, TFRecord and text lines over three epochs,
  two channels side by side, and an epoch that is left early.
* toolkit: the Environment of the sagemaker-training toolkit, and the variables that it would set.
* webdataset: tar files of a File channel, of a Pipe channel, and by `pipe:inrush cat`.
* bring, patient: readers as in AWS's examples and as in the MLIO library, of whole, shuffled and
  sharded channels.
* recordio: RecordIO as MXNet reads it.
* tables: CSV files in folders, as the XGBoost container reads them.

`--only` and `--may-skip` name consumers. They are installed into the build folder, once; TensorFlow
has 1.2 GB and needs Python 3.10. It takes about a minute after that.
"""

from __future__ import annotations

import json
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import dataset, driver, install, process, samples, streams
from lab.consumers import records
from lab.process import LabError, Word

BUCKET = "lab"
KEYS = ("AKIDREADERS", "secret/of+readers")
EPOCHS = 3
SEED = 7
CASE_SECONDS = 180.0
CONSUMERS = install.CONSUMERS
PYTHONS = {"tensorflow": "tensorflow", "toolkit": "sagemaker-training", "webdataset": "webdataset"}
"""Whose Python runs the consumer; the other cases need nothing but Python."""
Expected = Mapping[str, Sequence[bytes]]


@dataclass(frozen=True)
class Objects:
    """What is in the bucket: by key, in the order of keys."""

    found: Mapping[str, bytes]

    def below(self, prefix: str) -> list[bytes]:
        """The objects of a channel."""
        return [self.found[key] for key in sorted(self.found) if key.startswith(prefix)]


@dataclass(frozen=True)
class Case:
    """One job."""

    name: str
    what: str
    channels: Sequence[str]
    command: Sequence[str]
    expected: Expected
    options: Sequence[str] = ()


@dataclass(frozen=True)
class Lab:
    """What the cases need."""

    of: driver.Lab
    env: Mapping[str, str]


def record_files() -> dict[str, list[list[bytes]]]:
    """The records of objects that have many, by channel."""
    return {
        "raw": [samples.records(f"raw {number}", [*samples.small_sizes(f"r{number}", 400, 4000),
                                                  *samples.SIZES]) for number in range(3)],
        "tfr": [samples.records(f"tfr {number}", samples.small_sizes(f"t{number}", 300, 900))
                for number in range(4)],
        "txt": [samples.lines(f"txt {number}", 8_000, 200) for number in range(5)]}


def tar_members(number: int) -> list[tuple[str, bytes]]:
    """The samples of one tar file: three fields each."""
    sizes = samples.small_sizes(f"tar {number}", 60, 40_000)
    return [(f"{number}-{index:03}.{name}", data)
            for index, size in enumerate(sizes)
            for name, data in zip(("cls", "jpg", "json"), samples.records(
                f"member {number} {index}", (1, size, 30)), strict=True)]


def tables() -> dict[str, list[list[str]]]:
    """The CSV files, by their paths below the channel; some are deep, one is empty."""
    paths = ("0.csv", "1.csv", "2025/a.csv", "2025/b.csv", "2026/11/part-0.csv",
             "2026/11/part-1.csv", "2026/12/31/deep.csv", "without suffix")
    return {**{path: samples.rows(path, 500) for path in paths}, "2026/empty.csv": []}


def make_objects() -> Objects:
    """The whole bucket."""
    found: dict[str, bytes] = {}
    whole = [*samples.records("rec", [*samples.SIZES, 3 << 20]), samples.with_magic(4099)]
    found |= {f"rec/{number:04}": data for number, data in enumerate(whole)}
    many = record_files()
    for channel, join in (("raw", samples.recordio), ("tfr", samples.tfrecords),
                          ("txt", lambda lines: b"".join(line + b"\n" for line in lines))):
        found |= {f"{channel}/part-{number}": join(part)
                  for number, part in enumerate(many[channel])}
    sizes = [size for size in samples.SIZES for _ in range(2)]
    found |= {f"stream/{number % 3}/{number:03}": data
              for number, data in enumerate(samples.records("stream", [*sizes, 9 << 20]))}
    found |= {f"tars/shard-{number:04}.tar": samples.tar(tar_members(number))
              for number in range(4)}
    found |= {f"csv/{path}": samples.table(rows) for path, rows in tables().items()}
    return Objects(found)


def pipes(prefix: str, objects: Objects, share: tuple[int, int] = (0, 1),
          seed: int | None = None) -> dict[str, list[bytes]]:
    """What a reader of whole epochs must get."""
    found, (rank, count) = objects.below(f"{prefix}/"), share
    orders = [found if seed is None else streams.shuffled(found, seed, epoch)
              for epoch in range(EPOCHS)]
    return {f"{prefix}_{epoch}": [b"".join(order[rank::count])]
            for epoch, order in enumerate(orders)}


def channel(prefix: str, *words: str) -> str:
    """A channel by the name of its prefix."""
    return ",".join([f"{prefix}=s3://{BUCKET}/{prefix}/", *words])


def stream_cases(objects: Objects) -> list[Case]:
    """Readers of pipes that need nothing but Python."""
    cases = []
    for way in ("bring", "patient"):
        command = ("pipes.py", way, "stream", str(EPOCHS))
        plain, seeded = channel("stream", "mode=Pipe"), channel(
            "stream", "mode=Pipe", f"shuffle-seed={SEED}")
        cases += [
            Case(way, "three epochs", [plain], command, pipes("stream", objects)),
            Case(way, "shuffled", [seeded], command, pipes("stream", objects, seed=SEED)),
            *(Case(way, f"shuffled, host {rank + 1} of 2", [seeded], command,
                   pipes("stream", objects, (rank, 2), SEED), ("--shard", f"{rank}/2"))
              for rank in range(2)),
            # 40 hosts share 33 objects.
            Case(way, "a host without objects", [plain], command,
                 {f"stream_{epoch}": [b""] for epoch in range(EPOCHS)}, ("--shard", "39/40"))]
    wrapped = channel("rec", "mode=Pipe", "record-wrapper=RecordIO")
    cases.append(Case("recordio", "one record for each object", [wrapped],
                      ("pipes.py", "recordio", "rec", str(EPOCHS)),
                      {f"rec_{epoch}": objects.below("rec/") for epoch in range(EPOCHS)}))
    cases.append(Case("recordio", "objects of many records", [channel("raw", "mode=Pipe")],
                      ("pipes.py", "recordio", "raw", str(EPOCHS)),
                      {f"raw_{epoch}": sum(record_files()["raw"], []) for epoch in range(EPOCHS)}))
    return cases


def tensorflow_cases(objects: Objects) -> list[Case]:
    """PipeModeDataset. All cases of one channel are one process: TensorFlow starts slowly."""
    many = {name: sum(parts, []) for name, parts in record_files().items()}
    many["rec"] = objects.below("rec/")
    raw, rec, tfr, txt = "raw=RecordIO", "rec=RecordIO", "tfr=TFRecord", "txt=TextLine"
    channels = [channel("raw", "mode=Pipe"), channel("tfr", "mode=Pipe"),
                channel("rec", "mode=Pipe", "record-wrapper=RecordIO"), channel("txt", "mode=Pipe")]
    forms = {raw: "raw", rec: "rec", tfr: "tfr", txt: "txt"}
    cases = [Case("tensorflow", "three epochs of four channels", channels,
                  ("tensorflow_pipes.py", *(f"epochs:{form}:{EPOCHS}" for form in forms)),
                  {f"epochs:{form}": many[name] * EPOCHS for form, name in forms.items()})]
    short = min(len(many["tfr"]), len(many["txt"]))
    cases.append(Case("tensorflow", "two channels side by side, the shorter one ends", channels,
                      ("tensorflow_pipes.py", f"zip:{tfr}:{txt}:{EPOCHS}"),
                      {f"zip:{tfr}": many["tfr"][:short] * EPOCHS,
                       f"zip:{txt}": many["txt"][:short] * EPOCHS}))
    take = 100
    early = [raw, txt]
    cases.append(Case("tensorflow", "an epoch that is left early, and the next", channels,
                      ("tensorflow_pipes.py", *(f"early:{form}:{take}" for form in early)),
                      {**{f"early:{form}": many[forms[form]][:take] for form in early},
                       **{f"next:{form}": many[forms[form]] for form in early}}))
    return cases


def file_cases(objects: Objects) -> list[Case]:
    """Readers of files."""
    fields = [f"{name}=".encode() + data
              for number in range(4) for name, data in tar_members(number)]
    first = fields[:len(tar_members(0))]
    braces = "shard-{0000..0003}.tar"
    one = f"one=s3://{BUCKET}/tars/shard-0000.tar,mode=Pipe"
    return [
        Case("webdataset", "tar files of a folder, of a pipe, and by cat",
             [channel("tars"), one],
             ("tars.py", f"folder=$DATA/tars/{braces}", "pipe=$DATA/one_0", "next=$DATA/one_1",
              f"cat=pipe:inrush cat --quiet s3://{BUCKET}/tars/{braces}"),
             {"folder": fields, "pipe": first, "next": first, "cat": fields}),
        Case("tables", "CSV files in folders", [channel("csv")], ("tables.py", "csv"),
             {f"csv/{path}": ["\x1f".join(row).encode() for row in rows]
              for path, rows in tables().items()})]


def leftovers(base: Path) -> str | None:
    """A pipe that is still there, if any."""
    for path in sorted((base / "input/data").iterdir()):
        if stat.S_ISFIFO(path.lstat().st_mode):
            return f"the pipe {path.name} is left"
    return None


def difference(reported: Mapping[str, Sequence[str]], expected: Expected) -> str | None:
    """Where the records are not those that were put, if anywhere."""
    if set(reported) != set(expected):
        return f"records of {sorted(reported)}, not of {sorted(expected)}"
    for source, wanted in expected.items():
        found, prints = reported[source], records.fingerprints(wanted)
        if list(found) == prints:
            continue
        at = next((index for index, (a, b) in enumerate(zip(found, prints, strict=False))
                   if a != b), min(len(found), len(prints)))
        shown = [list(side[at:at + 1]) for side in (found, prints)]
        return (f"{source}: {len(found)} records, not {len(prints)}; record {at} is {shown[0]}, "
                f"not {shown[1]}")
    return None


def train(lab: Lab, base: Path, words: Sequence[Word], command: Sequence[Word],
          extra: Mapping[str, str] | None = None) -> process.Outcome:
    """One job to its end."""
    return process.run(
        [lab.of.inrush, "train", "--base-dir", base, *words, "--", *command],
        seconds=CASE_SECONDS, env={**lab.env, **(extra or {})})


def run_case(lab: Lab, case: Case, python: Path) -> None:
    """Runs one job in a folder of its own, and compares."""
    script, *words = case.command
    channels = [word for text in case.channels for word in ("--channel", text)]
    with tempfile.TemporaryDirectory(dir=lab.of.temp, prefix="job-") as folder:
        base = Path(folder) / "ml"
        outcome = train(lab, base, [*channels, *case.options],
                        [python, CONSUMERS / script, *words])
        complaint = outcome.trouble or leftovers(base) or difference(
            records.reported(outcome.stdout), case.expected)
    count = sum(len(wanted) for wanted in case.expected.values())
    lab.of.report(f"{case.name:10}  {case.what}", complaint,
                  f"{count} records in {outcome.seconds:.1f} s")


def toolkit_request() -> dict[str, object]:
    """A job as it is described to CreateTrainingJob."""
    def data(prefix: str, mode: str, **more: str) -> dict[str, object]:
        source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{prefix}/",
                  "S3DataDistributionType": more.pop("distribution", "FullyReplicated")}
        return {"ChannelName": prefix, "DataSource": {"S3DataSource": source}, "InputMode": mode,
                **more}

    return {
        "TrainingJobName": "readers-1",
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "RoleArn": "arn:aws:iam::123456789012:role/training",
        "HyperParameters": {"epochs": "3", "rate": "0.5", "name": '"quoted"', "word": "plain",
                            "list": "[1, 2]", "on": "true", "with-dash": "x y"},
        "InputDataConfig": [data("csv", "File", ContentType="text/csv"),
                            data("rec", "Pipe", RecordWrapperType="RecordIO"),
                            data("txt", "Pipe", distribution="ShardedByS3Key")],
        "OutputDataConfig": {"S3OutputPath": "s3://elsewhere/"},
        "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 3,
                           "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600}}


def toolkit_expected(base: Path) -> dict[str, object]:
    """What the toolkit must make of it on the second host."""
    hosts = ["algo-1", "algo-2", "algo-3"]
    described = {"S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
    return {
        "channel_input_dirs": {name: f"{base}/input/data/{name}" for name in ("csv", "rec", "txt")},
        "current_host": "algo-2", "hosts": hosts, "is_master": False,
        "hyperparameters": {"epochs": 3, "rate": 0.5, "name": "quoted", "word": "plain",
                            "list": [1, 2], "on": True, "with-dash": "x y"},
        "input_data_config": {
            "csv": {**described, "TrainingInputMode": "File", "ContentType": "text/csv"},
            "rec": {**described, "TrainingInputMode": "Pipe", "RecordWrapperType": "RecordIO"},
            "txt": {**described, "TrainingInputMode": "Pipe",
                    "S3DistributionType": "ShardedByS3Key"}},
        "model_dir": f"{base}/model", "output_data_dir": f"{base}/output/data",
        "job_name": "readers-1", "current_instance_type": "ml.c5.xlarge",
        "instance_groups": ["homogeneousCluster"], "variables_that_differ": {}}


def run_toolkit(lab: Lab, python: Path) -> None:
    """The toolkit as the command of the second of three hosts."""
    with tempfile.TemporaryDirectory(dir=lab.of.temp, prefix="job-") as folder:
        base, request = Path(folder) / "ml", Path(folder) / "job.json"
        request.write_text(json.dumps(toolkit_request()))
        outcome = train(lab, base, ["--job", request], [python, CONSUMERS / "toolkit.py"],
                        {"INRUSH_HOST_RANK": "1", "INRUSH_HOST_COUNT": "3"})
        found = {} if outcome.trouble else json.loads(outcome.stdout)
        wrong = [f"{name} is {found.get(name)}, not {wanted}"
                 for name, wanted in toolkit_expected(base).items() if found.get(name) != wanted]
        complaint = outcome.trouble or "; ".join(wrong) or leftovers(base)
    lab.of.report(f"{'toolkit':10}  the second of three hosts", complaint,
                  f"{found.get('variables')} variables in {outcome.seconds:.1f} s")


def run(of: driver.Lab) -> None:
    """All cases of each consumer, whose Python is installed first."""
    objects = make_objects()
    cases = [*stream_cases(objects), *file_cases(objects), *tensorflow_cases(objects)]
    dataset.write_all(of.temp / "buckets" / BUCKET, objects.found)
    lab = Lab(of, {**of.with_keys(*KEYS), "PYTHONDONTWRITEBYTECODE": "1"})
    for name in of.among(sorted({"toolkit", *(case.name for case in cases)})):
        try:
            python = install.program(PYTHONS[name]) if name in PYTHONS else Path(sys.executable)
        except LabError as error:
            of.miss(name, error)
            continue
        if name == "toolkit":
            run_toolkit(lab, python)
        for case in cases:
            if case.name == name:
                run_case(lab, case, python)
