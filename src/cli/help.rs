//! The words around the options: what a command is for, examples, variables, exit codes.
//!
//! Data and plain text, for `--help` and for the manual page alike. What one option does is said
//! beside it.

use std::fmt::Write as _;

use crate::error::ErrorKind;

/// The program's name.
pub(super) const NAME: &str = "inrush";

/// The program in one line.
pub(super) const ABOUT: &str = "Fills a training instance from S3 at line rate.";

/// The program in a few.
pub(super) const LONG_ABOUT: &str = "Fills a training instance from S3 at line rate.\n\n\
    Objects are fetched in ranges over many connections, by one pinned thread per core with an \
    io_uring of its own, and written past the page cache where the file system takes it. A name \
    appears at the destination only when all its bytes are there.";

/// Both forms of `get`.
pub(super) const GET_USAGE: &str = "inrush get [OPTIONS] SOURCE... DEST\n       \
    inrush get [OPTIONS] SOURCE... --discard";

/// The form of `sync`.
pub(super) const SYNC_USAGE: &str = "inrush sync [OPTIONS] SOURCE... DEST";

/// The form of `verify`.
pub(super) const VERIFY_USAGE: &str = "inrush verify [OPTIONS] SOURCE... DIR";

/// Both forms of `pipe`.
pub(super) const PIPE_USAGE: &str = "inrush pipe [OPTIONS] SOURCE... DIR/CHANNEL\n       \
    inrush pipe [OPTIONS] --channel NAME=SOURCE... DIR";

/// A command in words.
pub(super) struct About {
    /// Its name.
    pub(super) name: &'static str,
    /// Its operands, where the table of options cannot tell them apart: name, and lines.
    pub(super) operands: &'static [(&'static str, &'static [&'static str])],
    /// What comes of it, in sentences; may be empty.
    pub(super) details: &'static str,
    /// What one wants, and what one types.
    pub(super) examples: &'static [(&'static str, &'static str)],
    /// Whether it talks to a server of the user's.
    pub(super) remote: bool,
}

