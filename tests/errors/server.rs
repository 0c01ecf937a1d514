//! Keys, buckets, addresses and servers that are wrong or not there.

use std::net::TcpListener;

use crate::program::{Program, Run, url};
use crate::served::{ACCESS_KEY, SECRET, get, serve};
use crate::{ACCESS, ENDPOINT, NOT_FOUND, Nowhere, USAGE, objects};

/// A port of loopback on which nobody listens.
fn closed_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
    listener.local_addr().expect("its address").port()
}

#[test]
fn no_credentials_are_reported_soon() {
    let origin = serve(&objects(&[("a", 3)]));
    let nowhere = Nowhere::new();
    let words = ["get", "--quiet", "s3://lab/"];
    let run = Program::new(words).with([nowhere.path()]).asking(&origin).run();
    let words =
        ["no credentials found: not in the environment", "AWS_ACCESS_KEY_ID", "--no-sign-request"];
    let run = run.expect(ACCESS).expect_error(&words);
    run.check(run.seconds < 10.0, "it took too long");
    nowhere.assert_untouched();
}

#[test]
fn half_a_pair_of_keys_is_refused() {
    let origin = serve(&objects(&[("a", 3)]));
    let nowhere = Nowhere::new();
    let pairs = [
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
    ];
    for (set, missing) in pairs {
        let program = Program::new(["get", "s3://lab/"]).with([nowhere.path()]).asking(&origin);
        let run = program.set(set, "x").run().expect(ACCESS);
        run.expect_error(&[&format!("{set} is set, but {missing} is not; set both or neither")]);
    }
    let program = Program::new(["ls", "s3://lab/"]).asking(&origin);
    let program = program.set("AWS_CONFIG_FILE", "/etc/elsewhere/config");
    let program = program.set("AWS_SHARED_CREDENTIALS_FILE", "/etc/elsewhere/keys");
    let run = program.run().expect(ACCESS).expect_error(&[
        "not in /etc/elsewhere/config and /etc/elsewhere/keys",
        "(AWS_EC2_METADATA_DISABLED is true)",
    ]);
    run.check(!run.stderr.contains("instance"), "the metadata service was not asked");
    nowhere.assert_untouched();
}

/// A run that asks the metadata service at this address for credentials.
fn get_by_metadata(
    origin: &inrush_origin::Origin,
    nowhere: &Nowhere,
    address: &str,
    option: &str,
) -> Run {
    Program::new(["get", option, "s3://lab/"])
        .with([nowhere.path()])
        .asking(origin)
        .set("AWS_EC2_METADATA_DISABLED", "false")
        .set("AWS_EC2_METADATA_SERVICE_ENDPOINT", address)
        .run()
}

#[test]
fn a_silent_metadata_service_is_given_up_soon() {
    let origin = serve(&objects(&[("a", 3)]));
    let nowhere = Nowhere::new();
    // It takes connections and never says a word.
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
    let address = format!("http://{}", silent.local_addr().expect("its address"));
    let run = get_by_metadata(&origin, &nowhere, &address, "--quiet");
    let words = ["no credentials found", "of this instance", "does not answer", "--profile"];
    let run = run.expect(ACCESS).expect_error(&words);
    run.check(run.seconds < 15.0, "it took too long");
    nowhere.assert_untouched();
}

#[test]
fn a_metadata_service_that_refuses_is_reported_in_plain_words() {
    let origin = serve(&objects(&[("a", 3)]));
    let nowhere = Nowhere::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
    let address = format!("http://{}", listener.local_addr().expect("its address"));
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        // It ends with the process of the tests.
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(head);
        }
    });
    let get = |how: &str| get_by_metadata(&origin, &nowhere, &address, how);
    let words = ["no credentials found: not in the environment", "refuses to give any"];
    let run = get("--quiet").expect(ACCESS).expect_error(&words);
    run.check(!run.stderr.contains("IMDS"), "no word of the library");
    let run = get("-v").expect(ACCESS);
    run.check(run.stderr.contains("\ncaused by: "), "the words of the library");
}

#[test]
fn wrong_keys_are_reported_in_the_words_of_the_server() {
    let origin = serve(&objects(&[("folder/a", 3)]));
    let nowhere = Nowhere::new();
    for source in ["s3://lab/", "s3://lab/folder/", "s3://lab/folder/a", "s3://lab/*"] {
        let destination = nowhere.path();
        let words = [source, destination.to_str().expect("UTF-8")];
        let run = get(&origin, words).with_keys(ACCESS_KEY, "another").run();
        let words = ["SignatureDoesNotMatch", "request id ", "AWS_SECRET_ACCESS_KEY"];
        run.expect(ACCESS).expect_error(&words);
        let run =
            get(&origin, words_of(source, &destination)).with_keys("AKIDNOBODY", SECRET).run();
        let words = ["InvalidAccessKeyId", "request id ", "AWS_ACCESS_KEY_ID"];
        run.expect(ACCESS).expect_error(&words);
    }
    nowhere.assert_untouched();
}

