//! Completion by bash, as its own functions call the script: options, profiles and keys.

use std::fs;
use std::process::Command;

use inrush_origin::{Config, ObjectSpec, Origin};

use crate::objects;
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET, config, serve, start};

/// Completes the last word; the program stands in `$0`.
const SCRIPT: &str = r#"
inrush() { "$program" "$@"; }
program="$0"
source <(inrush completions bash)
COMP_WORDS=(inrush "$@")
COMP_CWORD=$#
_inrush inrush "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}"
"#;

fn complete(words: &[&str]) -> Program {
    Program::new(words).by_way_of(["bash", "-c", SCRIPT])
}

fn offered(run: &Run) -> Vec<&str> {
    run.stdout.lines().collect()
}

fn asking(origin: &Origin, words: &[&str]) -> Run {
    let program = complete(words).with_keys(ACCESS_KEY, SECRET).set("AWS_REGION", "us-east-1");
    let run = program.set("AWS_ENDPOINT_URL", origin.url()).run().expect(0);
    run.check(run.stderr.is_empty(), "nothing was expected on standard error");
    run
}

#[test]
fn keys_are_offered_level_by_level() {
    let keys = [("p/a", 1), ("p/deep/b", 1), ("p/two words", 1), ("p/s*r", 1), ("q", 1)];
    let origin = serve(&objects(&keys));
    assert_eq!(offered(&asking(&origin, &["ls", "s3://lab/"])), ["s3://lab/p/", "s3://lab/q"]);
    let level =
        ["s3://lab/p/a", "s3://lab/p/deep/", r"s3://lab/p/s\\\*r", r"s3://lab/p/two\ words"];
    assert_eq!(offered(&asking(&origin, &["get", "-v", "s3://lab/p/"])), level);
    assert_eq!(offered(&asking(&origin, &["get", "s3://lab/p/d"])), ["s3://lab/p/deep/"]);
    // As bash hands on what was typed: with what takes the meaning from a character.
    for typed in [r"s3://lab/p/s\\\*", r"s3://lab/p/s\*", "s3://lab/p/s*", r#""s3://lab/p/s*"#] {
        let run = asking(&origin, &["ls", typed]);
        let quoted = typed.starts_with('"');
        let expected = if quoted { r"s3://lab/p/s\\*r" } else { r"s3://lab/p/s\\\*r" };
        assert_eq!(offered(&run), [expected], "{typed}");
    }
    assert_eq!(
        offered(&asking(&origin, &["ls", r"s3://lab/p/two\ w"])),
        [r"s3://lab/p/two\ words"]
    );
    assert_eq!(offered(&asking(&origin, &["ls", "'s3://lab/p/two w"])), ["s3://lab/p/two words"]);
    // As readline cuts it, which replaces what is behind the colon.
    let cut = ["get", "s3", ":", "//lab/p/deep/"];
    assert_eq!(offered(&asking(&origin, &cut)), ["//lab/p/deep/b"]);
    // Its server stands on the line, cut as well.
    let port = origin.url().rsplit_once(':').expect("a port").1.to_owned();
    let words =
        ["ls", "--endpoint-url", "http", ":", "//127.0.0.1", ":", &port, "s3", ":", "//lab/q"];
    let program = complete(&words).with_keys(ACCESS_KEY, SECRET).set("AWS_REGION", "us-east-1");
    let run = program.run().expect(0);
    assert_eq!(offered(&run), ["//lab/q"], "{run}");
}

#[test]
fn no_key_is_more_than_a_word_in_an_open_quote() {
    let keys = ["h/$(id)", "h/`id`", "h/\"q", "h/it's", r"h/\$(id)", "h/a!b", "h/!\"`id`'$(id)\""];
    let origin = serve(&objects(&keys.map(|key| (key, 1))));
    for quote in ["", "\"", "'"] {
        let run = asking(&origin, &["ls", &format!("{quote}s3://lab/h/")]);
        // What bash reads, a word a line: each key, as the program takes it, and nothing else.
        let closed = |word: &str| format!(" {quote}{word}{quote}");
        let closed: String = offered(&run).into_iter().map(closed).collect();
        let script = format!("printf '%s\\n'{closed}");
        let read = Command::new("bash").args(["-c", &script]).output().expect("bash");
        let read = String::from_utf8(read.stdout).expect("text");
        // History is expanded in double quotes, and nothing keeps it from that.
        let is_meant = |key: &&str| quote != "\"" || !key.contains('!');
        let mut meant: Vec<_> = keys.into_iter().filter(is_meant).collect();
        meant.sort_unstable();
        let meant: Vec<_> =
            meant.iter().map(|key| format!("s3://lab/{}", key.replace('\\', r"\\"))).collect();
        assert_eq!(read.lines().collect::<Vec<_>>(), meant, "{quote}: {script}");
    }
    // A quote inside of the word: where it would go on, something else may be open.
    for typed in ["s3://lab/\"h/", "s3://lab/'h/", "\"s3://lab/\"h/", "'s3://lab/h'/"] {
        assert_eq!(offered(&asking(&origin, &["ls", typed])), [""; 0], "{typed}");
    }
}

