//! Tests of the arguments: the values that each option accepts and refuses, and rules about the
//! table of all.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::error::ErrorKind as Kind;
use crate::limits;
use crate::plan::filter::Rule;
use crate::plan::manifest::Layout;
use crate::plan::typed_range::TypedRange;
use crate::s3::uri::KeyPattern;

fn parse_line(line: &str) -> Result<Args, clap::Error> {
    parse(std::iter::once("inrush").chain(line.split_whitespace()))
}

fn get(line: &str) -> GetArgs {
    match parse_line(&format!("get s3://bucket/a/ out {line}")) {
        Ok(Args::Get(args)) => *args,
        other => panic!("{line}: {other:?}"),
    }
}

/// The refusal of a `get` with these options, on one line.
fn refusal(line: &str) -> String {
    message(&format!("get s3://bucket/a/ out {line}"))
}

fn message(line: &str) -> String {
    match parse_line(line) {
        Ok(args) => panic!("{line}: {args:?}"),
        Err(error) => {
            assert!(error.use_stderr(), "{line}: {error}");
            error.to_string()
        }
    }
}

#[test]
fn what_is_not_typed_is_not_there() {
    let args = get("");
    let sources: Vec<_> = args.sources.iter().map(ToString::to_string).collect();
    assert_eq!(sources, ["s3://bucket/a/"]);
    assert_eq!(args.destination, Destination::Local("out".into()));
    assert!(!args.dry_run);
    assert_eq!(args.report, None);
    assert_eq!(args.selection, SelectionArgs { urls: true, ..SelectionArgs::default() });
    assert_eq!(args.service, ServiceArgs::default());
    assert_eq!(args.tuning, TuningArgs::default());
    assert_eq!(args.output, OutputArgs::default());
}

#[test]
fn operands() {
    let Ok(Args::Get(args)) = parse_line("get s3://bucket/a s3://bucket/b/*.tar dir/") else {
        panic!("two sources and a destination")
    };
    assert_eq!(args.sources.len(), 2);
    assert_eq!(args.destination, Destination::Local("dir/".into()));
    let Ok(Args::Get(args)) = parse_line("get s3://bucket/a --discard s3://bucket/b") else {
        panic!("two sources and no destination")
    };
    assert_eq!(args.sources.len(), 2);
    assert_eq!(args.destination, Destination::Discard);
}

#[test]
fn several_destinations() {
    assert!(get("").spread_to.is_empty());
    let args = get("--spread-to a --spread-to=b,c");
    assert_eq!(args.destination, Destination::Local("out".into()));
    assert_eq!(args.spread_to, [std::path::Path::new("a"), "b,c".as_ref()], "a comma is a comma");
    assert!(message("get s3://bucket/a --discard --spread-to b").contains("cannot be used with"));
    assert!(refusal("--spread-to s3://bucket/b").contains("s3://bucket/b"));
    assert!(refusal("--spread-to=").contains("is empty"));
    assert!(refusal(&"--spread-to a ".repeat(64)).contains("at most 64"));
    assert!(
        message("sync s3://bucket/a/ b --spread-to c").contains("an option of get, not of sync")
    );
}

#[test]
fn operands_that_do_not_fit_are_reported_in_one_line() {
    let check = |line: &str, expected: &str| {
        let refusal = message(line);
        assert!(refusal.contains(expected), "{line}: {refusal}");
        assert_eq!(refusal.matches('\n').count(), 1, "{line}: {refusal}");
    };
    check("get", "source and destination are missing");
    check("get --discard", "the source is missing");
    check("get out", "the source is missing");
    check("get s3://bucket/a", "the destination is missing: add a folder or a file");
    check("get s3://bucket/a", "or use --discard");
    check("sync s3://bucket/", "the destination is missing: add a folder after 's3://bucket/'\n");
    check("get s3://bucket/a s3://bucket/b", "after 's3://bucket/b'");
    check("get s3://bucket/a s3://other/", "inrush does not copy between buckets");
    check("get s3://bucket/a s3a://bucket/b", "'s3a://bucket/b' is not a local destination");
    check("get s3://bucket/a -", "'-' is not a destination: 'inrush cat SOURCE' writes");
    check("get a.tar s3://bucket/a", "inrush does not upload, and 'a.tar' is not an S3 address");
    check("sync ./ s3://bucket/", "inrush does not upload");
    for other in ["cp", "copy", "download", "mv", "move"] {
        check(
            &format!("{other} s3://bucket/a b"),
            "download with 'inrush get s3://BUCKET/KEY DEST'",
        );
    }
    check("get a b", "'a' is not an S3 address");
    check("get s3://buck*/a b", "wildcard");
    check("get s3://bucket/a out --discard", "unexpected destination 'out'");
    let error = parse(["inrush", "get", "s3://bucket/a", ""]).expect_err("an empty name");
    assert!(error.to_string().contains("the destination is empty"), "{error}");
}

#[cfg(unix)]
#[test]
fn destinations_need_not_be_utf_8_and_sources_must() {
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(vec![b's', 0xff]);
    let words = ["inrush", "get", "s3://bucket/a"].map(OsString::from);
    let args = parse(words.iter().cloned().chain([odd.clone()])).expect("a destination");
    let Args::Get(args) = args else { panic!("not get") };
    assert_eq!(args.destination, Destination::Local(odd.clone().into()));
    let error = parse(words.into_iter().chain([odd, "out".into()])).expect_err("not a source");
    assert!(error.to_string().contains("is not UTF-8"), "{error}");
}

