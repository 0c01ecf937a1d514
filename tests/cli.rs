//! The real binary: help, usage errors, exit codes, completions, the page. No server is asked.

use std::io::Read;
use std::process::{Command, Output, Stdio};

/// The program with these words, in an environment of its own.
fn inrush(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inrush"));
    command.args(words).env_clear().stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    inrush(words).output().expect("the program starts")
}

/// Runs the program and expects this exit code; a failure prints both outputs.
fn check(words: &[&str], code: i32) -> (String, String) {
    let output = run(words);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let status = output.status;
    assert_eq!(
        status.code(),
        Some(code),
        "inrush {words:?}: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
    );
    (stdout, stderr)
}

#[test]
fn errors_have_the_colours_of_usage_errors() {
    let start = |words: &[&str], variable: &str| {
        let output = inrush(words).env(variable, "1").output().expect("the program starts");
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        stderr.split_once(':').expect("a label").0.to_owned()
    };
    // Neither asks anyone: the one is refused by the table of options, the other by the program.
    let usage = ["get", "s3://bucket/a"];
    let error = ["get", "s3://bucket/a", "b", "--region", "no region"];
    for words in [&usage[..], &error] {
        assert_eq!(start(words, "CLICOLOR_FORCE"), "\u{1b}[1m\u{1b}[31merror", "{words:?}");
        assert_eq!(start(words, "NO_COLOR"), "error", "{words:?}");
    }
}

/// As some shells and CI runners set it where there is no terminal.
#[test]
fn a_terminal_of_no_columns_is_none() {
    let [unset, zero] = [None, Some("0")].map(|columns| {
        let mut help = inrush(&["get", "--help"]);
        if let Some(columns) = columns {
            help.env("COLUMNS", columns);
        }
        String::from_utf8(help.output().expect("the program starts").stdout).expect("UTF-8")
    });
    assert_eq!(zero, unset);
}

#[test]
fn an_option_of_another_command_is_said_to_be_that() {
    let expect_message = |words: &[&str], expected: &str| {
        let (stdout, stderr) = check(words, 2);
        assert!(stdout.is_empty() && stderr.contains(expected), "{words:?}: {stderr}");
    };
    expect_message(
        &["get", "--delete", "s3://bucket/a", "b"],
        "--delete is an option of sync, not of get",
    );
    expect_message(&["ls", "--adopt", "s3://bucket/"], "--adopt is an option of verify, not of ls");
    expect_message(&["get", "-H", "s3://bucket/", "b"], "-H is an option of ls, not of get");
    expect_message(&["cat", "--dry-run", "s3://bucket/a"], "--dry-run is an option of get");
    expect_message(
        &["demo", "--region=x"],
        "--region is an option of get, sync, load, verify, ls, pipe, cat, train, mount, doctor and \
         bench",
    );
    let behind = "mount, doctor and bench; options go behind the command";
    expect_message(
        &["--adopt", "get", "s3://bucket/a", "b"],
        "verify; options go behind the command",
    );
    expect_message(&["--region=x", "get", "s3://bucket/a", "b"], behind);
    expect_message(&["--region", "x", "demo"], behind);
    expect_message(&["--region"], behind);
    // An option that no command has gets clap's message, which suggests a similar one.
    expect_message(&["get", "--deadlin", "1s"], "unexpected argument '--deadlin' found");
    expect_message(&["get", "--deadlin", "1s"], "'--deadline'");
}

#[test]
fn what_other_programs_have_is_said_in_one_line() {
    let expect_message = |words: &[&str], expected: &str| {
        let (stdout, stderr) = check(words, 2);
        assert!(stdout.is_empty() && stderr.contains(expected), "{words:?}: {stderr}");
        assert_eq!(stderr.matches('\n').count(), 1, "{words:?}: {stderr}");
    };
    let get =
        |option: &str, expected: &str| expect_message(&["get", "s3://b/a", option, "d"], expected);
    get("--no-check-certificate", "'--no-check-certificate': use --no-verify-ssl\n");
    get("--ignore-existing", "use --overwrite never");
    get("--timeout=5", "unexpected argument '--timeout': use --read-timeout");
    get("-r", "it is not needed, a folder is downloaded whole");
    get("--progress", "shown by default");
    expect_message(&["ls", "-R", "s3://bucket/"], "use --recursive");
    expect_message(&["ls", "--output", "json"], "use --json");
    for word in ["rm", "mb", "put", "s3", "head", "presign"] {
        expect_message(
            &[word, "s3://bucket/a"],
            &format!("subcommand '{word}': inrush only reads from S3"),
        );
    }
    expect_message(
        &["du", "s3://bucket/a"],
        "use 'inrush ls --recursive --summarize s3://BUCKET/FOLDER/'",
    );
    // Neither is an operand, so clap's tip to type it behind `--` would mislead.
    for option in ["-P", "-o", "-l", "--qqq"] {
        let (_, stderr) = check(&["cat", option, "s3://bucket/a"], 2);
        assert!(!stderr.contains("-- ") && !stderr.contains("tip:"), "{stderr}");
    }
}

#[test]
fn help_that_cannot_be_printed_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let output = inrush(&["--version"]).stdout(full).output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(stderr.starts_with("error: cannot write to standard output: "), "{stderr}");
}

#[test]
fn no_topic_is_suggested_at_random() {
    let (_, stderr) = check(&["guide", "nope"], 2);
    assert!(!stderr.contains("similar") && stderr.contains("sources"), "{stderr}");
    let (_, stderr) = check(&["guide", "resume"], 2);
    assert!(stderr.contains("similar value exists: 'resuming'"), "{stderr}");
    assert_eq!(check(&["guide", "Sources"], 0), check(&["guide", "sources"], 0));
}