#[test]
fn buckets_are_offered_where_there_are_keys() {
    let mut served = config(&objects(&[("q", 1)]));
    let other = ObjectSpec { bucket: "other".to_owned(), ..served.objects[0].clone() };
    served.objects.push(other);
    let origin = start(served);
    assert_eq!(offered(&asking(&origin, &["ls", "s3://"])), ["s3://lab/", "s3://other/"]);
    assert_eq!(offered(&asking(&origin, &["ls", "s3", ":", "//l"])), ["//lab/"]);
    assert_eq!(offered(&asking(&origin, &["ls", "s3://lab"])), ["s3://lab/"]);
    let unsigned = start(Config { credentials: Vec::new(), ..config(&objects(&[("q", 1)])) });
    for (typed, expected) in [("s3://", &[][..]), ("s3://la", &[]), ("s3://lab", &["s3://lab/"])] {
        let words = ["ls", "--no-sign-request", typed];
        let run = complete(&words).set("AWS_ENDPOINT_URL", unsigned.url()).run().expect(0);
        assert_eq!(offered(&run), expected, "{run}");
    }
}

#[test]
fn what_cannot_be_asked_for_is_not_offered_and_not_reported() {
    let origin = serve(&objects(&[("q", 1)]));
    for words in [&["ls", "s3://other/"][..], &["ls", "s3://x"], &["ls", "s3://lab/none"]] {
        let run = asking(&origin, words);
        assert!(offered(&run).is_empty(), "{run}");
    }
    let nobody = complete(&["ls", "s3://lab/"]).set("AWS_ENDPOINT_URL", "http://127.0.0.1:9");
    let run = nobody.with_keys(ACCESS_KEY, SECRET).run().expect(0);
    run.check(run.stdout.is_empty() && run.stderr.is_empty(), "nothing");
    run.check(run.seconds < 30.0, "it does not wait");
    let run = complete(&["ls", "s3://lab/"]).run().expect(0);
    run.check(run.stdout.is_empty() && run.stderr.is_empty(), "nobody has keys");
}

#[test]
fn profiles_are_offered_from_both_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("written");
        path
    };
    let config = place("config", "[default]\n[profile train]\n[sso-session team]\n");
    let credentials = place("credentials", "[test]\naws_access_key_id = AKID\n[default]\n");
    let offers = |words: &[&str], expected: &[&str]| {
        let program = complete(words).set("AWS_CONFIG_FILE", &config);
        let run = program.set("AWS_SHARED_CREDENTIALS_FILE", &credentials).run().expect(0);
        assert_eq!(offered(&run), expected, "{run}");
    };
    offers(&["get", "--profile", ""], &["default", "test", "train"]);
    offers(&["get", "--profile", "t"], &["test", "train"]);
    offers(&["get", "--profile", "=", "tr"], &["train"]);
    offers(&["get", "--profile=te"], &["--profile=test"]);
}

#[test]
fn files_are_offered_for_options_that_take_files_alone() {
    let offers = |words: &[&str]| complete(words).run().expect(0).stdout;
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "").expect("written");
    let start = folder.path().join("fi").display().to_string();
    let file = format!("{}le\n", start);
    for option in ["--report", "--ca-bundle", "--sse-c-key-file"] {
        assert_eq!(offers(&["get", option, &start]), file, "{option}");
    }
    assert_eq!(offers(&["pipe", "--ready-file", &start]), file);
    for option in ["--region", "--endpoint-url", "--part-size", "--include", "--version-id"] {
        assert_eq!(offers(&["get", option, &start]), format!("{start}\n"), "{option}");
    }
    assert_eq!(offers(&["get", "--verify", ""]), "off\nauto\nstrict\n");
    assert!(offers(&["get", "--dry"]).starts_with("--dry-run"));
    assert!(!offers(&["comp"]).contains("complete\n"));
}
