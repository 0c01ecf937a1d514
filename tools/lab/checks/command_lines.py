"""The table of `tools/check.py everyday`: what people type, what they type with `inrush`, and what
both have to do.

Each line runs in an empty folder of its own, after `before` was put there. `$URL` is the server and
`$CA` the authority of its certificate. `Expect` says what is there afterwards: every file with its
bytes, and no other. Where the other tool is meant to do something else, the case has a `peer` of
its own. `why` says in one sentence how both differ, be it in the exit code alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial

from lab.dataset import KIB, MIB

BUCKET = "lab"
OTHER_BUCKET = "other"
ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "example-secret"
SOME_FAILED, CREDENTIALS, NOT_FOUND, ENDPOINT = 1, 3, 4, 6
BIG = 20 * MIB + 3
MANY = 1_203
"""More than one page of a listing."""
FIRST_SECOND = 1_704_067_200
"""When the first object was last modified: 2024-01-01T00:00:00Z."""

SIZES = {
    "a.txt": 1_234, "big.bin": BIG, "empty": 0,
    "train/0.tar": 100 * KIB, "train/1.tar": MIB, "train/2.tar": 300_001, "train/10.tar": 77,
    "train/index.json": 900, "train/notes.txt": 333,
    "train/old/0.tar": 2_000, "train/old/readme.txt": 44, "train/old/er/9.tar": 3_000,
    "trainer/0.tar": 5,
    "names/with space.txt": 21, "names/plus+sign.txt": 22, "names/percent%20.txt": 23,
    "names/100%": 24, "names/\u65e5\u672c\u8a9e.txt": 25, "names/caf\u00e9": 26,
    "names/a&b=c;d.txt": 27, "names/[1].txt": 28, "names/1.txt": 29, "names/it's": 30,
    "names/star*.txt": 31, "names/question?.txt": 32, "names/hash#tag": 33,
    "names/{x,y}": 34, "names/-dash": 35, "names/~tilde": 36, "names/x/folder of/leaf.txt": 37,
    **{f"many/{number:04}": 10 + number % 7 for number in range(MANY)},
}
OBJECTS = {key: random.Random(key).randbytes(size) for key, size in SIZES.items()}
MODIFIED = {key: FIRST_SECOND + 60 * number for number, key in enumerate(OBJECTS)}

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Put:
    """A file that is there before: its bytes, and its modification time if that matters."""

    data: bytes
    seconds: int = FIRST_SECOND - 86_400


@dataclass(frozen=True)
class Expect:
    """What a line has to do."""

    files: Files = field(default_factory=dict)
    """All files afterwards, by their path below the folder where the line runs."""
    stdout: bytes | None = None
    listed: Mapping[str, int | None] | None = None
    """What is listed, by key, with sizes; `None` for folders and buckets."""
    totals: tuple[int, int] | None = None
    head: str | None = None
    """The object whose size and entity tag are printed."""
    code: int = 0
    """The exit code of `inrush`; that of a peer has to be zero where this is."""
    kept: frozenset[str] = frozenset()
    """Files that must not have been written again: by the last run, or at all if there is one."""
    times: bool = False
    """Every file has the time of its object."""


@dataclass(frozen=True)
class Case:
    """One line of another tool, and its counterpart."""

    theirs: str
    ours: str
    expect: Expect
    peer: Expect | None = None
    """What the other tool does where that differs."""
    why: str = ""
    """How they differ, and why that is intended, in one sentence."""
    before: Mapping[str, Put] = field(default_factory=dict)
    runs: int = 1
    server: str = "signed"
    base: str = ""
    """What the peer leaves out of the keys it lists."""
    sizes: bool = True
    """Both print sizes."""
    rounded: bool = False
    """Sizes are for people."""

    @property
    def program(self) -> str:
        """The other tool."""
        return next(word for word in self.theirs.split() if "=" not in word)


def below(prefix: str, into: str = "", keep: Callable[[str], bool] = lambda _: True) -> Files:
    """The objects below a prefix as files: their path below it, under `into`."""
    names = {key: key.removeprefix(prefix) for key in OBJECTS if key.startswith(prefix)}
    return {f"{into}{name}": OBJECTS[key] for key, name in names.items() if keep(name)}


def keys(prefix: str, keep: Callable[[str], bool] = lambda _: True) -> dict[str, int | None]:
    """The keys below a prefix with their sizes."""
    return {key: size for key, size in SIZES.items()
            if key.startswith(prefix) and keep(key.removeprefix(prefix))}


def like(*patterns: str) -> Callable[[str], bool]:
    """A choice of paths that match one of these; `*` also matches `/`."""
    return lambda path: any(fnmatchcase(path, pattern) for pattern in patterns)


def unlike(*patterns: str) -> Callable[[str], bool]:
    """A choice of paths that match none of these."""
    return lambda path: not like(*patterns)(path)


def level(path: str) -> bool:
    """The choice of paths without a folder."""
    return "/" not in path


def top_tar(path: str) -> bool:
    """The choice of archives without a folder."""
    return level(path) and path.endswith(".tar")


def put(files: Files) -> dict[str, Put]:
    """Files that another program put there before."""
    return {path: Put(data) for path, data in files.items()}


def downloaded(prefix: str, into: str) -> dict[str, Put]:
    """The objects below a prefix as another program left them, with their times."""
    return {f"{into}{key.removeprefix(prefix)}": Put(data, MODIFIED[key])
            for key, data in OBJECTS.items() if key.startswith(prefix)}


TRAIN = below("train/", "data/")
NAMES = below("names/", "data/")
STALE = {"data/stale.txt": b"not in the bucket"}
OTHERS = {"data/0.tar": bytes(SIZES["train/0.tar"])}
"""A file of the right size with other bytes, and older than its object."""
NOTHING = Expect()
ONE = Expect({"a.txt": OBJECTS["a.txt"]})
LEVEL = {**keys("train/", level), "train/old/": None}
TOP = {**keys("", level), **dict.fromkeys(["many/", "names/", "train/", "trainer/"])}
BUCKETS = dict.fromkeys([BUCKET, OTHER_BUCKET])
TOTAL = (len(keys("train/")), sum(size or 0 for size in keys("train/").values()))
LISTS = {"list.txt": b"0.tar\nold/readme.txt\n",
         "sources.txt": b"s3://lab/train/0.tar\ns3://lab/train/old/readme.txt\n"}
LISTED = below("train/", "data/", like("0.tar", "old/readme.txt"))
COMMANDS = {"commands.txt": b"cp s3://lab/a.txt out/\ncp s3://lab/train/0.tar out/\n"}

missing = partial(Expect, code=NOT_FOUND)
STAR = "a `*` of {0} passes `/`; that of inrush stops there as a shell's does, and `**` passes"
NOT_FOUND_IS_4 = "{0} exits {1} for this as for other failures; inrush has a code of its own, 4"

AWS = (
    Case("aws s3 cp s3://lab/a.txt a.txt", "inrush get s3://lab/a.txt a.txt",
         Expect({"a.txt": OBJECTS["a.txt"]}, times=True)),
    Case("aws s3 cp s3://lab/a.txt .", "inrush get s3://lab/a.txt .", ONE),
    Case("aws s3 cp s3://lab/a.txt new/", "inrush get s3://lab/a.txt new/",
         Expect({"new/a.txt": OBJECTS["a.txt"]})),
    Case("aws s3 cp s3://lab/big.bin other.bin --only-show-errors",
         "inrush get s3://lab/big.bin other.bin --quiet",
         Expect({"other.bin": OBJECTS["big.bin"]}, stdout=b"")),
    Case("aws s3 cp s3://lab/empty empty", "inrush get s3://lab/empty empty",
         Expect({"empty": b""})),
    Case("aws s3 cp s3://lab/big.bin -", "inrush cat s3://lab/big.bin",
         Expect(stdout=OBJECTS["big.bin"])),
    Case("aws s3 cp s3://lab/train/ data --recursive", "inrush get s3://lab/train/ data",
         Expect(TRAIN, times=True)),
    Case("aws s3 cp s3://lab/train data --recursive", "inrush get s3://lab/train data --recursive",
         Expect(TRAIN)),
    Case("aws s3 cp s3://lab/names/ data --recursive", "inrush get s3://lab/names/ data",
         Expect(NAMES)),
    Case("aws s3 cp s3://lab/ data --recursive --exclude '*' --include '*.tar'",
         "inrush get s3://lab/ data --exclude '*' --include '*.tar'",
         Expect(below("", "data/", like("*.tar")))),
    Case("aws s3 cp s3://lab/train/ data --recursive --exclude 'old/*'",
         "inrush get s3://lab/train/ data --exclude 'old/*'",
         Expect(below("train/", "data/", unlike("old/*")))),
    Case("aws s3 cp s3://lab/train/ data --recursive --exclude '*' --include 'old/*'",
         "inrush get s3://lab/train/ data --exclude '*' --include 'old/*'",
         Expect(below("train/", "data/", like("old/*")))),
    Case("aws s3 cp s3://lab/ data --recursive --exclude '*' --include 'train/*.tar'",
         "inrush get s3://lab/ data --exclude '*' --include 'train/*.tar'",
         Expect(below("train/", "data/train/", top_tar)),
         peer=Expect(below("", "data/", like("train/*.tar"))), why=STAR.format("aws")),
    Case("aws s3 cp s3://lab/ data --recursive --exclude 'old*' --exclude 'many/*'",
         "inrush get s3://lab/ data --exclude 'old*' --exclude 'many/*'",
         Expect(below("", "data/", unlike("*/old*", "many/*"))),
         peer=Expect(below("", "data/", unlike("many/*"))),
         why="a pattern without `/` is compared with the start of the path by aws, with every name "
             "in it by inrush, as in rsync"),
    Case("aws s3 cp s3://lab/train/ data", "inrush get s3://lab/train/ data", Expect(TRAIN),
         peer=missing(), why="aws copies a folder with --recursive only; inrush always does"),
    Case("aws s3 cp 's3://lab/names/plus+sign.txt' -", "inrush cat 's3://lab/names/plus+sign.txt'",
         Expect(stdout=OBJECTS["names/plus+sign.txt"])),
    Case("aws s3 cp 's3://lab/names/[1].txt' .", "inrush get --raw 's3://lab/names/[1].txt' .",
         Expect({"[1].txt": OBJECTS["names/[1].txt"]})),
    Case("aws s3 sync s3://lab/train data", "inrush sync s3://lab/train data",
         Expect(TRAIN, kept=frozenset(TRAIN)), runs=2),
    Case("aws s3 sync s3://lab/train/ data", "inrush sync s3://lab/train/ data",
         Expect(TRAIN, kept=frozenset(TRAIN)), before=downloaded("train/", "data/")),
    Case("aws s3 sync s3://lab/train data --delete", "inrush sync s3://lab/train data --delete",
         Expect(TRAIN), before=put(STALE)),
    Case("aws s3 sync s3://lab/train data --delete --exclude 'stale*'",
         "inrush sync s3://lab/train data --delete --exclude 'stale*'",
         Expect({**TRAIN, **STALE}, kept=frozenset(STALE)), before=put(STALE)),
    Case("aws s3 sync s3://lab/train data --size-only",
         "inrush sync s3://lab/train data --size-only",
         Expect({**TRAIN, **OTHERS}, kept=frozenset(OTHERS)), before=put(OTHERS)),
    Case("aws s3 sync s3://lab/train data --dryrun", "inrush sync s3://lab/train data --dryrun",
         Expect(listed=keys("train/")), sizes=False),
    Case("aws s3 sync s3://lab/train data --exact-timestamps",
         "inrush sync s3://lab/train data --exact-timestamps", Expect(TRAIN), before=put(OTHERS)),
    Case("aws s3 sync s3://lab/train data", "inrush sync s3://lab/train data", Expect(TRAIN),
         peer=Expect({**TRAIN, **OTHERS}), before=put(OTHERS),
         why="aws keeps a file of the same size that is older than its object, but not with "
             "--exact-timestamps; inrush keeps none whose time is another"),
    Case("aws s3 sync s3://lab/train data --delete --dryrun",
         "inrush sync s3://lab/train data --delete --dryrun",
         Expect(STALE, kept=frozenset(STALE)), before=put(STALE)),
    Case("aws s3 ls", "inrush ls", Expect(listed=BUCKETS)),
    Case("aws s3 ls s3://lab/", "inrush ls s3://lab/", Expect(listed=TOP)),
    Case("aws s3 ls s3://lab/many/ --recursive", "inrush ls s3://lab/many/ --recursive",
         Expect(listed=keys("many/"))),
    Case("aws s3 ls s3://lab/train/ --recursive --summarize",
         "inrush ls s3://lab/train/ --recursive --summarize",
         Expect(listed=keys("train/"), totals=TOTAL)),
    Case("aws s3 ls s3://lab/train/ --human-readable", "inrush ls s3://lab/train/ --human-readable",
         Expect(listed=LEVEL), base="train/", rounded=True),
    Case("aws s3 ls s3://lab/train", "inrush ls s3://lab/train", Expect(listed=LEVEL),
         peer=Expect(listed={"train/": None, "trainer/": None}),
         why="aws lists what begins with the text; inrush lists the folder of that name"),
    Case("aws s3 cp s3://lab/missing .", "inrush get s3://lab/missing .", missing(),
         why=NOT_FOUND_IS_4.format("aws", 1)),
    Case("aws s3 cp s3://nowhere/a.txt .", "inrush get s3://nowhere/a.txt .", missing(),
         why=NOT_FOUND_IS_4.format("aws", 1)),
    Case("aws s3 cp s3://lab/missing/ data --recursive", "inrush get s3://lab/missing/ data",
         missing(), peer=NOTHING,
         why="aws succeeds where a prefix has no objects; inrush says that nothing was found"),
    Case("AWS_SECRET_ACCESS_KEY=wrong aws s3 cp s3://lab/a.txt .",
         "AWS_SECRET_ACCESS_KEY=wrong inrush get s3://lab/a.txt .", Expect(code=CREDENTIALS),
         why="aws exits 1 for this as for other failures; inrush has a code of its own, 3"),
    Case("aws s3 cp s3://lab/a.txt .", "inrush get s3://lab/a.txt .", Expect(code=CREDENTIALS),
         server="open", why="aws exits 1 where it finds no credentials; inrush exits 3"),
    Case("aws s3 cp --no-sign-request s3://lab/a.txt .",
         "inrush get --no-sign-request s3://lab/a.txt .", ONE, server="open"),
)

S5CMD = (
    Case("s5cmd cp s3://lab/a.txt .", "inrush get s3://lab/a.txt .", ONE),
    Case("s5cmd cp 's3://lab/train/*' data/", "inrush get s3://lab/train/ data/", Expect(TRAIN)),
    Case("s5cmd cp 's3://lab/names/*' data/", "inrush get s3://lab/names/ data/", Expect(NAMES)),
    Case("s5cmd cp 's3://lab/train/?.tar' data/", "inrush get 's3://lab/train/?.tar' data/",
         Expect(below("train/", "data/", like("?.tar")))),
    Case("s5cmd cp 's3://lab/train/*.tar' data/", "inrush get 's3://lab/train/**/*.tar' data/",
         Expect(below("train/", "data/", like("*.tar")))),
    Case("s5cmd cp 's3://lab/train/*.tar' data/", "inrush get 's3://lab/train/*.tar' data/",
         Expect(below("train/", "data/", top_tar)),
         peer=Expect(below("train/", "data/", like("*.tar"))),
         why=STAR.format("s5cmd")),
    Case("s5cmd --numworkers 4 cp --exclude '*.txt' 's3://lab/train/*' data/",
         "inrush get --connections 4 --exclude '*.txt' s3://lab/train/ data/",
         Expect(below("train/", "data/", unlike("*.txt")))),
    Case("s5cmd cp --concurrency 2 --part-size 5 s3://lab/big.bin .",
         "inrush get --connections 2 --part-size 5MiB s3://lab/big.bin .",
         Expect({"big.bin": OBJECTS["big.bin"]})),
    Case("s5cmd cp -n 's3://lab/train/*' data/",
         "inrush get --overwrite never s3://lab/train/ data/",
         Expect({**TRAIN, **OTHERS}, kept=frozenset(OTHERS)), before=put(OTHERS)),
    Case("s5cmd cp --raw 's3://lab/names/star*.txt' .",
         "inrush get --raw 's3://lab/names/star*.txt' .",
         Expect({"star*.txt": OBJECTS["names/star*.txt"]})),
    Case("s5cmd run commands.txt", "inrush get s3://lab/a.txt s3://lab/train/0.tar out/",
         Expect({**COMMANDS, "out/a.txt": OBJECTS["a.txt"],
                 "out/0.tar": OBJECTS["train/0.tar"]}), before=put(COMMANDS)),
    Case("s5cmd sync 's3://lab/train/*' data/", "inrush sync s3://lab/train/ data/",
         Expect(TRAIN, kept=frozenset(TRAIN)), runs=2),
    Case("s5cmd sync --delete --size-only 's3://lab/train/*' data/",
         "inrush sync --delete --size-only s3://lab/train/ data/",
         Expect({**TRAIN, **OTHERS}, kept=frozenset(OTHERS)), before=put({**STALE, **OTHERS})),
    Case("s5cmd --dry-run cp 's3://lab/train/*' data/", "inrush get -n s3://lab/train/ data/",
         Expect(listed=keys("train/")), sizes=False),
    Case("s5cmd ls s3://lab/train/", "inrush ls s3://lab/train/", Expect(listed=LEVEL),
         base="train/"),
    Case("s5cmd ls --humanize 's3://lab/train/*'", "inrush ls -H --recursive s3://lab/train/",
         Expect(listed=keys("train/")), base="train/", rounded=True),
    Case("s5cmd du 's3://lab/train/*'", "inrush ls --recursive --summarize s3://lab/train/",
         Expect(totals=TOTAL)),
    Case("s5cmd cat s3://lab/a.txt", "inrush cat s3://lab/a.txt", Expect(stdout=OBJECTS["a.txt"])),
    Case("s5cmd cat 's3://lab/train/old/*'", "inrush cat s3://lab/train/old/",
         Expect(stdout=b"".join(OBJECTS[key] for key in sorted(keys("train/old/"))))),
    Case("s5cmd cp 's3://lab/none*' .", "inrush get 's3://lab/none*' .", missing(),
         why=NOT_FOUND_IS_4.format("s5cmd", 1)),
)

RCLONE = (
    Case("rclone copy s3:lab/train data", "inrush get s3://lab/train data",
         Expect(TRAIN, times=True)),
    Case("rclone copyto s3:lab/a.txt b.txt", "inrush get s3://lab/a.txt b.txt",
         Expect({"b.txt": OBJECTS["a.txt"]})),
    Case("rclone copy s3:lab/names data --transfers 4", "inrush get s3://lab/names/ data",
         Expect(NAMES)),
    Case("rclone copy s3:lab/train data --files-from list.txt",
         "inrush get s3://lab/train/ data --include '/0.tar' --include 'old/readme.txt'",
         Expect({**LISTS, **LISTED}), before=put(LISTS)),
    Case("rclone copy s3:lab/train data --files-from list.txt",
         "inrush get --files-from sources.txt data",
         Expect({**LISTS, **below("train/", "data/", like("0.tar")),
                 **below("train/old/", "data/", like("readme.txt"))}),
         peer=Expect({**LISTS, **LISTED}), before=put(LISTS),
         why="rclone's file has paths below one source; each line of inrush's is a source of its "
             "own, and one object goes into DEST by its name alone"),
    Case("rclone copy s3:lab/train data --include '*.tar' --bwlimit 50M",
         "inrush get s3://lab/train/ data --include '*.tar' --bwlimit 50M",
         Expect(below("train/", "data/", like("*.tar")))),
    Case("rclone copy s3:lab/train data --exclude 'old/**'",
         "inrush get s3://lab/train/ data --exclude old/",
         Expect(below("train/", "data/", unlike("old/*")))),
    Case("rclone copy s3:lab/train data --max-depth 1", "inrush get 's3://lab/train/*' data",
         Expect(below("train/", "data/", level))),
    Case("rclone copy s3:nowhere/train data", "inrush get s3://nowhere/train/ data", missing(),
         why=NOT_FOUND_IS_4.format("rclone", 3)),
    Case("rclone sync s3:lab/train data", "inrush sync --delete s3://lab/train data",
         Expect(TRAIN), before=put({**STALE, **OTHERS})),
    Case("rclone copy s3:lab/train data --dry-run", "inrush get s3://lab/train data --dry-run",
         Expect(listed=keys("train/")), base="train/", sizes=False),
    Case("rclone check --one-way s3:lab/train data", "inrush verify s3://lab/train data",
         Expect(TRAIN, kept=frozenset(TRAIN)), before=downloaded("train/", "data/")),
    Case("rclone check --one-way s3:lab/train data", "inrush verify s3://lab/train data",
         Expect({**TRAIN, **OTHERS}, code=SOME_FAILED),
         before={**downloaded("train/", "data/"), **put(OTHERS)}),
    Case("rclone check s3:lab/train data", "inrush verify s3://lab/train data",
         Expect({**TRAIN, **STALE}), peer=Expect({**TRAIN, **STALE}, code=SOME_FAILED),
         before={**downloaded("train/", "data/"), **put(STALE)},
         why="files that the bucket lacks are errors to rclone without --one-way; verify looks at "
             "objects"),
    Case("rclone ls s3:lab/train", "inrush ls --recursive s3://lab/train/",
         Expect(listed=keys("train/")), base="train/"),
    Case("rclone lsf s3:lab", "inrush ls s3://lab", Expect(listed=TOP), sizes=False),
    Case("rclone size --json s3:lab/train", "inrush ls --recursive --summarize s3://lab/train/",
         Expect(totals=TOTAL)),
    Case("rclone cat --offset 10 --count 20 s3:lab/a.txt",
         "inrush cat --range 10-29 s3://lab/a.txt", Expect(stdout=OBJECTS["a.txt"][10:30])),
)

CURL = (
    Case("curl -sSO $URL/lab/a.txt", "inrush get --no-sign-request s3://lab/a.txt .", ONE,
         server="open"),
    Case("curl -sSRo copy.bin $URL/lab/big.bin",
         "inrush get --no-sign-request s3://lab/big.bin copy.bin",
         Expect({"copy.bin": OBJECTS["big.bin"]}, times=True), server="open"),
    Case("curl -sS --create-dirs -o deep/er/b.txt $URL/lab/a.txt",
         "inrush get --no-sign-request s3://lab/a.txt deep/er/b.txt",
         Expect({"deep/er/b.txt": OBJECTS["a.txt"]}), server="open"),
    Case("curl -sS --http1.1 $URL/lab/train/1.tar",
         "inrush cat --no-sign-request s3://lab/train/1.tar",
         Expect(stdout=OBJECTS["train/1.tar"]), server="open"),
    Case("curl -sS -r 0-99 $URL/lab/big.bin",
         "inrush cat --no-sign-request --range 0-99 s3://lab/big.bin",
         Expect(stdout=OBJECTS["big.bin"][:100]), server="open"),
    Case("curl -sS -r -100 $URL/lab/big.bin",
         "inrush cat --no-sign-request --range -100 s3://lab/big.bin",
         Expect(stdout=OBJECTS["big.bin"][-100:]), server="open"),
    Case("curl -sS -r 5000000- $URL/lab/big.bin",
         "inrush cat --no-sign-request --range 5000000- s3://lab/big.bin",
         Expect(stdout=OBJECTS["big.bin"][5_000_000:]), server="open"),
    Case("curl -sSf -r 5000- $URL/lab/a.txt",
         "inrush cat --no-sign-request --range 5000- s3://lab/a.txt",
         Expect(stdout=b"", code=SOME_FAILED), server="open",
         why="curl exits 22 where the server refuses a range beyond the end; inrush exits 1, as "
             "for every object that failed"),
    Case("curl -sSO --limit-rate 50M $URL/lab/big.bin",
         "inrush get --no-sign-request --limit-rate 50M s3://lab/big.bin .",
         Expect({"big.bin": OBJECTS["big.bin"]}), server="open"),
    Case("curl -sS --remote-name-all $URL/lab/a.txt $URL/lab/train/0.tar",
         "inrush get --no-sign-request s3://lab/a.txt s3://lab/train/0.tar .",
         Expect({"a.txt": OBJECTS["a.txt"], "0.tar": OBJECTS["train/0.tar"]}), server="open"),
    Case("curl -sS $URL/lab/train/notes.txt $URL/lab/train/0.tar",
         "inrush cat --no-sign-request s3://lab/train/notes.txt s3://lab/train/0.tar",
         Expect(stdout=OBJECTS["train/0.tar"] + OBJECTS["train/notes.txt"]),
         peer=Expect(stdout=OBJECTS["train/notes.txt"] + OBJECTS["train/0.tar"]), server="open",
         why="curl writes objects as they are typed; inrush merges sources by the path below each, "
             "as its help says"),
    Case("curl -sS $URL/lab/names/percent%2520.txt",
         "inrush cat --no-sign-request s3://lab/names/percent%20.txt",
         Expect(stdout=OBJECTS["names/percent%20.txt"]), server="open"),
    Case("curl -sSO http://127.0.0.1:1/lab/a.txt",
         "inrush get --no-sign-request --endpoint-url http://127.0.0.1:1 --retry-for 0s "
         "--max-attempts 1 s3://lab/a.txt .", Expect(code=ENDPOINT), server="open",
         why="curl exits 7 where nobody listens; inrush exits 6, as for every endpoint that does "
             "not answer as it should"),
    Case("curl -sS -C - -O $URL/lab/big.bin", "inrush get --no-sign-request s3://lab/big.bin .",
         Expect({"big.bin": OBJECTS["big.bin"]}), server="open",
         before=put({"big.bin": OBJECTS["big.bin"][:7_000_000]})),
    Case("curl -sSI $URL/lab/a.txt", "inrush ls --no-sign-request --json s3://lab/a.txt",
         Expect(head="a.txt"), server="open"),
    Case("curl -sSfO $URL/lab/missing", "inrush get --no-sign-request s3://lab/missing .",
         missing(), server="open", why=NOT_FOUND_IS_4.format("curl", 22)),
    Case("curl -sSO --aws-sigv4 aws:amz:us-east-1:s3 -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "
         f"--user {ACCESS_KEY}:{SECRET_KEY} $URL/lab/a.txt", "inrush get s3://lab/a.txt .", ONE),
    Case("curl -sSO --cacert $CA $URL/lab/big.bin",
         "inrush get --no-sign-request --ca-bundle $CA s3://lab/big.bin .",
         Expect({"big.bin": OBJECTS["big.bin"]}), server="tls"),
    Case("curl -sSO $URL/lab/a.txt", "inrush get --no-sign-request s3://lab/a.txt .",
         Expect(code=ENDPOINT), server="tls",
         why="curl exits 60 where it does not trust a certificate; inrush exits 6, as for every "
             "endpoint that does not answer as it should"),
    Case("curl -sSOk $URL/lab/a.txt",
         "inrush get --no-sign-request --no-verify-ssl s3://lab/a.txt .", ONE, server="tls"),
)

CASES = (*AWS, *S5CMD, *RCLONE, *CURL)