/// Every command.
pub(super) const COMMANDS: [About; 9] = [
    About {
        name: "get",
        operands: &[
            (
                "SOURCE...",
                &[
                    "what to fetch: s3://BUCKET/FOLDER/ (all below it), s3://BUCKET/KEY (the",
                    "object, else the folder of that name) or a glob such as",
                    "'s3://BUCKET/a/*.tar', in quotes that keep it from the shell",
                ],
            ),
            ("DEST", &["where to: a folder, or for one object a folder or its file"]),
        ],
        details: "One object goes into DEST if that is a folder or ends in a slash, else to that \
            very name. Of a folder or a glob, the path below the folder is kept below DEST. A \
            file of the same name is replaced once the new one is complete.\n\n\
            A run that was interrupted goes on when it is run again: files that are complete and \
            unchanged are not fetched, and of large unfinished ones only what is missing.\n\n\
            SIZE is digits followed by nothing (bytes), K, M or G, KiB, MiB or GiB (powers of \
            1024), or kB, MB or GB (powers of 1000).",
        examples: &[
            ("all below a folder", "inrush get s3://bucket/train/ /mnt/nvme/train/"),
            ("one object, under another name", "inrush get s3://bucket/model.bin /tmp/m.bin"),
            ("what a glob matches", "inrush get 's3://bucket/train/*.tar' /mnt/nvme/train/"),
            (
                "the shards, without the old ones",
                "inrush get s3://bucket/train/ data/ --include '*.tar' --exclude 'old/'",
            ),
            ("what would move", "inrush get s3://bucket/train/ data/ --dry-run"),
            ("how fast the network alone is", "inrush get s3://bucket/train/ --discard"),
            (
                "from a server of one's own",
                "inrush get s3://bucket/train/ data/ --endpoint-url http://10.0.0.7:9000",
            ),
            (
                "for a script",
                "inrush get s3://bucket/train/ data/ --quiet --json --report objects.jsonl",
            ),
        ],
        remote: true,
    },
    About {
        name: "sync",
        operands: &[
            ("SOURCE...", &["what to fetch, as for get"]),
            ("DEST", &["the folder that becomes as the source is"]),
        ],
        details: "As get into a folder. With --delete, files and links below DEST that are not in \
            the source are removed when all else has succeeded: not when anything failed or the \
            listing was not read to its end. Kept are what --include and --exclude leave out, \
            names that are not UTF-8, special files, other file systems mounted below DEST, and \
            what links lead to. The sources must be folders then. --dry-run lists what would be \
            removed.",
        examples: &[
            ("what is new or has changed", "inrush sync s3://bucket/train/ /mnt/nvme/train/"),
            (
                "exactly what the source has",
                "inrush sync s3://bucket/train/ /mnt/nvme/train/ --delete",
            ),
            ("what that would do", "inrush sync s3://bucket/train/ data/ --delete --dry-run"),
        ],
        remote: true,
    },
    About {
        name: "verify",
        operands: &[
            ("SOURCE...", &["what should be there, as for get"]),
            ("DIR", &["the folder that was filled; of one object also its file"]),
        ],
        details: "Each object of the source is looked for where get would put it, and its file is \
            read and held against the checksum that S3 stores. Nothing is fetched and nothing is \
            written: an object costs its place in the listing and one HEAD, two more if its \
            checksum is one of parts. Where no checksum is stored an ETag counts that is \
            the MD5 of the file.\n\n\
            An object is validated, missing, a mismatch (another size or checksum: both are \
            told), or not validated because no checksum is stored and the ETag is not the MD5 of \
            the file (which it need not be), or because the checksum cannot be computed from \
            the file; then its file has the right size, and that is a failure with --strict \
            alone. Files in DIR that the source does not have are ignored, and no link in DIR is \
            followed.\n\n\
            A file that is wrong although nobody has touched it is replaced by get with \
            --overwrite always.",
        examples: &[
            ("is all there, and right", "inrush verify s3://bucket/train/ /mnt/nvme/train/"),
            (
                "what is not, as a list",
                "inrush verify s3://bucket/train/ data/ --report /dev/stdout | grep failed",
            ),
            ("only what can be proved", "inrush verify s3://bucket/train/ data/ --strict"),
        ],
        remote: true,
    },
    About {
        name: "ls",
        operands: &[],
        details: "Lines appear while the listing goes on: time of the last change (ISO 8601), \
            size in bytes, address. Control characters in keys are escaped; --json has them as \
            they are.",
        examples: &[
            ("all below a folder", "inrush ls s3://bucket/train/"),
            (
                "how many bytes that is",
                "inrush ls s3://bucket/train/ --json | jq -s 'map(.bytes) | add'",
            ),
        ],
        remote: true,
    },
    About {
        name: "pipe",
        operands: &[
            ("SOURCE...", &["what to serve: s3://BUCKET/FOLDER/, s3://BUCKET/KEY or a glob"]),
            ("DIR/CHANNEL", &["the named pipes are DIR/CHANNEL_0, DIR/CHANNEL_1, ..."]),
        ],
        details: "Each epoch is one pass over the objects in key order, or shuffled, through a \
            named pipe of its own: CHANNEL_0, then CHANNEL_1 and so on. The next one is there as \
            soon as this one has been opened. A reader that closes early ends its epoch. Nothing \
            waits on the disk, and a channel that nobody opens costs nothing.\n\n\
            Each epoch is listed by itself: an object that is replaced meanwhile counts from the \
            next one on. The shuffle is a function of seed and epoch alone; shard I/N is every \
            N-th object after the shuffle, from place I on.\n\n\
            A pipe cannot say that its stream failed. With --on-failure end the reader sees an end \
            of file where the bytes stop: a job takes a part of the epoch for the whole, unless it \
            looks at the exit code or at the markers. With --on-failure hold it sees no end of \
            file: it waits until it closes the pipe, or until SIGINT or SIGTERM ends the run. \
            Either way the error is on standard error at once, and the exit code says it at the \
            end.\n\n\
            With --epoch-markers the file CHANNEL_N.ok appears beside the pipes before the reader \
            of epoch N sees its end of file, and only if that reader took every byte: a job that \
            finds no marker after an end of file has a part of the epoch. It holds a line of \
            JSON with epoch, objects and bytes; markers of an earlier run are removed before \
            the pipe of their epoch appears.",
        examples: &[
            (
                "three epochs, shuffled",
                "inrush pipe s3://bucket/train/ /opt/ml/input/data/train \
                --epochs 3 --shuffle-seed 7",
            ),
            (
                "two channels",
                "inrush pipe --channel train=s3://bucket/train/ \
                --channel test=s3://bucket/test/ /opt/ml/input/data --ready-file /tmp/ready",
            ),
            ("this host's quarter", "inrush pipe s3://bucket/train/ data/train --shard 0/4"),
        ],
        remote: true,
    },
    About {
        name: "cat",
        operands: &[],
        details: "The objects one after the other, in key order. A reader that has seen enough and \
            closes is success.",
        examples: &[
            ("look into an archive", "inrush cat s3://bucket/train/0.tar | tar -t"),
            ("all below a folder", "inrush cat s3://bucket/logs/ | zstd > logs.zst"),
        ],
        remote: true,
    },
    About {
        name: "demo",
        operands: &[],
        details: "Needs no server, no credentials and no network: it serves made-up objects on \
            the loopback interface and fetches them into a folder that is removed afterwards.",
        examples: &[
            ("try it out", "inrush demo"),
            ("look at the files afterwards", "inrush demo --keep"),
        ],
        remote: false,
    },
    About {
        name: "completions",
        operands: &[],
        details: "",
        examples: &[(
            "for bash",
            "inrush completions bash > ~/.local/share/bash-completion/completions/inrush",
        )],
        remote: false,
    },
    About {
        name: "man",
        operands: &[],
        details: "",
        examples: &[
            ("read it", "inrush man | man -l -"),
            ("install it", "inrush man > ~/.local/share/man/man1/inrush.1"),
        ],
        remote: false,
    },
];

