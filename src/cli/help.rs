//! The texts around the options: descriptions of commands, examples, variables, exit codes.
//!
//! Data and plain text, for both `--help` and the manual page. The text of an option is in its doc
//! comment.

pub(super) mod completion;
mod layout;
pub(super) mod man;
mod words;

#[cfg(test)]
pub(super) use layout::columns;
pub(super) use layout::{ERROR_KINDS, after, after_all, exit_codes, template};
pub(super) use words::{CREDENTIALS, FILTERS, GET_USAGE, GLOBS, LOAD_USAGE, SYNC_USAGE, VARIABLES};

/// The program's name.
pub(super) const NAME: &str = "inrush";

/// One-line description of the program.
pub(super) const ABOUT: &str = "Download objects from S3 to a training instance at line rate.";

/// Longer description of the program.
pub(super) const LONG_ABOUT: &str = "Download objects from S3 to a training instance at line \
    rate.\n\n\
    Objects are downloaded in ranges over many connections. Each core runs one thread with its \
    own io_uring (epoll if that is unavailable). Large files bypass the page cache (O_DIRECT) if \
    the file system supports it. A file appears under its name only when it is complete.";

/// The usage line of `verify`.
pub(super) const VERIFY_USAGE: &str = "inrush verify [OPTIONS] SOURCE... DIR";

/// The usage line of `cat`.
pub(super) const CAT_USAGE: &str = "inrush cat [OPTIONS] SOURCE...";

/// The usage line of `doctor`.
pub(super) const DOCTOR_USAGE: &str = "inrush doctor [OPTIONS] [SOURCE] [DEST]";

/// The usage lines of `pipe`.
pub(super) const PIPE_USAGE: &str = "inrush pipe [OPTIONS] SOURCE... DIR/CHANNEL\n       \
    inrush pipe [OPTIONS] --channel NAME=SOURCE... DIR\n       \
    inrush pipe [OPTIONS] --augmented-manifest FILE --attribute NAME... DIR/CHANNEL";

/// Both usage lines of `train`.
pub(super) const TRAIN_USAGE: &str = "inrush train [OPTIONS] --channel NAME=SOURCE... [--] \
    [COMMAND [ARG]...]\n       \
    inrush train [OPTIONS] --job FILE [--] [COMMAND [ARG]...]\n       \
    inrush train [OPTIONS] --init-config FILE [--] [COMMAND [ARG]...]";

/// The description of a command.
pub(super) struct About {
    /// Its name.
    pub(super) name: &'static str,
    /// Its operands, if the table of options cannot distinguish them: name, and lines.
    pub(super) operands: &'static [(&'static str, &'static [&'static str])],
    /// Its effects, in sentences; may be empty.
    pub(super) details: &'static str,
    /// Purpose and command line of each example.
    pub(super) examples: &'static [(&'static str, &'static str)],
    /// True if it connects to a server of the user's.
    pub(super) remote: bool,
}

impl About {
    /// True if sources and filters may have wildcards: a channel's prefix is literal.
    pub(super) fn takes_globs(&self) -> bool {
        self.remote && !matches!(self.name, "doctor" | "train")
    }
}