#[test]
fn selection() {
    let include = |pattern: &str| Rule::Include(pattern.to_owned());
    let exclude = |pattern: &str| Rule::Exclude(pattern.to_owned());
    let args = get("--include *.tar --exclude old/ --include=*.idx --exclude x").selection;
    assert_eq!(args.rules, [include("*.tar"), exclude("old/"), include("*.idx"), exclude("x")]);
    assert_eq!(get("--exclude * --include a").selection.rules, [exclude("*"), include("a")]);
    let Ok(Args::Verify(args)) = parse_line("verify --exclude b s3://bkt/a d --include a") else {
        panic!("a check")
    };
    assert_eq!(args.selection.rules, [exclude("b"), include("a")]);
}

#[test]
fn a_file_of_sources_stands_for_sources() {
    let from = |args: SelectionArgs| args.files_from.expect("a file").display().to_string();
    assert_eq!(from(get("--files-from list").selection), "list");
    for line in [
        "get --files-from - d",
        "get --files-from - --discard",
        "sync --files-from - d",
        "verify --files-from - d",
        "pipe --files-from - d/c",
        "cat --files-from -",
        "ls --files-from -",
    ] {
        let (selection, sources) = match parse_line(line).expect(line) {
            Args::Get(args) => (args.selection, args.sources),
            Args::Verify(args) => (args.selection, args.sources),
            Args::Pipe(args) => (args.selection, args.channels[0].sources.clone()),
            Args::Cat(args) => (args.selection, args.sources),
            Args::Ls(args) => (args.selection, args.sources),
            other => panic!("{other:?}"),
        };
        assert!(sources.is_empty() && from(selection) == "-", "{line}");
    }
    assert!(
        message("get --files-from -").contains("error: the destination is missing: add a folder")
    );
    assert!(message("get --files-from - s3://bucket/a").contains("the destination is missing"));
    assert!(message("ls --files-from - --version-id V").contains("cannot be used with"));
    assert!(message("ls s3:// --files-from -").contains("--files-from needs a source"));
    assert!(message("pipe --channel c=s3://bkt/k --files-from - d").contains("do not go together"));
}

#[test]
fn prefixes_and_manifests() {
    let selection = |line: &str| match parse_line(line).expect(line) {
        Args::Get(args) => (args.selection, args.sources),
        Args::Verify(args) => (args.selection, args.sources),
        Args::Pipe(args) => (args.selection, args.channels[0].sources.clone()),
        Args::Cat(args) => (args.selection, args.sources),
        Args::Ls(args) => (args.selection, args.sources),
        other => panic!("{other:?}"),
    };
    for line in [
        "get --prefix s3://bkt/a* d",
        "sync --prefix s3://bkt/a* d",
        "verify --prefix s3://bkt/a* d",
        "pipe --prefix s3://bkt/a* d/c",
        "pipe --prefix --channel c=s3://bkt/a* d",
        "cat --prefix s3://bkt/a*",
        "ls --prefix --raw s3://bkt/a*",
    ] {
        let (selection, sources) = selection(line);
        assert!(selection.prefix, "{line}");
        assert!(matches!(&sources[0].key, KeyPattern::Prefix(key) if key == "a*"), "{line}");
    }
    let file = Some(ManifestPlace::File("m.json".into()));
    let layouts = [
        ("", Layout::Relative),
        ("--manifest-layout relative ", Layout::Relative),
        ("--manifest-layout full ", Layout::Full),
    ];
    for line in ["get ~d", "sync ~d", "verify ~d", "pipe ~d/c", "cat ~", "ls ~"] {
        for (typed, layout) in layouts {
            let line = line.replace('~', &format!("--manifest m.json {typed}"));
            let (selection, sources) = selection(line.trim());
            assert!(sources.is_empty(), "{line}");
            assert_eq!((&selection.manifest, selection.manifest_layout), (&file, layout), "{line}");
        }
    }
    let (of_s3, _) = selection("ls --manifest s3://bkt/a*/m.json");
    let place = ManifestPlace::S3("bkt".to_owned(), "a*/m.json".to_owned());
    assert_eq!(of_s3.manifest, Some(place));
    for (line, expected) in [
        ("get --manifest m s3://bkt/a d", "give no source besides"),
        ("get --manifest m --prefix d", "cannot be used with"),
        ("get --manifest m --files-from f d", "cannot be used with"),
        ("ls --manifest m --version-id V", "cannot be used with"),
        ("get --manifest s3://bkt/ d", "expected a file or s3://BUCKET/KEY"),
        ("get --manifest-layout full s3://bkt/a d", "--manifest <FILE>"),
        ("get --prefix s3://bkt/a --version-id V d", "is not a single object"),
        ("pipe --channel c=s3://bkt/k --manifest m d", "do not go together"),
        ("ls s3:// --manifest m", "--manifest needs a source"),
        ("demo --manifest m", "is an option of get, sync, verify, ls, pipe, cat and mount"),
    ] {
        assert!(message(line).contains(expected), "{line}: {}", message(line));
    }
}

