//! Maps commands and options of the AWS CLI, s5cmd, rclone, rsync, curl and wget to those of
//! inrush.

use super::owners;

/// Commands of other programs, and their replacement.
const COMMANDS: [(&[&str], &str); 7] = [
    (
        &["copy", "cp", "download", "move", "mv"],
        "download with 'inrush get s3://BUCKET/KEY DEST'; inrush does not upload and never changes \
         the bucket",
    ),
    (
        &["put", "upload", "rm", "rb", "mb", "delete", "remove", "tag", "restore"],
        "inrush only reads from S3: it does not upload, create or delete anything there",
    ),
    (
        &["presign", "website"],
        "inrush only reads from S3: it downloads, lists, streams and verifies objects",
    ),
    (
        &["s3", "s3api"],
        "inrush only reads from S3 and has its commands without this word, such as 'inrush ls' \
         and 'inrush get'",
    ),
    (
        &["head", "stat"],
        "inrush only reads from S3; 'inrush ls --json s3://BUCKET/KEY' prints size, time and ETag",
    ),
    (&["umount"], "unmount with 'inrush unmount MOUNTPOINT'"),
    (&["du"], "use 'inrush ls --recursive --summarize s3://BUCKET/FOLDER/'"),
];

/// The replacement of another program's command.
pub(in crate::cli) fn of_command(name: &str) -> Option<&'static str> {
    COMMANDS.iter().find(|(names, _)| names.contains(&name)).map(|(_, instead)| *instead)
}

/// Options of other programs, and their replacement.
const OPTIONS: [(&[&str], &str); 11] = [
    (&["--no-check-certificate", "--insecure", "-k"], "--no-verify-ssl"),
    (&["--ignore-existing", "--no-clobber"], "--overwrite never"),
    (&["--force", "-f"], "--overwrite always"),
    (
        &[
            "--transfers",
            "--concurrency",
            "--max-concurrent-requests",
            "--numworkers",
            "--multi-thread-streams",
            "-c",
            "-j",
        ],
        "--connections",
    ),
    (&["--threads"], "--workers"),
    (&["--retries", "--retry", "--retry-count", "--tries"], "--max-attempts"),
    (&["--timeout", "--cli-read-timeout"], "--read-timeout"),
    (&["--cli-connect-timeout"], "--connect-timeout"),
    (&["--checksum"], "--verify strict"),
    (&["--debug"], "-vv"),
    (&["--compressed", "--decompress", "--uncompress", "--ungzip", "--gzip", "-z"], "--gunzip"),
];

/// The replacement of another program's option, after this command; `words` are all typed words.
pub(super) fn of_option<'a>(
    option: &str,
    command: &str,
    mut words: impl Iterator<Item = &'a str>,
) -> Option<String> {
    let is_download = matches!(command, "get" | "sync");
    let instead = match option {
        "-r" | "-R" | "--recursive" if command == "ls" => "use --recursive",
        "-r" | "-R" => "it is not needed, a folder is downloaded whole",
        "--recursive" => "it is not needed, all below a folder is taken",
        "--progress" => "progress is shown by default on a terminal",
        "-l" if command == "ls" => "it is not needed, sizes and times are always printed",
        "--output" if words.any(|word| word == "json" || word == "--output=json") => "use --json",
        "-o" | "-O" | "--output" | "--output-dir" | "--dir" if is_download => {
            "the last argument is the folder or file to write"
        }
        "--update" | "-u" if is_download => {
            "'inrush sync' downloads only what is new or has changed"
        }
        "--checksum" if command == "verify" => "it is not needed, verify compares checksums",
        _ => return use_instead(option, command),
    };
    Some(instead.to_owned())
}

fn use_instead(option: &str, command: &str) -> Option<String> {
    let (_, instead) = OPTIONS.iter().find(|(names, _)| names.contains(&option))?;
    let name = instead.split(' ').next().unwrap_or_default();
    // `-vv` is `-v`, twice.
    let owners = owners(if name == "-vv" { "-v" } else { name });
    let has_it = command.is_empty() || owners.iter().any(|owner| owner == command);
    Some(match has_it {
        true => format!("use {instead}"),
        false => {
            format!("{command} has no such option; {instead} is an option of {}", owners.join(", "))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_suggested_can_be_typed() {
        for (names, instead) in OPTIONS {
            let name = instead.split(' ').next().expect("a name");
            let name = if name == "-vv" { "-v" } else { name };
            assert!(!owners(name).is_empty(), "{instead}");
            for typed in names {
                let long = typed.len() > 2;
                assert!(!long || owners(typed).is_empty(), "{typed} is an option");
            }
        }
    }

    #[test]
    fn options_of_other_programs() {
        let advice = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            of_option(words[1], words[0], words.iter().copied()).unwrap_or_default()
        };
        for (line, expected) in [
            ("get --insecure", "use --no-verify-ssl"),
            ("sync -k", "use --no-verify-ssl"),
            ("get --no-clobber", "use --overwrite never"),
            ("get --force", "use --overwrite always"),
            ("pipe --transfers", "use --connections"),
            ("get --numworkers", "use --connections"),
            ("get -c", "use --connections"),
            ("get --retries", "use --max-attempts"),
            ("ls --timeout", "use --read-timeout"),
            ("get --checksum", "use --verify strict"),
            ("verify --debug", "use -vv"),
            ("get -R", "it is not needed, a folder is downloaded whole"),
            ("ls -r", "use --recursive"),
            ("ls --output json", "use --json"),
            ("get -o", "the last argument is the folder or file to write"),
            ("get --update", "'inrush sync' downloads only what is new or has changed"),
            (
                "ls --retries",
                "ls has no such option; --max-attempts is an option of get, sync, load, pipe, cat, \
                 train, mount, demo, bench",
            ),
            ("get --wrokers", ""),
        ] {
            assert_eq!(advice(line), expected, "{line}");
        }
    }
}