fn words_of<'a>(source: &'a str, destination: &'a std::path::Path) -> [&'a str; 2] {
    [source, destination.to_str().expect("UTF-8")]
}

#[test]
fn what_is_not_there_is_reported_with_what_is_near() {
    let origin = serve(&objects(&[("train/part-1", 3), ("train/part-2", 3), ("models/x.bin", 3)]));
    let nowhere = Nowhere::new();
    let destination = nowhere.path();
    let expect_message = |source: &str, words: &[&str]| {
        let run = get(&origin, words_of(source, &destination)).run();
        run.expect(NOT_FOUND).expect_error(words);
        let run = Program::new(["ls", "--recursive", source])
            .asking(&origin)
            .with_keys(ACCESS_KEY, SECRET)
            .run();
        run.expect(NOT_FOUND).expect_error(words);
    };
    expect_message("s3://nobody-has-this/", &["NoSuchBucket", "check the bucket name"]);
    expect_message("s3://nobody-has-this/key", &["NoSuchBucket", "check the bucket name"]);
    expect_message("s3://lab/train/part-3", &["did you mean s3://lab/train/part-1"]);
    expect_message("s3://lab/models/y.bin", &["did you mean s3://lab/models/x.bin?"]);
    expect_message("s3://lab/trian/", &["nothing in this folder; did you mean s3://lab/train/?"]);
    expect_message(
        "s3://lab/nothing/like/it/",
        &["nothing in this folder; check the bucket and the name"],
    );
    expect_message("s3://lab/*.tar", &["nothing matches; '*' matches within one folder"]);
    expect_message("s3://lab/train/**/*.tar", &["nothing matches"]);
    nowhere.assert_untouched();
}

#[test]
fn malformed_addresses_are_refused_before_anything_is_asked() {
    let origin = serve(&objects(&[("a", 3)]));
    let nowhere = Nowhere::new();
    for (source, words) in [
        ("lab/a", "does not start with s3://"),
        ("s3://", "the bucket is missing"),
        ("s3://la?/a", "wildcard"),
        ("s3://../a", "does not keep this bucket name"),
        ("s3:/lab/a", "two slashes"),
        ("https://lab.s3.amazonaws.com/", "its path names no file"),
        ("arn:aws:s3:::lab/a", "ARN"),
        (" s3://lab/a", "white space"),
        ("s3://lab/a ", "with --raw it is taken as written"),
    ] {
        let run = get(&origin, words_of(source, &nowhere.path())).run();
        run.expect(USAGE).expect_error(&[words]);
    }
    assert_eq!(origin.stop().requests, 0);
    nowhere.assert_untouched();
}

#[test]
fn numbers_out_of_range_are_refused_with_the_range() {
    let origin = serve(&objects(&[("a", 3)]));
    let nowhere = Nowhere::new();
    for (options, words) in [
        (["--memory", "1MiB"], "4MiB or more"),
        (["--memory", "lots"], "--memory"),
        (["--workers", "0"], "from 1 to 256"),
        (["--workers", "257"], "from 1 to 256"),
        (["--connections", "0"], "from 1 to 16384"),
        (["--part-size", "1KiB"], "from 1MiB to 1GiB"),
        (["--part-size", "2GiB"], "from 1MiB to 1GiB"),
        (["--max-attempts", "0"], "from 1 to 1000"),
    ] {
        let run = get(&origin, words_of("s3://lab/", &nowhere.path())).with(options).run();
        let run = run.expect(USAGE).expect_words(&[words]);
        // More lines follow: where help is to be had.
        run.check(run.stderr.starts_with("error: invalid value '"), "an error was expected");
    }
    // What only the whole shows.
    let options = ["--memory", "4MiB", "--connections", "200"];
    let run = get(&origin, words_of("s3://lab/", &nowhere.path())).with(options).run();
    run.expect(USAGE).expect_error(&["too small for 200 connections", "give at least --memory"]);
    assert_eq!(origin.stop().requests, 0);
    nowhere.assert_untouched();
}

#[test]
fn an_endpoint_that_is_not_there_is_reported_in_bounded_time() {
    let nowhere = Nowhere::new();
    let endpoint = format!("http://127.0.0.1:{}", closed_port());
    for source in ["s3://lab/", "s3://lab/key"] {
        let run = Program::new(["get", "--quiet"])
            .with(words_of(source, &nowhere.path()))
            .with(["--endpoint-url", &endpoint, "--region", "us-east-1", "--retry-for", "1s"])
            .with_keys(ACCESS_KEY, SECRET)
            .run();
        let run = run.expect(ENDPOINT).expect_error(&["127.0.0.1", "refused", "--endpoint-url"]);
        run.check(run.stderr.matches("127.0.0.1").count() == 1, "the address is printed once");
        run.check(run.seconds < 30.0, "it took too long");
    }
    nowhere.assert_untouched();
}