#[test]
fn options_of_parts() {
    let Ok(Args::Cat(args)) = parse_line("cat --range 0-99 s3://bkt/k") else { panic!("a range") };
    assert_eq!(args.range, Some(TypedRange::From { first: 0, last: Some(99) }));
    for typed in ["--range -5", "--range=-5", "--range bytes=-5"] {
        let Ok(Args::Cat(args)) = parse_line(&format!("cat {typed} s3://bkt/k")) else {
            panic!("{typed}")
        };
        assert_eq!(args.range, Some(TypedRange::Last(5)), "{typed}");
    }
    for sources in ["s3://bkt/k s3://bkt/l", "s3://bkt/f/", "s3://bkt", "s3://bkt/*"] {
        let refusal = message(&format!("cat --range 0- {sources}"));
        assert!(refusal.contains("--range takes a single source that is one object"), "{refusal}");
    }
    assert!(message("cat --range 5 s3://bkt/k").contains("expected START-END, START- or -SUFFIX"));
    assert!(message("cat --range 0- s3://bkt/k --report f").contains("cannot be used with"));
    assert!(message("cat --range 0- --files-from f").contains("cannot be used with"));
    assert!(refusal("--range 0-9").contains("'inrush cat --range=0-9 s3://BUCKET/KEY > FILE'"));
    assert!(!long_help("get").contains("--range"));

    for line in ["cat s3://bkt/k --report r", "pipe s3://bkt/k d/c --report r"] {
        let stream = match parse_line(line).expect(line) {
            Args::Cat(args) => args.stream,
            Args::Pipe(args) => args.stream,
            other => panic!("{other:?}"),
        };
        assert_eq!(stream.report, Some("r".into()), "{line}");
    }
    assert!(message("cat s3://bkt/k --report -").contains("/dev/stdout"));

    let shard = Shard { index: 1, count: 4 };
    assert_eq!((get("--shard 1/4").shard, get("").shard), (shard, Shard::WHOLE));
    let Ok(Args::Verify(args)) = parse_line("verify s3://bkt/a d --shard 1/4") else {
        panic!("a check")
    };
    assert_eq!(args.shard, shard);
    let Ok(Args::Ls(args)) = parse_line("ls s3://bkt/a --shard 1/4") else { panic!("a listing") };
    assert_eq!(args.shard, shard);
    assert!(refusal("--shard 4/4").contains("expected I/N with I below N"));
    assert!(message("ls --shard 1/4").contains("--shard needs a source"));
    assert!(message("sync s3://bkt/a/ d --shard 1/4").contains("--shard is an option of get"));
}

#[test]
fn what_is_done_and_reported() {
    assert!(get("--dry-run").dry_run);
    assert_eq!(get("--json").output, OutputArgs { json: true, ..OutputArgs::default() });
    let quiet = MessageArgs { quiet: true, ..MessageArgs::default() };
    assert_eq!(get("--quiet").output.messages, quiet);
    assert_eq!(get("--report r.jsonl").report, Some("r.jsonl".into()));
    assert!(refusal("--report -").contains("/dev/stdout"));
    assert!(refusal("--report r --dry-run").contains("cannot be used with"));
}

#[test]
fn quiet_may_be_said_twice_and_progress_be_hidden_alone() {
    for typed in ["--quiet --no-progress", "--only-show-errors --no-progress", "-q -q", "-qq"] {
        assert!(get(typed).output.messages.quiet, "{typed}");
        for line in ["ls", "cat s3://bkt/k", "verify s3://bkt/a/ d", "demo"] {
            assert!(parse_line(&format!("{line} {typed}")).is_ok(), "{line} {typed}");
        }
    }
    let args = parse_line("get s3://bkt/a/ d --no-progress --no-progress").expect("twice");
    let Args::Get(get) = &args else { panic!("{args:?}") };
    assert!(args.messages().no_progress && !get.output.messages.quiet);
    assert!(refusal("-q -v").contains("cannot be used with"));
}

#[test]
fn how_files_of_others_are_compared() {
    use super::Compare;
    for (line, expected) in [
        ("", Compare::SizeAndTime),
        ("--exact-timestamps", Compare::SizeAndTime),
        ("--size-only", Compare::Size),
        ("--ignore-times", Compare::Nothing),
    ] {
        assert_eq!(get(line).keep.compare(), expected, "{line}");
    }
    assert!(get("--no-times").keep.no_times && !get("").keep.no_times);
    for line in [
        "--size-only --ignore-times",
        "--size-only --exact-timestamps",
        "--ignore-times --size-only",
    ] {
        assert!(refusal(line).contains("cannot be used with"), "{line}");
    }
    let Ok(Args::Verify(args)) = parse_line("verify s3://bkt/a/ d --adopt") else {
        panic!("a check")
    };
    assert!(args.adopt && !args.strict);
}

const INTERFACES: [&str; 3] = ["eth0", "eth1", "ib0"];