/// Variables that count where the option is not given.
pub(super) const VARIABLES: [(&str, &str); 15] = [
    ("AWS_ENDPOINT_URL_S3", "see --endpoint-url; stronger than AWS_ENDPOINT_URL"),
    ("AWS_ENDPOINT_URL", "see --endpoint-url"),
    ("AWS_REGION", "see --region; stronger than AWS_DEFAULT_REGION"),
    ("AWS_DEFAULT_REGION", "see --region"),
    ("AWS_PROFILE", "see --profile"),
    ("AWS_USE_DUALSTACK_ENDPOINT", "true: see --use-dualstack-endpoint"),
    ("AWS_USE_FIPS_ENDPOINT", "true: see --use-fips-endpoint"),
    ("AWS_S3_DISABLE_EXPRESS_SESSION_AUTH", "true: directory buckets without sessions"),
    ("INRUSH_SSE_C_KEY", "see --sse-c-key-file"),
    ("HTTPS_PROXY", "proxy to https servers, http://...; HTTP_PROXY to others, ALL_PROXY to all"),
    ("NO_PROXY", "hosts to be asked directly: a.example.com,.example.com,10.0.0.0/8,host:9000,*"),
    ("AWS_ACCESS_KEY_ID", "key, with AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"),
    ("AWS_CONFIG_FILE", "configuration file, instead of ~/.aws/config"),
    ("AWS_SHARED_CREDENTIALS_FILE", "credentials file, instead of ~/.aws/credentials"),
    ("AWS_EC2_METADATA_DISABLED", "true: do not ask the instance for credentials"),
];

/// Where else keys come from.
pub(super) const CREDENTIALS: &str = "Keys are looked for where the AWS tools look: the \
    environment, the profile (keys, SSO, a process, a role), web identity, the container, the \
    instance.";

/// Exit codes and what they mean, success included.
pub(super) fn exit_codes() -> impl Iterator<Item = (u8, &'static str)> {
    let failures = ErrorKind::ALL.into_iter().map(|kind| (kind.exit_code(), kind.meaning()));
    std::iter::once((0, "success")).chain(failures)
}

/// The help of a command whose operands the table of options cannot tell apart.
pub(super) fn template(about: &About) -> Option<String> {
    let width = about.operands.iter().map(|(name, _)| name.len()).max()?;
    let mut operands = String::new();
    for (name, lines) in about.operands {
        for (index, line) in lines.iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            let _ = writeln!(operands, "  {name:width$}  {line}");
        }
    }
    Some(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n\
         Arguments:\n{operands}\n{{all-args}}{{after-help}}"
    ))
}

/// What follows the options of a command.
pub(super) fn after(about: &About) -> String {
    let mut text = String::new();
    if !about.details.is_empty() {
        text += about.details;
        text += "\n\n";
    }
    text += "Examples:\n";
    for (what, typed) in about.examples {
        text += &format!("  # {what}\n  {typed}\n");
    }
    if about.remote {
        text += "\nEnvironment:\n";
        text += &columns(VARIABLES.into_iter());
        text += &format!("\n{CREDENTIALS}\n");
    }
    text + "\nExit codes:\n" + &exit_code_table()
}

/// What follows the commands.
pub(super) fn after_all() -> String {
    let mut text = String::from("Examples:\n");
    for about in &COMMANDS {
        for (what, typed) in about.examples.iter().take(1) {
            text += &format!("  # {what}\n  {typed}\n");
        }
    }
    text + "\nExit codes:\n" + &exit_code_table()
}

fn exit_code_table() -> String {
    exit_codes().fold(String::new(), |mut table, (code, meaning)| {
        let _ = writeln!(table, "  {code:>3}  {meaning}");
        table
    })
}

fn columns<'a>(rows: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> String {
    let width = rows.clone().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.fold(String::new(), |mut table, (name, meaning)| {
        let _ = writeln!(table, "  {name:width$}  {meaning}");
        table
    })
}