#[test]
fn a_bucket_in_the_endpoint_is_reported() {
    let origin = serve(&objects(&[("a", 3)]));
    let endpoint = format!("{}/lab", url(&origin));
    for source in ["s3://lab/", "s3://lab/a", "s3://lab/none/"] {
        let run = Program::new(["ls", source, "--endpoint-url", &endpoint])
            .with_keys(ACCESS_KEY, SECRET)
            .run();
        run.expect(NOT_FOUND).expect_error(&["the endpoint URL has the path /lab: omit it"]);
    }
}

#[test]
fn profiles_that_give_no_keys_are_reported() {
    let origin = serve(&objects(&[("a", 3)]));
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config");
    let profiles = "[profile empty]\nregion = us-east-1\n\
                    [profile broken]\ncredential_process = sh -c 'echo out of keys >&2; exit 3'\n";
    std::fs::write(&config, profiles).expect("written");
    let expect_message = |profile: &str, words: &[&str]| {
        let run = Program::new(["ls", "s3://lab/", "--profile", profile]).asking(&origin);
        run.set("AWS_CONFIG_FILE", &config).run().expect(ACCESS).expect_error(words);
    };
    expect_message("nope", &["error: the profile 'nope' does not exist; check --profile"]);
    expect_message("empty", &["error: the profile 'empty' has no credentials; check --profile"]);
    let ended = "config: the credential_process of the profile 'broken' (sh) ended with exit \
                 status: 3: out of keys; run the command";
    expect_message("broken", &[ended]);
    assert_eq!(origin.stop().requests, 0);
}