/// All commands.
pub(super) const COMMANDS: [About; 16] = [
    About {
        name: "get",
        operands: &[
            (
                "SOURCE...",
                &[
                    "what to download: s3://BUCKET/FOLDER/ (everything below it), s3://BUCKET/KEY",
                    "(the object, or else the folder of that name) or a glob such as",
                    "'s3://BUCKET/a/*.tar', quoted so that the shell does not expand it;",
                    "or the URL of one file, https://HOST/PATH/FILE, which may be presigned",
                ],
            ),
            ("DEST", &["local folder; for one object a folder or a file name"]),
        ],
        details: "One object is written into DEST if DEST is a folder or ends in a slash, and \
            otherwise to the file DEST. For a folder or a glob, the path below the folder is \
            recreated below DEST. An existing file is replaced when the new one is \
            complete.\n\n\
            A source that is one object goes to the last name of its key: of several objects with \
            the same last name all but the first fail; two such URLs are an error. Each source \
            costs one request before the download starts. A source that does not exist fails by \
            itself if there are others. \
            The URL of a file is requested without credentials, its redirects are followed, \
            and its query is not printed. Shard I/N is every N-th object in the order of their \
            paths, starting at object I, as pipe takes them without --shuffle-seed.\n\n\
            To resume an interrupted run, run the same command again: complete and unchanged \
            files are skipped, and large unfinished files continue where they stopped.\n\n\
            A file gets the Last-Modified time of its object as its modification time. A file \
            that inrush did not download is skipped, without being verified, if it has the size \
            and the time (to the second) of its object. This is the rule of aws s3 sync \
            --exact-timestamps, rclone and rsync; without that option aws s3 sync skips older \
            files, too, and misses an object that was replaced by one of the same size. Files \
            that inrush downloaded carry a mark, which decides alone: if the object or the file \
            has changed since, it is downloaded again. To skip only files that were verified, \
            run verify --adopt, then use --ignore-times.\n\n\
            SIZE is a number of bytes, or a number with the suffix K, M, G, T, KiB, MiB, GiB or \
            TiB (powers of 1024) or kB, MB, GB or TB (powers of 1000).",
        examples: &[
            ("download a folder", "inrush get s3://bucket/train/ /mnt/nvme/train/"),
            (
                "download one object under another name",
                "inrush get s3://bucket/model.bin /tmp/m.bin",
            ),
            ("download what a glob matches", "inrush get 's3://bucket/train/*.tar' /mnt/train/"),
            (
                "download one quarter of the objects, as another machine does the next",
                "inrush get s3://bucket/train/ /mnt/train/ --shard 0/4",
            ),
            (
                "download the objects that a file lists",
                "inrush get --files-from list.txt /mnt/train/",
            ),
            (
                "download the objects that a manifest of SageMaker lists",
                "inrush get --manifest s3://bucket/train.manifest /mnt/train/",
            ),
            (
                "download only some objects",
                "inrush get s3://bucket/train/ data/ --include '*.tar' --exclude 'old/'",
            ),
            ("list what would be downloaded", "inrush get s3://bucket/train/ data/ --dry-run"),
            (
                "download a file by its URL",
                "inrush get 'https://example.com/data.tar?signature=...' data/",
            ),
            (
                "measure the network without writing to disk",
                "inrush get s3://bucket/train/ --discard",
            ),
            (
                "download from an S3-compatible server",
                "inrush get s3://bucket/train/ data/ --endpoint-url http://10.0.0.7:9000",
            ),
            (
                "run from a script",
                "inrush get s3://bucket/train/ data/ --quiet --json --report objects.jsonl",
            ),
        ],
        remote: true,
    },
    About {
        name: "sync",
        operands: &[
            ("SOURCE...", &["what to download, as for get"]),
            ("DEST", &["local folder to bring up to date"]),
        ],
        details: "Works like get into a folder. With --delete, files and links below DEST that are \
            not in the source are deleted at the end of the run, but only if every object was \
            downloaded and the listing is complete. The sources must then be folders. Never \
            deleted are files that --include and --exclude leave out, names that are not UTF-8, \
            special files, other file systems mounted below DEST, and the targets of links. \
            Each path is printed as it is deleted; --dry-run lists what would be deleted.",
        examples: &[
            ("download new and changed objects", "inrush sync s3://bucket/train/ /mnt/nvme/train/"),
            (
                "delete files that are not in the source as well",
                "inrush sync s3://bucket/train/ /mnt/nvme/train/ --delete",
            ),
            ("list what that would do", "inrush sync s3://bucket/train/ data/ --delete --dry-run"),
        ],
        remote: true,
    },
    About {
        name: "load",
        operands: &[("MODEL", &["the model: s3://BUCKET/FOLDER/"])],
        details: "Works like get into a folder, for programs that read models from files. Left out \
            are weights that such a program does not read: safetensors files beside an index \
            (*.safetensors.index.json) that does not name them, and weights in other formats, such \
            as .bin, .pth, .gguf, .h5 and .onnx, in or below a folder with safetensors files. A \
            model without safetensors files is downloaded whole.\n\n\
            Indexes are read first: if a file that one of them names is missing, the run ends \
            before anything is downloaded.",
        examples: &[
            ("download a model into memory", "inrush load s3://bucket/model/ --to /dev/shm/model"),
            ("measure how fast it loads", "inrush load s3://bucket/model/ --discard --stats"),
        ],
        remote: true,
    },
    About {
        name: "verify",
        operands: &[
            ("SOURCE...", &["the objects that were downloaded, as for get"]),
            ("DIR", &["the local folder; for one object also its file"]),
        ],
        details: "Reads the file of each object, computes its checksum and compares it with the \
            checksum stored in S3. Nothing is downloaded, and nothing is written unless --adopt \
            is given. Besides the \
            listing, each object costs one HEAD request, or three if its checksum is a checksum \
            of parts. If S3 stores no checksum, the MD5 of the file is compared with the \
            ETag.\n\n\
            The result for each object is verified, missing, mismatch (a different size or \
            checksum; both values are reported) or not verified. An object is not verified if \
            S3 stores no checksum and the ETag is not the MD5 of the file, or if the checksum \
            cannot be computed from the file. Its file then has the right size, and the object \
            counts as failed only with --strict. Files in DIR that are not in the source are \
            ignored. Links in DIR are not followed.\n\n\
            With --adopt, files that are verified or empty, whatever program wrote them, get \
            the mark that a download would have given them, and the file system is synced at the \
            end. get and sync then skip them until the object or the file changes. A file that \
            changes while it is read is not adopted and counts as failed; programs that map and \
            write it must be stopped before. A file with several hard links is kept under the \
            name adopted last.\n\n\
            To replace a damaged file, run get with --overwrite always.",
        examples: &[
            ("verify a folder", "inrush verify s3://bucket/train/ /mnt/nvme/train/"),
            (
                "list the files that fail",
                "inrush verify s3://bucket/train/ data/ --report /dev/stdout | grep failed",
            ),
            (
                "take over a folder that another program downloaded",
                "inrush verify s3://bucket/train/ data/ --adopt",
            ),
            (
                "fail if a file cannot be verified",
                "inrush verify s3://bucket/train/ data/ --strict",
            ),
        ],
        remote: true,
    },
    About {
        name: "ls",
        operands: &[],
        details: "Without a source the buckets are listed, each with the time in UTC at which it \
            was created; directory buckets are not among them. Of a folder or bucket one level is \
            listed, with PRE before the folders in it; with --recursive every object below it. A \
            glob lists every object that matches. Several sources are listed one after the \
            other. With --shard all objects below all sources are listed in one order.\n\n\
            Each line holds the time of the last change (ISO 8601), the size in bytes and the \
            address. Lines are printed as the listing arrives. Control characters in keys are \
            escaped, except with --json, where 'kind' is bucket, object, folder or summary.",
        examples: &[
            ("list one level of a folder", "inrush ls s3://bucket/train/"),
            ("list the buckets", "inrush ls"),
            (
                "list all objects and their total size",
                "inrush ls s3://bucket/train/ --recursive --summarize --human-readable",
            ),
            (
                "add up the sizes",
                "inrush ls s3://bucket/train/ --recursive --json | jq -s 'map(.bytes) | add'",
            ),
        ],
        remote: true,
    },
    About {
        name: "pipe",
        operands: &[
            ("SOURCE...", &["what to stream: s3://BUCKET/FOLDER/, s3://BUCKET/KEY or a glob"]),
            ("DIR/CHANNEL", &["the named pipes are DIR/CHANNEL_0, DIR/CHANNEL_1, ..."]),
        ],
        details: "Each epoch is one pass over the objects in key order, or shuffled, through its \
            own named pipe: CHANNEL_0, then CHANNEL_1 and so on. The next pipe is created as soon \
            as the current one is opened. A reader that closes its pipe early ends that epoch. \
            Nothing is stored on disk. A channel that nobody opens downloads the beginning of its \
            first epoch, and waits.\n\n\
            Each epoch has its own listing: an object that is replaced during an epoch is \
            streamed in its new version from the next epoch on. The shuffle depends only on seed \
            and epoch. Shard I/N is every N-th object after the shuffle, starting at object \
            I.\n\n\
            A pipe cannot report that its stream failed. With --on-failure end the reader sees an \
            early end of file: the job must check the exit code or the markers, or it takes part \
            of an epoch for the whole epoch. With --on-failure hold the reader sees no end of \
            file: it blocks until it closes the pipe, or until SIGINT or SIGTERM ends the run. \
            In both cases the error is printed to standard error at once, and the exit code \
            reports it at the end.\n\n\
            With --epoch-markers the file CHANNEL_N.ok is created next to the pipes before the \
            reader of epoch N sees end of file, and only if the reader got every byte. A job that \
            finds no marker after end of file has only part of the epoch. The marker holds one \
            line of JSON with epoch, objects and bytes. Markers of an earlier run are removed \
            before the pipe of their epoch is created.\n\n\
            With --record-wrapper recordio each object is one record of MXNet's RecordIO. A key \
            that ends in a slash and has no bytes is no record. An object of 2^29 bytes or more \
            fits no record, and ends the run, before the first pipe is created if the first page \
            of the listing has it.\n\n\
            With --gunzip each object is a gzip file, and the stream has what it holds. An object \
            without bytes holds nothing. One that is truncated or corrupt, that is no gzip file, \
            or that has other bytes behind its last member ends the stream with an error. Records \
            and augmented manifests cannot be combined with it.\n\n\
            With --augmented-manifest each line of FILE, which may be s3://BUCKET/KEY, is a JSON \
            object, and each --attribute \
            adds its value to the stream, in the order given: of NAME-ref the object whose \
            s3:// address it is, of a string its text, of anything else its JSON as written. \
            With --record-wrapper each value is one record. The shuffle and the shard are of \
            lines. A line that lacks an attribute ends the run before the first pipe is \
            created.\n\n\
            --report writes a line for each object that was written into its pipe completely, and \
            for the object that ended a stream with an error, with channel and epoch. Other \
            objects of an epoch that ended early have none.",
        examples: &[
            (
                "stream three shuffled epochs",
                "inrush pipe s3://bucket/train/ /opt/ml/input/data/train \
                --epochs 3 --shuffle-seed 7",
            ),
            (
                "stream two channels",
                "inrush pipe --channel train=s3://bucket/train/ \
                --channel test=s3://bucket/test/ /opt/ml/input/data --ready-file /tmp/ready",
            ),
            (
                "stream all objects whose keys begin alike, as S3Prefix of SageMaker does",
                "inrush pipe --prefix s3://bucket/data/train /opt/ml/input/data/train",
            ),
            (
                "stream one quarter of the objects",
                "inrush pipe s3://bucket/train/ data/train --shard 0/4",
            ),
            (
                "stream images with their labels, each a record",
                "inrush pipe --augmented-manifest train.jsonl --attribute source-ref \
                --attribute class --record-wrapper recordio data/train",
            ),
        ],
        remote: true,
    },
    About {
        name: "cat",
        operands: &[],
        details: "Objects are written one after the other, in key order. If the reader closes \
            standard output early, the run ends with success.\n\n\
            With --range an END beyond the end of the object is cut to it; a range that begins \
            beyond the end is an error, and nothing is written.",
        examples: &[
            ("list the contents of an archive", "inrush cat s3://bucket/train/0.tar | tar -t"),
            (
                "write the first 1024 bytes of an object",
                "inrush cat --range 0-1023 s3://bucket/train/0.tar | xxd",
            ),
            ("decompress what is read", "inrush cat --gunzip s3://bucket/logs/ | grep ERROR"),
            ("write all objects of a folder", "inrush cat s3://bucket/logs/ | zstd > logs.zst"),
        ],
        remote: true,
    },
    About {
        name: "train",
        operands: &[(
            "COMMAND [ARG]...",
            &[
                "the training program, and all that follows its name; without it the input",
                "is prepared and served",
            ],
        )],
        details: "Lays DIR out as Amazon SageMaker lays out /opt/ml: input/config with the \
            configuration files, input/data with the channels, model and output/data. All \
            channels are listed first, and everything that is wrong with them is reported \
            before anything is downloaded. COMMAND starts when the channels in File mode are \
            complete.\n\n\
            SOURCE is s3://BUCKET/PREFIX or the path of a local folder. The objects of a \
            channel in File mode are files below input/data/NAME, listed in \
            input/data/NAME-manifest; files of an earlier run \
            are kept as get keeps them. A channel in FastFile mode is a mount at \
            input/data/NAME until COMMAND has ended. A channel in Pipe mode is the named pipes \
            input/data/NAME_0, NAME_1 and so on, one for each epoch: the first exists before \
            COMMAND starts, the next one as soon as COMMAND opens its predecessor, and a \
            pipe is removed at the end of its epoch. A reader that closes its pipe early \
            ends that epoch. A local folder becomes the symbolic link input/data/NAME; that \
            nothing is written to it is not enforced.\n\n\
            COMMAND runs in a process group of its own. SIGTERM, SIGINT, SIGHUP, SIGUSR1 and \
            SIGUSR2 are forwarded to it. After one of the first three it has the time of \
            --grace to end; then, or at a second signal, its group is killed. On a terminal \
            COMMAND is the foreground job, and gets Ctrl-C and Ctrl-Z itself. What is left \
            of its group when COMMAND has ended is killed, and mounts and pipes are removed. If \
            inrush itself is killed, the kernel kills COMMAND.\n\n\
            If the input fails, the reason is printed and written to output/failure (1024 \
            characters at most). If COMMAND runs, its pipes give no more data and no end of \
            file, so that it cannot take part of an epoch for the whole epoch, a read of a \
            mount fails with EIO, and it is ended as after SIGTERM. So does --deadline.\n\n\
            The exit code is that of COMMAND, or 128 and the number of the signal that ended \
            it. With a COMMAND, inrush's own exit codes are 125 (the input failed, or the \
            deadline passed), 126 (COMMAND \
            cannot be executed), 127 (COMMAND was not found), 2 (usage error) and \
            130 (interrupted before COMMAND started). Without, and with --check, they are \
            those of the table below. With COMMAND, --json prints to standard error.",
        examples: &[
            (
                "download one channel, stream another, and train",
                "inrush train --channel train=s3://bucket/train/,mode=Pipe \
                --channel test=s3://bucket/test/ -- ./train.sh",
            ),
            ("check the input of a job", "inrush train --check --channel train=s3://bucket/train/"),
            (
                "train outside of a container, as the first of four hosts",
                "inrush train --base-dir /tmp/ml --shard 0/4 \
                --channel train=s3://bucket/train/ -- ./train.sh",
            ),
        ],
        remote: true,
    },
    About {
        name: "mount",
        operands: &[
            ("SOURCE...", &["what is seen below MOUNTPOINT, as for get"]),
            ("MOUNTPOINT", &["an existing folder, best an empty one"]),
        ],
        details: "Shows the objects as files, which are read from S3 when a program reads them. \
            Everything is listed first, and no other names are seen until it is unmounted; with \
            --refresh TIME it is listed again and again, and with --lazy each folder is listed \
            when a program first uses it, and stays so. A file that \
            is read in order is read ahead, further and further; small reads anywhere bring little \
            more than they ask for. A file whose object is replaced while it is open fails with \
            ESTALE; opened again, it is the new version. Writing fails with EROFS. If the server \
            does not answer, a read fails (EIO) after --retry-for, or after --deadline.\n\n\
            The command ends when the mount serves, and a process in the background stays; with \
            --foreground it stays itself. It ends with exit code 0 when it is unmounted, and \
            unmounts with 130 at SIGINT (Ctrl-C) or SIGTERM, and without --refresh at SIGHUP.\n\n\
            Keys that cannot be names (an empty name, '.' or '..', a/b beside an object a, a name \
            that another source has) are hidden; --check lists them. -o allow_other,uid=1000 \
            works as in mount(8).",
        examples: &[
            ("mount a folder", "inrush mount s3://bucket/train/ /mnt/train"),
            (
                "show every five minutes what is new",
                "inrush mount --refresh 5m s3://bucket/train/ /mnt/train",
            ),
            ("mount a large bucket at once", "inrush mount --lazy s3://bucket /mnt/bucket"),
            ("list keys that would be hidden", "inrush mount --check s3://bucket/train/"),
        ],
        remote: true,
    },
    About {
        name: "unmount",
        operands: &[],
        details: "The mount is removed at once; files that are open stay readable as long as its \
            process runs.",
        examples: &[("unmount", "inrush unmount /mnt/train")],
        remote: false,
    },
    About {
        name: "doctor",
        operands: &[
            ("SOURCE", &["what shall be downloaded: its service is checked"]),
            ("DEST", &["local folder that shall have it: its disk is checked"]),
        ],
        details: "Checks kernel, limits, memory, cores and network of this machine; with DEST its \
            file system, with SOURCE credentials, endpoint, clock and region, by asking for a \
            byte of one object; with --endpoint-url alone whether that answers. Each line is ok, \
            warn (it works, but slower) or bad (a run fails), with the command that mends it. \
            The exit code is 1 if a check is bad. It downloads nothing, and writes one small \
            temporary file below DEST. See inrush guide doctor.",
        examples: &[
            ("check all", "inrush doctor s3://bucket/train/ /mnt/nvme"),
            ("check this machine", "inrush doctor"),
        ],
        remote: true,
    },
    About {
        name: "demo",
        operands: &[],
        details: "Needs no server, no credentials and no network: it serves generated objects on \
            the loopback interface and downloads them into a folder that is removed afterwards.",
        examples: &[
            ("run the demo", "inrush demo"),
            ("keep the downloaded files", "inrush demo --keep"),
        ],
        remote: false,
    },
    super::bench::ABOUT,
    About {
        name: "guide",
        operands: &[],
        details: "The pages are Markdown. Without TOPIC, the topics are listed.",
        examples: &[
            ("list the topics", "inrush guide"),
            ("read how interrupted runs resume", "inrush guide resuming | less"),
        ],
        remote: false,
    },
    About {
        name: "completions",
        operands: &[],
        details: "The script completes commands and options, and asks for profiles, buckets, \
            folders and keys while a word is completed: after s3:// for at most 2 seconds, with \
            the credentials and the options of the line.",
        examples: &[(
            "install completions for bash",
            "inrush completions bash > ~/.local/share/bash-completion/completions/inrush",
        )],
        remote: false,
    },
    About {
        name: "man",
        operands: &[],
        details: "",
        examples: &[
            ("read the manual page", "inrush man | man -l -"),
            ("install the manual page", "inrush man > ~/.local/share/man/man1/inrush.1"),
        ],
        remote: false,
    },
];