const COMMANDS: [&str; 7] = ["get", "verify", "ls", "demo", "guide", "completions", "man"];

#[test]
fn help_is_data() {
    for words in [&["--help"][..], &["-h"], &["get", "--help"], &["--version"]] {
        let (stdout, stderr) = check(words, 0);
        assert!(!stdout.is_empty() && stderr.is_empty(), "{words:?}: {stderr}");
        assert!(!stdout.contains('\u{1b}'), "colours without a terminal");
    }
    let (stdout, _) = check(&["--help"], 0);
    for command in COMMANDS {
        assert!(stdout.contains(&format!("\n  {command} ")), "{command}");
        let (stdout, _) = check(&[command, "--help"], 0);
        assert!(stdout.contains("Exit codes:") && stdout.contains("  130  interrupted"));
    }
    assert_eq!(check(&["help", "get"], 0), check(&["get", "--help"], 0));
    let (stdout, _) = check(&["--version"], 0);
    assert_eq!(stdout, format!("inrush {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn nothing_typed_is_answered_with_the_commands() {
    let (stdout, stderr) = check(&[], 2);
    assert!(stdout.is_empty() && stderr.contains("Commands:"), "{stderr}");
}

#[test]
fn usage_errors_exit_with_2_and_say_what_to_do() {
    let expect_message = |words: &[&str], expected: &str| {
        let (stdout, stderr) = check(words, 2);
        assert!(stdout.is_empty(), "{words:?}: {stdout}");
        assert!(stderr.starts_with("error: ") && stderr.contains(expected), "{words:?}: {stderr}");
    };
    expect_message(&["fetch"], "unrecognized subcommand");
    expect_message(&["cp", "s3://bucket/a", "b"], "inrush get s3://BUCKET/KEY DEST");
    expect_message(&["get", "s3://bucket/a", "-"], "inrush cat");
    expect_message(&["get", "a", "s3://bucket/a"], "does not upload");
    expect_message(&["get", "--wrokers", "3", "s3://bucket/a", "b"], "--workers");
    expect_message(&["get", "s3://bucket/a", "b", "--memory", "1"], "4MiB or more");
    expect_message(
        &["get", "s3://bucket/a", "b", "--bandwidth-limit", "0"],
        "expected 1000 bytes a second or more",
    );
    expect_message(&["cat", "s3://bucket/a", "--bwlimit", "fast"], "a size is digits");
    expect_message(
        &["sync", "s3://bucket/a/", "b", "--size-only", "--ignore-times"],
        "cannot be used with",
    );
    expect_message(
        &["get", "s3://bucket/a", "b", "--adopt"],
        "--adopt is an option of verify, not of get",
    );
    expect_message(&["ls", "--recursive"], "--recursive needs a source such as s3://BUCKET/");
    expect_message(&["cat"], "<SOURCE>");
    expect_message(&["cat"], "Usage: inrush cat [OPTIONS] SOURCE...");
    expect_message(&["ls", "bucket/a"], "does not start with s3://");
    expect_message(&["completions", "ksh"], "possible values");
}

#[test]
fn a_missing_destination_is_reported_in_one_line() {
    let (_, stderr) = check(&["get", "s3://bucket/a"], 2);
    assert_eq!(
        stderr,
        "error: the destination is missing: add a folder or a file after 's3://bucket/a', or use \
         --discard to download and verify without writing\n"
    );
}

#[test]
fn the_guide_is_data() {
    let (list, stderr) = check(&["guide"], 0);
    assert!(list.starts_with("Topics:\n  sources ") && stderr.is_empty(), "{list}{stderr}");
    let topics = inrush::guide::TOPICS;
    assert!(topics.len() > 10);
    for topic in topics {
        assert!(list.contains(&format!("\n  {} ", topic.name)), "{list}");
        assert!(list.contains(topic.summary), "{list}");
        assert_eq!(check(&["guide", topic.name], 0), (topic.text.to_owned(), String::new()));
        assert!(topic.text.starts_with("# ") && topic.text.ends_with('\n'), "{}", topic.name);
    }
    let (stdout, stderr) = check(&["guide", "endpoint"], 2);
    assert!(stdout.is_empty() && stderr.contains("'endpoints'"), "{stderr}");
    let (stdout, stderr) = check(&["guide", "zzz"], 2);
    assert!(stdout.is_empty() && stderr.contains("verification"), "{stderr}");
}

#[test]
fn completions_and_the_page_are_data() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (stdout, stderr) = check(&["completions", shell], 0);
        assert!(stdout.contains("part-size") && stderr.is_empty(), "{shell}: {stderr}");
    }
    let (stdout, stderr) = check(&["man"], 0);
    assert!(stdout.contains(".TH inrush 1") && stderr.is_empty(), "{stderr}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    for words in [&["man"][..], &["completions", "zsh"], &["get", "--help"], &["guide", "pipes"]] {
        let mut child = inrush(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        // Gone before the first byte is written, or soon after.
        drop(child.stdout.take());
        let mut stderr = String::new();
        let mut pipe = child.stderr.take().expect("it is piped");
        pipe.read_to_string(&mut stderr).expect("text");
        let status = child.wait().expect("it ends");
        assert!(status.success() && stderr.is_empty(), "{words:?}: {status} {stderr}");
    }
}