#[test]
fn who_gives_credentials_and_is_not_there_is_the_networks_failure() {
    let origin = serve(&objects(&[("a", 3)]));
    let folder = tempfile::tempdir().expect("a folder");
    let (config, token) = (folder.path().join("config"), folder.path().join("token"));
    let role = "role_arn = arn:aws:iam::111122223333:role/x";
    let profiles = format!(
        "[profile role]\n{role}\nsource_profile = base\n\
         [profile base]\naws_access_key_id = A\naws_secret_access_key = S\n\
         [profile web]\n{role}\nweb_identity_token_file = {}\n",
        token.display()
    );
    std::fs::write(&config, profiles).expect("written");
    std::fs::write(&token, "jwt").expect("written");
    let gone = format!("127.0.0.1:{}", closed_port());
    let program = || {
        let program = Program::new(["ls", "s3://lab/", "--json"]).asking(&origin);
        program.set("AWS_ENDPOINT_URL_STS", format!("http://{gone}"))
    };
    let check = |program: Program, of: &str| {
        let words =
            format!("error: cannot get credentials{of}: {gone} does not answer: Connection");
        let run = program.run().expect(ENDPOINT).expect_words(&[&words, "check the network"]);
        run.check(!run.stderr.contains("--profile"), "it is no fault of the profile");
    };
    for profile in ["role", "web"] {
        let of = format!(" of the profile '{profile}'");
        check(program().set("AWS_CONFIG_FILE", &config).with(["--profile", profile]), &of);
        check(program().set("AWS_CONFIG_FILE", &config).set("AWS_PROFILE", profile), &of);
    }
    let web = program().set("AWS_WEB_IDENTITY_TOKEN_FILE", &token);
    check(web.set("AWS_ROLE_ARN", "arn:aws:iam::111122223333:role/x"), "");
    let agent = format!("http://{gone}/keys");
    check(program().set("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent), "");
    assert_eq!(origin.stop().requests, 0);
}

#[test]
fn a_profile_of_the_environment_that_gives_no_keys_is_reported() {
    let origin = serve(&objects(&[("a", 3)]));
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config");
    let role = "role_arn = arn:aws:iam::111122223333:role/x";
    let profiles = format!(
        "[profile empty]\nregion = us-east-1\n\
         [profile half]\naws_access_key_id = AKIAEXAMPLE\n\
         [profile gone]\n{role}\nsource_profile = nowhere\n\
         [profile alone]\n{role}\n\
         [profile circle]\n{role}\nsource_profile = round\n\
         [profile round]\n{role}\nsource_profile = circle\n\
         [profile odd]\n{role}\ncredential_source = Nonsense\n\
         [profile login]\nsso_session = corp\nsso_account_id = 111122223333\n\
         sso_role_name = reader\n\
         [sso-session corp]\nsso_start_url = https://127.0.0.1:1/start\n\
         sso_region = us-east-1\n\
         [profile unknown]\nsso_session = elsewhere\nsso_account_id = 111122223333\n\
         sso_role_name = reader\n\
         [profile signin]\nlogin_session = arn:aws:iam::111122223333:user/me\n"
    );
    std::fs::write(&config, profiles).expect("written");
    let program = |config: Option<&std::path::Path>| {
        let program = Program::new(["ls", "s3://lab/"]).asking(&origin);
        let config = config.unwrap_or("".as_ref());
        program.set("AWS_CONFIG_FILE", config).set("AWS_SHARED_CREDENTIALS_FILE", "")
    };
    let missing = program(None).set("AWS_PROFILE", "nope").run().expect(ACCESS);
    missing.expect_error(&[
        "error: the profile 'nope' does not exist; check AWS_PROFILE, ~/.aws/config and \
         ~/.aws/credentials",
    ]);
    let files = format!("{} and ~/.aws/credentials", config.display());
    let login = "aws sso login --profile login";
    for (profile, words) in [
        ("nope", &["error: the profile 'nope' does not exist; check AWS_PROFILE, ", &files][..]),
        ("empty", &["error: the profile 'empty' has no credentials; check AWS_PROFILE, ", &files]),
        (
            "half",
            &[
                "config: the profile 'half' has aws_access_key_id, but no aws_secret_access_key",
                "check AWS_PROFILE, ",
                &files,
            ],
        ),
        ("gone", &["the profile 'gone' refers to the profile 'nowhere', which does not", &files]),
        ("alone", &["the profile 'alone' has role_arn, but neither source_profile nor", &files]),
        ("circle", &["the profile 'circle' is in a circle of source_profile: circle -> ", &files]),
        ("signin", &["the profile 'signin': the session in ", "aws login --profile signin"]),
        ("odd", &["the profile 'odd' has ", "Nonsense", "AWS_PROFILE", &files]),
        ("login", &["the profile 'login': ", login]),
        ("unknown", &["the profile 'unknown' has sso_session = elsewhere, but there", &files]),
    ] {
        let run = program(Some(&config)).set("AWS_PROFILE", profile).run();
        run.expect(ACCESS).expect_error(words);
        // An error about a profile of the command line names --profile.
        let words: Vec<String> =
            words.iter().map(|words| words.replace("AWS_PROFILE", "--profile")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let run = program(Some(&config)).with(["--profile", profile]).run();
        run.expect(ACCESS).expect_error(&words);
    }
    // One that nobody named is not passed over either.
    let default = format!("[default]\n{role}\nsource_profile = nowhere\n");
    std::fs::write(&config, default).expect("written");
    let run = program(Some(&config)).run().expect(ACCESS);
    run.expect_error(&["config: the profile 'default' refers to the profile 'nowhere', which"]);
    assert_eq!(origin.stop().requests, 0);
}

#[test]
fn what_speaks_no_http_is_reported() {
    let nowhere = Nowhere::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
    let endpoint = format!("http://{}", listener.local_addr().expect("its address"));
    std::thread::spawn(move || {
        use std::io::Write as _;
        // It ends with the process of the tests.
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.write_all(b"220 mail.example ready\r\n");
        }
    });
    let run = Program::new(["get", "--quiet"])
        .with(words_of("s3://lab/", &nowhere.path()))
        // What was written may be lost with the connection, which then looks like one refused.
        .with(["--endpoint-url", &endpoint, "--region", "us-east-1", "--retry-for", "1s"])
        .with_keys(ACCESS_KEY, SECRET)
        .run();
    run.expect(ENDPOINT).expect_error(&["list s3://lab/"]);
    nowhere.assert_untouched();
}

#[test]
fn bad_endpoints_and_regions_are_refused() {
    let nowhere = Nowhere::new();
    for (endpoint, region, words) in [
        ("127.0.0.1:9000", "us-east-1", "http:// or https:// is missing"),
        ("ftp://127.0.0.1/", "us-east-1", "must start with http:// or https://"),
        ("http://user:secret@127.0.0.1/", "us-east-1", "AWS_"),
        ("http://127.0.0.1:1/", "EU west", "is not a region"),
    ] {
        let run = Program::new(["get", "--quiet"])
            .with(words_of("s3://lab/", &nowhere.path()))
            .with(["--endpoint-url", endpoint, "--region", region])
            .with_keys(ACCESS_KEY, SECRET)
            .run();
        let run = run.expect(USAGE).expect_error(&[words]);
        run.check(!run.stderr.contains("secret@"), "a password was printed");
    }
    nowhere.assert_untouched();
}