#[test]
fn service() {
    let args = get("--endpoint-url http://h:1 --region r --profile p --addressing-style path");
    let expected = ServiceArgs {
        endpoint_url: Some("http://h:1".to_owned()),
        region: Some("r".to_owned()),
        profile: Some("p".to_owned()),
        no_sign_request: false,
        addressing_style: Some(AddressingStyle::Path),
        ..ServiceArgs::default()
    };
    assert_eq!(args.service, expected);
    assert!(get("--no-sign-request").service.no_sign_request);
    assert!(refusal("--no-sign-request --profile p").contains("cannot be used with"));
    let style = get("--addressing-style virtual").service.addressing_style;
    assert_eq!(style, Some(AddressingStyle::Virtual));
    assert!(refusal("--addressing-style host").contains("auto, path, virtual"));
    assert!(refusal("--region=").contains("a value is required"));
    assert_eq!(get("--ca-bundle ca.pem").service.ca_bundle, Some("ca.pem".into()));
    assert!(get("--no-verify-ssl").service.no_verify_ssl);
    assert_eq!(get("--interface eth0,eth1 --interface ib0").service.interface, INTERFACES);
    assert_eq!(
        get("--interface eth0,eth1,ib0").service.to_words(),
        ["--interface", "eth0", "--interface", "eth1", "--interface", "ib0"]
    );
    for name in ["", "eth0,", "a/b", "a234567890123456"] {
        let refusal = refusal(&format!("--interface={name}"));
        assert!(refusal.contains("the name of a network interface"), "{name}: {refusal}");
    }
    assert!(refusal("--ca-bundle c --no-verify-ssl").contains("cannot be used with"));
}

#[test]
fn keys_may_be_those_of_access_grants() {
    for (typed, expected) in [
        ("--access-grants", AccessGrantsMode::Only),
        ("--access-grants=only", AccessGrantsMode::Only),
        ("--access-grants=fallback", AccessGrantsMode::Fallback),
    ] {
        let args = get(typed).service;
        assert_eq!(args.access_grants, Some(expected), "{typed}");
        assert_eq!(get(&args.to_words().join(" ")).service, args, "{typed}");
    }
    assert_eq!(get("").service.access_grants, None);
    assert!(refusal("--access-grants=maybe").contains("only, fallback"));
    assert!(refusal("--access-grants --no-sign-request").contains("cannot be used with"));
}

#[test]
fn endpoints_and_what_requests_carry() {
    let args = get("--use-dualstack-endpoint --use-fips-endpoint --sse-c-key-file k").service;
    assert!(args.use_dualstack_endpoint && args.use_fips_endpoint);
    assert_eq!(args.sse_c_key_file, Some("k".into()));
    for typed in ["--request-payer", "--request-payer=requester", "--request-payer requester"] {
        assert!(get(typed).service.request_payer.is_some(), "{typed}");
    }
    assert!(get("").service.request_payer.is_none());
    assert!(refusal("--request-payer=owner").contains("invalid value 'owner'"));
}

#[test]
fn a_version_is_of_a_single_object() {
    let parsed = |line: &str| parse(format!("inrush {line}").split(' '));
    for line in [
        "get s3://bkt/k d --version-id V",
        "ls s3://bkt/k --version-id V",
        "cat s3://bkt/k --version-id V",
        "pipe s3://bkt/k d/c --version-id V",
        "pipe --channel c=s3://bkt/k d --version-id V",
    ] {
        let uri = match parsed(line).expect("one object") {
            Args::Get(args) => args.sources[0].clone(),
            Args::Ls(args) => args.sources[0].clone(),
            Args::Cat(args) => args.sources[0].clone(),
            Args::Pipe(args) => args.channels[0].sources[0].clone(),
            _ => panic!("{line}"),
        };
        assert_eq!(uri.version_id, "V", "{line}");
    }
    for (line, expected) in [
        ("get s3://bkt/k s3://bkt/l d --version-id V", "a single source"),
        ("pipe --channel c=s3://bkt/k --channel d=s3://bkt/l d --version-id V", "a single source"),
        ("get s3://bkt/f/ d --version-id V", "not a single object"),
        ("cat s3://bkt/* --version-id V", "not a single object"),
        ("ls s3://bkt --version-id V", "not a single object"),
    ] {
        let error = parsed(line).expect_err("no version").to_string();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn resources() {
    let args = get("--workers 3 --connections 40 --part-size 16MiB --memory 1G --max-attempts 2");
    let expected = TuningArgs {
        bandwidth_limit: None,
        workers: Some(3),
        connections: Some(40),
        max_connections: None,
        part_size: Some(16 << 20),
        memory: Some(1 << 30),
        max_attempts: 2,
        ring: None,
    };
    assert_eq!(args.tuning, expected);
    assert_eq!(get("").tuning.max_attempts, limits::ATTEMPTS_MAX);
    assert_eq!(get("--max-connections 40").tuning.max_connections, Some(40));
    assert_eq!(get("--ring io_uring").tuning.ring, Some(RingName::IoUring));
    assert_eq!(get("--ring epoll").tuning.ring, Some(RingName::Epoll));
}

#[test]
fn resources_out_of_bounds() {
    let check = |line: &str, expected: &str| {
        let refusal = refusal(line);
        assert!(refusal.contains(expected), "{line}: {refusal}");
    };
    for number in ["0", "257", "x", "1.5", "", "99999999999999999999"] {
        check(&format!("--workers={number}"), "1 to 256");
    }
    check("--connections 0", "1 to 16384");
    check("--connections 16385", "1 to 16384");
    check("--max-attempts 0", "1 to 1000");
    check("--max-attempts 1001", "1 to 1000");
    check("--part-size 1000K", "from 1MiB to 1GiB");
    check("--part-size 2G", "from 1MiB to 1GiB");
    check("--part-size 8X", "'8X' for '--part-size <SIZE>': a size is digits followed by");
    check("--memory 1M", "4MiB or more");
    check("--memory lots", "such as 8MiB");
}

#[test]
fn the_other_commands() {
    let Ok(Args::Ls(args)) = parse_line("ls s3://bucket/a --json --region r") else {
        panic!("a listing")
    };
    assert!(args.json && !args.messages.quiet && args.service.region.is_some());
    assert_eq!(args.sources[0].to_string(), "s3://bucket/a");
    for line in ["ls", "ls s3://", "ls --json", "ls s3:// --json"] {
        let Ok(Args::Ls(args)) = parse_line(line) else { panic!("{line}: the buckets") };
        assert!(args.buckets && args.sources.is_empty(), "{line}");
    }
    for option in ["--recursive", "--summarize", "-H", "--raw", "--exclude a", "--version-id V"] {
        let refusal = message(&format!("ls {option}"));
        assert!(refusal.contains(" needs a source such as s3://BUCKET/"), "{option}: {refusal}");
    }
    assert!(message("ls s3:// s3://bucket/").contains("the bucket is missing"));
    assert!(message("ls a").contains("'a' is not an S3 address"));
    let Ok(Args::Verify(args)) =
        parse_line("verify s3://bucket/a/ s3://bucket/c/ d --strict --report r")
    else {
        panic!("a check")
    };
    assert!(args.strict && args.sources.len() == 2 && args.report.is_some());
    assert_eq!(args.folder.to_str(), Some("d"));
    assert!(message("verify").contains("source and folder are missing"));
    assert!(message("verify d").contains("the source is missing"));
    for line in ["verify s3://bkt/a/", "verify --manifest m"] {
        assert!(
            message(line).contains("error: the folder is missing"),
            "{line}: {}",
            message(line)
        );
    }
    assert!(
        message("verify s3://bucket/a s3://bucket/c d --version-id 1").contains("a single source")
    );
    let Ok(Args::Demo(args)) = parse_line("demo --keep --workers 1") else { panic!("a demo") };
    assert!(args.keep && args.tuning.workers == Some(1));
    assert!(matches!(parse_line("completions zsh"), Ok(Args::Completions(Shell::Zsh))));
    assert!(matches!(parse_line("man"), Ok(Args::Man)));
    assert!(message("fetch").contains("unrecognized subcommand 'fetch'"));
    assert!(message("get --includ a").contains("'--include'"));
}

#[test]
fn mounts() {
    let mount = |line: &str| match parse_line(&format!("mount {line}")) {
        Ok(Args::Mount(args)) => *args,
        other => panic!("{line}: {other:?}"),
    };
    let args = mount("s3://bkt/a/ s3://bkt/b/ dir --uid 7 --mode 440 --deadline 9s -f");
    assert_eq!((args.sources.len(), args.mountpoint), (2, Some("dir".into())));
    assert_eq!((args.uid, args.gid, args.mode), (Some(7), None, Some(0o440)));
    assert!(args.foreground && !args.allow_other && !args.child);
    assert_eq!(args.deadline, Some(Duration::from_secs(9)));
    let args = mount("s3://bkt/a/ dir -o rw,nosuid,_netdev,x-systemd.automount,allow_other,uid=7");
    assert!(args.allow_other && args.uid == Some(7));
    let args = mount("-o endpoint_url=http://h:1 s3://bkt/a/ dir -oregion=r,");
    assert_eq!(args.service.endpoint_url.as_deref(), Some("http://h:1"));
    assert_eq!(args.service.region.as_deref(), Some("r"));
    assert!(mount("--check s3://bkt/a/").check);
    assert!(mount("--lazy s3://bkt/a/ dir").lazy && !mount("s3://bkt/a/ dir").lazy);
    assert!(mount("-o lazy s3://bkt dir").lazy);
    let refresh = |line: &str| mount(line).refresh;
    assert_eq!(refresh("--refresh 5m s3://bkt/a/ dir"), Some(Duration::from_secs(300)));
    assert_eq!(refresh("-o refresh=1 --shard 0/1 s3://bkt dir"), Some(Duration::from_secs(1)));
    assert_eq!(refresh("s3://bkt/a/ dir"), None);
    for also in [
        "--check",
        "--include x",
        "--exclude x",
        "--prefix",
        "--files-from f",
        "--manifest m",
        "--shard 0/1",
    ] {
        let refusal = message(&format!("mount --lazy {also} s3://bkt/a/ dir"));
        assert!(refusal.contains("cannot be used with"), "{also}: {refusal}");
    }
    assert_eq!(mount("--manifest m dir").mountpoint, Some("dir".into()));
    for (line, expected) in [
        ("", "source and mount point are missing"),
        ("s3://bkt/a/", "the mount point is missing: add a folder at the end"),
        ("--manifest m", "the mount point is missing: add a folder at the end"),
        ("dir", "the source is missing"),
        ("s3://bkt/a/ https://h", "is not a folder"),
        ("s3://bkt/a/ dir --mode 999", "octal permissions"),
        ("s3://bkt/a/ dir --part-size 8M", "not an option of mount"),
        ("s3://bkt/a/ dir -o allow_root", "--allow-root"),
        ("--lazy s3://bkt/a/ s3://bkt/b/ dir", "--lazy takes one source, and 2 are given"),
        ("--lazy s3://bkt/a/* dir", "--lazy cannot be used with a glob"),
        ("--lazy s3://bkt/a/ dir --refresh 5m", "--refresh cannot be used with --lazy"),
        ("--shard 1/2 s3://bkt/a/ dir --refresh 5m", "--refresh cannot be used with --shard"),
        ("--check s3://bkt/a/ --refresh 5m", "cannot be used with"),
        ("s3://bkt/a/ dir --refresh 0.5s", "--refresh"),
        ("s3://bkt/a/ dir --refresh 999ms", "expected at least 1s"),
        ("s3://bkt/a/ --check --cache c", "--cache cannot be used with --check"),
        ("s3://bkt/a/ dir --cache c --cache-size 0", "expected a size above 0"),
    ] {
        let refusal = message(&format!("mount {line}"));
        assert!(refusal.contains(expected), "{line}: {refusal}");
    }
    let Ok(Args::Unmount(args)) = parse_line("unmount dir") else { panic!("an unmount") };
    assert_eq!(args.mountpoint.to_str(), Some("dir"));
}

#[test]
fn mounts_as_fstab_has_them() {
    let mount = |line: &str| match parse_line(&format!("mount s3://bkt/a/ dir {line}")) {
        Ok(Args::Mount(args)) => *args,
        other => panic!("{line}: {other:?}"),
    };
    assert!(mount("-o noexec").noexec && mount("--noexec").noexec && !mount("-o ro").noexec);
    assert!(mount("-o noexec,nosuid,noexec").noexec);
    assert!(!mount("-o user,noexec,exec").noexec, "the last one counts");
    let idle = "nonempty,async,nodiratime,relatime,strictatime,lazytime,x-systemd.automount,\
                comment=a,user,nouser,users,owner,group,user=me,X-mount.mkdir=0755,_netdev";
    assert!(!mount(&format!("-o {idle}")).noexec);
    for (line, expected) in [
        ("-o umask=022", "give the permissions of files with --mode"),
        ("-o ro,dmask=022", "mode=440"),
        ("-o uid=alice", "expected a number, not a name: 'id -u NAME' prints it"),
        ("--gid users", "expected a number, not a name: 'getent group NAME'"),
        ("--uid 4294967296", "expected a number from 0 to 4294967295"),
    ] {
        let refusal = message(&format!("mount s3://bkt/a/ dir {line}"));
        assert!(refusal.contains(expected), "{line}: {refusal}");
    }
}

#[test]
fn mounts_as_mount_calls_its_helpers() {
    let helper = |name: &str, line: &str| {
        let words = [name, "s3://bkt/a/", "dir"].into_iter().chain(line.split(' '));
        parse(words)
    };
    for name in ["/sbin/mount.inrush", "mount.fuse.inrush"] {
        for (line, fake, verbose) in [
            ("-o rw,gid=3", false, 0),
            ("-n -s -o rw,gid=3 -t fuse.inrush", false, 0),
            ("-v -f -o gid=3", true, 1),
            ("-sfnv -ogid=3 -tfuse.inrush", true, 1),
            ("--background-child -n -o gid=3", false, 0),
        ] {
            let Ok(Args::Mount(args)) = helper(name, line) else { panic!("{name} {line}") };
            assert_eq!(
                (args.gid, args.fake, args.messages.verbose),
                (Some(3), fake, verbose),
                "{line}"
            );
            assert!(!args.foreground, "-f is another option there");
        }
        for line in ["-N /proc/7/ns/mnt", "-n -N/proc/7/ns/mnt"] {
            let refused = helper(name, line).expect_err("another namespace").to_string();
            assert!(refused.contains("nsenter --mount=/proc/7/ns/mnt"), "{line}: {refused}");
        }
    }
}

#[test]
fn the_table_is_in_order() {
    let mut command = command();
    command.build();
    command.clone().debug_assert();
    for child in command.get_subcommands() {
        let name = child.get_name();
        assert!(child.get_about().is_some(), "{name} has no help");
        assert!(help::COMMANDS.iter().any(|about| about.name == name), "{name} has no words");
        let mut seen = BTreeSet::new();
        for arg in child.get_arguments() {
            let id = arg.get_id();
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "{name} {id} has no help");
            let first = help.chars().next().expect("it is not empty");
            assert!(first.is_lowercase() || help.starts_with("S3"), "{name} {id}: {help}");
            assert!(!help.ends_with('.') && !help.contains('\n'), "{name} {id}: {help}");
            assert!(arg.is_positional() || arg.get_long().is_some(), "{name} {id} has no name");
            if let Some(long) = arg.get_long() {
                assert!(seen.insert(long.to_owned()), "{name} has two --{long}");
                let words = long.chars().all(|c| c.is_ascii_lowercase() || c == '-');
                assert!(words, "{name} --{long}");
            }
            if arg.get_action().takes_values() {
                let names = arg.get_value_names().unwrap_or_default();
                assert!(!names.is_empty(), "{name} {id} has no value name");
                assert!(names.iter().all(|name| **name == name.to_uppercase()), "{name} {id}");
            }
        }
    }
    assert_eq!(command.get_subcommands().count(), help::COMMANDS.len());
}

#[test]
fn an_option_means_the_same_everywhere() {
    let mut helps = std::collections::BTreeMap::new();
    let command = command();
    for child in command.get_subcommands().filter(|child| child.get_name() != "ls") {
        let streams = matches!(child.get_name(), "pipe" | "cat");
        for arg in child.get_arguments().filter(|arg| !arg.is_positional()) {
            // A stream's connections are per channel, cat's standard output is the stream, and what
            // was passed on is not downloaded again.
            if streams
                && matches!(
                    arg.get_id().as_str(),
                    "connections" | "max_connections" | "memory" | "json" | "shard" | "verify"
                )
            {
                continue;
            }
            // Those of train have a mode, its shard is a host, and its deadline ends a command.
            let of_its_own = ["channel", "deadline", "shard"];
            if child.get_name() == "train" && of_its_own.contains(&arg.get_id().as_str()) {
                continue;
            }
            // A mount serves until it is unmounted, has no pipes, and reports files.
            let of_its_own = ["check", "deadline", "json", "ready_file", "report"];
            if child.get_name() == "mount" && of_its_own.contains(&arg.get_id().as_str()) {
                continue;
            }
            // bench writes result files, and its size includes everything that it generates.
            let of_its_own = ["json", "quiet", "report", "size", "verbose"];
            if child.get_name() == "bench" && of_its_own.contains(&arg.get_id().as_str()) {
                continue;
            }
            let help = arg.get_help().map(ToString::to_string);
            let before = helps.insert(arg.get_id().clone(), help.clone());
            assert!(before.is_none_or(|before| before == help), "{}", arg.get_id());
        }
    }
}

fn long_help(command_name: &str) -> String {
    match parse_line(&format!("{command_name} --help")) {
        Err(text) if !text.use_stderr() => text.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn help_is_also_a_command() {
    for name in help::COMMANDS.iter().map(|about| about.name) {
        match parse_line(&format!("help {name}")) {
            Err(text) if !text.use_stderr() => assert_eq!(text.to_string(), long_help(name)),
            other => panic!("{other:?}"),
        }
    }
    let all = parse_line("help").expect_err("a text");
    assert!(!all.use_stderr() && all.to_string() == long_help(""), "{all}");
    assert!(message("help fetch").contains("unrecognized subcommand 'fetch'"));
}

#[test]
fn times_may_be_plain_seconds() {
    assert_eq!(get("--deadline 90").failures.deadline, Some(Duration::from_secs(90)));
    assert_eq!(get("--retry-for 0").service.retry_for, Some(Duration::ZERO));
    assert_eq!(get("--deadline 1m30s").failures.deadline, Some(Duration::from_secs(90)));
    assert!(refusal("--deadline 0").contains("above zero"));
    assert!(refusal("--deadline 9x").contains("invalid value"));
}

#[test]
fn tables_fit_into_a_terminal_and_go_on_in_their_second_column() {
    for about in help::COMMANDS.iter().filter(|about| about.remote) {
        let text = long_help(about.name);
        let table = text.split_once("\nEnvironment:\n").expect("a table").1;
        let table = table.split_once("\n\n").expect("an end").0;
        assert!(table.lines().all(|line| line.len() <= 80), "{table}");
        let indented = " ".repeat(39);
        let more = table.lines().filter(|line| line.starts_with(&indented)).count();
        assert_eq!(table.lines().count() - more, help::VARIABLES.len(), "{table}");
        assert!(more > 0, "{table}");
    }
}

#[test]
fn the_default_may_be_typed() {
    assert_eq!(get("--recursive").sources.len(), 1);
    assert!(!long_help("get").contains("--recursive"));
}

#[test]
fn every_help_has_examples_and_all_exit_codes() {
    for name in std::iter::once("").chain(help::COMMANDS.iter().map(|about| about.name)) {
        let text = long_help(name);
        assert!(text.contains("Examples:\n  # "), "{name}");
        assert!(text.contains("    0  success\n"), "{name}");
        for kind in Kind::ALL {
            let line = format!("  {:>3}  {}\n", kind.exit_code(), kind.meaning());
            assert!(text.contains(&line), "{name}: {line}");
        }
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{name}: {widest:?}");
    }
    for about in help::COMMANDS.iter().filter(|about| about.remote) {
        let text = long_help(about.name);
        for (variable, _) in help::VARIABLES {
            assert!(text.contains(variable), "{} {variable}", about.name);
        }
        for (glob, meaning) in help::GLOBS {
            let row = help::columns([(glob, meaning)].into_iter());
            let row = row.trim_start().split_once(' ').expect("two columns").1.trim_start();
            let first = row.lines().next().expect("a line");
            let is_there = text.contains(&format!("  {glob:5}  {first}\n"));
            assert_eq!(is_there, about.takes_globs(), "{} {glob}", about.name);
        }
    }
}

#[test]
fn examples_can_be_typed() {
    for (_, typed) in help::COMMANDS.iter().flat_map(|about| about.examples) {
        let own = typed.split(['|', '>']).next().expect("the first of all").replace('\'', "");
        let line = own.trim().strip_prefix("inrush ").expect("it starts with the program");
        assert!(parse_line(line).is_ok(), "{typed}");
    }
}

#[test]
fn defaults_are_reported_as_they_are() {
    let text = long_help("get").split_whitespace().collect::<Vec<_>>().join(" ");
    for default in
        ["[default: 8MiB]", "[default: 8]", "[default: auto]", "[default: 1024, or 64 a worker"]
    {
        assert!(text.contains(default), "{default}");
    }
}

#[test]
fn the_page_has_every_option_and_exit_code() {
    let page = String::from_utf8(man()).expect("UTF-8");
    assert_eq!(page.matches(".TH ").count(), 1);
    let plain = page.replace("\\-", "-");
    let mut command = command();
    command.build();
    for child in command.get_subcommands() {
        let heading = format!(".SH \"INRUSH {}\"", child.get_name().to_uppercase());
        assert!(page.contains(&heading), "{heading}");
        let shown = child.get_arguments().filter(|arg| !arg.is_hide_set());
        for long in shown.filter_map(Arg::get_long) {
            assert!(plain.contains(&format!("--{long}")), "{} --{long}", child.get_name());
        }
    }
    for kind in Kind::ALL {
        assert!(plain.contains(kind.meaning()), "{kind:?}");
    }
    for (variable, _) in help::VARIABLES {
        assert!(plain.contains(variable), "{variable}");
    }
    assert!(plain.contains(".SH GLOBS") && plain.contains("decides"), "{plain}");
    for (_, meaning) in help::GLOBS {
        assert!(plain.contains(&meaning.replace('\'', "\\*(Aq")), "{meaning}");
    }
}

#[test]
fn completions_know_the_options() {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let script = String::from_utf8(completions(shell)).expect("UTF-8");
        assert!(script.contains("part-size") && script.contains("virtual"), "{shell}");
    }
}

/// Options that not all commands with sources have: which commands have them, and why the others do
/// not.
const NOT_EVERYWHERE: [(&[&str], &str, &[&str]); 19] = [
    (
        &["get", "sync", "load", "pipe", "cat"],
        "ls and verify bring no object: there is nothing to watch",
        &["metrics_file", "metrics_listen"],
    ),
    (
        &["get", "sync", "load", "pipe", "cat"],
        "ls and verify bring no object: they have no data plane to bound or to measure",
        &[
            "bandwidth_limit",
            "connections",
            "deadline",
            "explain",
            "max_attempts",
            "max_connections",
            "memory",
            "part_size",
            "ring",
            "stats",
        ],
    ),
    (
        &["get", "sync", "load"],
        "only they write files",
        &[
            "dry_run",
            "durability",
            "ignore_times",
            "no_resume",
            "no_space_check",
            "no_times",
            "on_change",
            "overwrite",
            "size_only",
        ],
    ),
    (
        &["get", "sync", "load", "pipe", "cat"],
        "a mount reads parts of objects, and train compares the files of its channels alone",
        &["verify"],
    ),
    (&["get", "sync", "load"], "streams have a worker for each core that they need", &["workers"]),
    (
        &["get", "sync", "load", "verify", "pipe", "cat"],
        "the lines of ls are its report",
        &["report"],
    ),
    (
        &["get", "verify", "ls", "pipe"],
        "sync would take the other shards' files for deleted ones, and cat has one reader",
        &["shard"],
    ),
    (&["get", "load"], "what is not kept cannot be up to date", &["discard"]),
    (&["get"], "sync and verify compare one folder with the source", &["spread_to"]),
    (&["load"], "the last operand of the others is the destination", &["to"]),
    (
        &["get", "sync", "verify", "ls", "pipe", "cat"],
        "a model is one folder",
        &["files_from", "manifest", "manifest_layout"],
    ),
    (&["sync"], "only it makes a folder like the bucket", &["delete"]),
    (&["verify"], "only it reads files that are there", &["adopt", "strict"]),
    (&["cat"], "a file or a pipe is for whole objects", &["range"]),
    (&["pipe", "cat"], "a file is what S3 stores, and can be compared with it", &["gunzip"]),
    (&["ls"], "only it prints a level, sizes and a total", &["human_readable", "summarize"]),
    (&["ls"], "the others take all that is below a folder", &["recursive"]),
    (
        &["pipe"],
        "only it has channels, epochs and readers that come later",
        &["channel", "epoch_markers", "epochs", "on_failure", "ready_file", "shuffle_seed"],
    ),
    (
        &["pipe"],
        "only its readers are those of SageMaker's Pipe mode",
        &["attribute", "augmented_manifest", "record_wrapper"],
    ),
];

#[test]
fn what_a_command_lacks_it_lacks_for_a_reason() {
    let commands = ["get", "sync", "load", "verify", "ls", "pipe", "cat"];
    let command = command();
    let mut who = std::collections::BTreeMap::<String, Vec<&str>>::new();
    for name in commands {
        let child = command.find_subcommand(name).expect("a command");
        let options =
            child.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
        for option in options {
            who.entry(option.get_id().to_string()).or_default().push(name);
        }
    }
    for (has, reason, options) in NOT_EVERYWHERE {
        for option in options {
            assert_eq!(who.remove(*option).as_deref(), Some(has), "{option}: {reason}");
        }
    }
    for (option, has) in who {
        assert_eq!(has, commands, "{option} is not everywhere, and no reason is given");
    }
}
