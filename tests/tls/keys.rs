//! Keys from those who give them: each source of the chain, over HTTP and HTTPS, with the
//! certificates and the proxy that the run has.

use std::fs;
use std::path::Path;

use crate::fake::{Fake, listing, page};
use crate::program::{Program, Run};
use crate::{ACCESS, ENDPOINT, SECRET};

/// The keys that are given, as the answers of STS, of metadata and of single sign-on name them.
pub(crate) const GIVEN: &str = "AKIDGIVEN";
pub(crate) const TOKEN: &str = "token-that-is-given";
/// When they end: not within this run.
pub(crate) const UNTIL: &str = "2100-01-01T00:00:00Z";
const UNTIL_MS: u64 = 4_102_444_800_000;

pub(crate) const ROLE: &str = "arn:aws:iam::123456789012:role/train";
const BEARER: &str = "bearer-of-a-session";

/// Gives keys to who asks as it must, and lists the bucket for these keys alone.
pub(crate) fn giver(request: &str) -> String {
    let target = request.split(' ').nth(1).expect("a target");
    let path = target.strip_prefix("http://sts.invalid").unwrap_or(target);
    let has = |words: &[&str]| words.iter().all(|words| request.contains(words));
    match path {
        _ if path.starts_with("/lab?") && has(&[&format!("Credential={GIVEN}/"), TOKEN]) => {
            return listing(&[("a", "abc")]);
        }
        "/latest/api/token" if has(&["PUT ", "x-aws-ec2-metadata-token-ttl-seconds: "]) => {
            return page("SESSION").replacen(
                "\r\n",
                "\r\nx-aws-ec2-metadata-token-ttl-seconds: 21600\r\n",
                1,
            );
        }
        "/latest/meta-data/iam/security-credentials/" if has(&["token: SESSION"]) => {
            return page("train");
        }
        "/latest/meta-data/iam/security-credentials/train" if has(&["token: SESSION"]) => {
            return page(&metadata());
        }
        "/container" if has(&["authorization: container-secret"]) => return page(&metadata()),
        "/" if has(&["POST ", "Action=AssumeRoleWithWebIdentity", "WebIdentityToken=jwt"]) => {
            return page(&assumed("AssumeRoleWithWebIdentity"));
        }
        "/" if has(&["POST ", "Action=AssumeRole&", "Credential=AKIDBASE/"]) => {
            return page(&assumed("AssumeRole"));
        }
        _ if path.starts_with("/federation/credentials?")
            && has(&["account_id=123456789012", "role_name=train", BEARER]) =>
        {
            return page(&format!(
                "{{\"roleCredentials\":{{\"accessKeyId\":\"{GIVEN}\",\"secretAccessKey\":\
                 \"{SECRET}\",\"sessionToken\":\"{TOKEN}\",\"expiration\":{UNTIL_MS}}}}}"
            ));
        }
        _ => {}
    }
    "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned()
}

pub(crate) fn metadata() -> String {
    format!(
        "{{\"Code\":\"Success\",\"Type\":\"AWS-HMAC\",\"AccessKeyId\":\"{GIVEN}\",\
         \"SecretAccessKey\":\"{SECRET}\",\"Token\":\"{TOKEN}\",\"Expiration\":\"{UNTIL}\"}}"
    )
}

pub(crate) fn assumed(action: &str) -> String {
    format!(
        "<{action}Response><{action}Result><Credentials><AccessKeyId>{GIVEN}</AccessKeyId>\
         <SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>{TOKEN}</SessionToken>\
         <Expiration>{UNTIL}</Expiration></Credentials><AssumedRoleUser><AssumedRoleId>A:B\
         </AssumedRoleId><Arn>{ROLE}</Arn></AssumedRoleUser></{action}Result></{action}Response>"
    )
}

/// A listing at this server, without keys.
pub(crate) fn program(server: &Fake) -> Program {
    let url = server.url();
    Program::new(["ls", "s3://lab/", "--endpoint-url", &url, "--region", "us-east-1"])
}

/// A listing at this server, with this file of profiles.
pub(crate) fn with_config(server: &Fake, config: &str) -> Program {
    let program = program(server);
    let path = program.home().join("config");
    fs::write(&path, config).expect("room");
    program.set("AWS_CONFIG_FILE", path)
}

pub(crate) fn with_web_identity(program: Program, sts: &str) -> Program {
    let token = program.home().join("jwt");
    fs::write(&token, "jwt").expect("room");
    program
        .set("AWS_WEB_IDENTITY_TOKEN_FILE", token)
        .set("AWS_ROLE_ARN", ROLE)
        .set("AWS_ENDPOINT_URL_STS", sts)
}

/// Runs that may come too late.
const RUNS_MAX: usize = 10;

#[track_caller]
pub(crate) fn lists(run: Run) {
    let run = run.expect(0);
    run.check(run.stdout.ends_with(" s3://lab/a\n"), "the object is listed");
    for secret in [SECRET, TOKEN, BEARER] {
        run.check(!run.stdout.contains(secret) && !run.stderr.contains(secret), "a secret");
    }
}

#[test]
fn instances_and_containers_give_keys() {
    let server = Fake::start(None, giver);
    let instance = || {
        program(&server)
            .set("AWS_EC2_METADATA_DISABLED", "false")
            .set("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url())
            .with(["-vv"])
    };
    lists(in_time(instance));
    let container = || {
        program(&server)
            .set("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{}/container", server.url()))
            .set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-secret")
            .with(["-vv"])
    };
    lists(in_time(container));
}

/// The configuration is a pipe, as of `<(...)`, and has what aws-config's parser refuses: it is
/// read once, and not by aws-config.
#[test]
fn the_profile_says_where_an_instance_is_asked() {
    let server = Fake::start(None, giver);
    let url = server.url();
    let instance = || {
        let program = program(&server).set("AWS_EC2_METADATA_DISABLED", "false");
        let path = program.home().join("config");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a pipe");
        let config =
            format!("[default]\nec2_metadata_service_endpoint = {url}\n[profile 'a b']\nc = d\n");
        let program = program.set("AWS_CONFIG_FILE", &path);
        // Where nobody reads, it ends with the process of the tests.
        std::thread::spawn(move || fs::write(path, config));
        program
    };
    lists(in_time(instance));
}

/// A run that found keys: a busy machine may take longer than metadata services are waited for.
fn in_time(program: impl Fn() -> Program) -> Run {
    let mut runs = (1..RUNS_MAX).map(|_| program().run());
    runs.find(|run| run.status.success()).unwrap_or_else(|| program().run())
}

#[test]
fn roles_are_assumed_over_tls_by_the_certificates_of_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let bundle = folder.path().join("ca.pem");
    let server = Fake::start(Some(&bundle), giver);
    let believed = |program: Program| program.set("AWS_CA_BUNDLE", &bundle);
    lists(believed(with_web_identity(program(&server), &server.url())).with(["-vv"]).run());
    let role = format!(
        "[default]\nrole_arn = {ROLE}\nsource_profile = base\n[profile base]\n\
         aws_access_key_id = AKIDBASE\naws_secret_access_key = {SECRET}\n"
    );
    let role = with_config(&server, &role).set("AWS_ENDPOINT_URL_STS", server.url());
    lists(believed(role).with(["-vv"]).run());
    // --ca-bundle is for all servers, too; --no-verify-ssl is not for those who get secrets.
    let given = with_web_identity(program(&server), &server.url());
    lists(given.with(["--ca-bundle".as_ref(), bundle.as_os_str()]).run());
    let asked = server.seen().len();
    for words in [&[][..], &["--no-verify-ssl", "--quiet"]] {
        let run = with_web_identity(program(&server), &server.url()).with(words).run();
        let run = run.expect(ENDPOINT).expect_words(&["cannot get credentials", "certificate"]);
        run.check(server.seen().len() == asked, "no server was sent the token");
    }
}

#[test]
fn roles_are_assumed_for_as_long_as_the_profile_says() {
    let server = Fake::start(None, giver);
    let role = format!(
        "[profile role]\nrole_arn = {ROLE}\nduration_seconds = 1800\nexternal_id = outer\n\
         role_session_name = nightly\nendpoint_url = {}\n",
        server.url()
    );
    let keys = format!("aws_access_key_id = AKIDBASE\naws_secret_access_key = {SECRET}\n");
    for source in [
        "credential_source = Environment\n".to_owned(),
        format!("source_profile = role\n{keys}"),
        format!("source_profile = base\n[profile base]\n{keys}"),
        "source_profile = base\n[profile base]\ncredential_process = printf \
         '{\"Version\":1,\"AccessKeyId\":\"AKIDBASE\",\"SecretAccessKey\":\"x\"}'\n"
            .to_owned(),
    ] {
        let before = server.seen().len();
        let program =
            with_config(&server, &format!("{role}{source}")).with_keys("AKIDBASE", SECRET);
        lists(program.set("PATH", "/usr/bin:/bin").with(["--profile", "role", "-vv"]).run());
        let seen = server.seen();
        for part in ["DurationSeconds=1800&", "ExternalId=outer&", "RoleSessionName=nightly&"] {
            let form = format!("{}&", seen[before].trim_end());
            assert!(form.contains(part), "{source}: {form}");
        }
    }
    // A web identity lives as long as STS has it, as with the AWS CLI.
    let before = server.seen().len();
    let program = with_config(&server, "");
    let token = program.home().join("token");
    fs::write(&token, "jwt").expect("room");
    let path = program.home().join("web");
    let config = format!("{role}web_identity_token_file = {}\n", token.display());
    fs::write(&path, config).expect("room");
    lists(program.set("AWS_CONFIG_FILE", path).with(["--profile", "role"]).run());
    assert!(!server.seen()[before].contains("DurationSeconds"), "{}", server.seen()[before]);
}

#[test]
fn a_slow_command_for_keys_is_waited_for_and_reported() {
    let server = Fake::start(None, giver);
    let program = with_config(&server, "");
    let (answer, path) = (program.home().join("answer"), program.home().join("slow"));
    let keys = metadata().replace("\"Code\"", "\"Version\":1,\"Code\"");
    fs::write(&answer, keys.replace("\"Token\"", "\"SessionToken\"")).expect("room");
    let command = format!("sh -c 'sleep 4; cat {}'", answer.display());
    fs::write(&path, format!("[profile slow]\ncredential_process = {command}\n")).expect("room");
    let program = program.set("AWS_CONFIG_FILE", path).set("PATH", "/usr/bin:/bin");
    let run = program.with(["--profile", "slow"]).run();
    let line =
        "waiting for the credential_process of the profile 'slow' to give credentials: try 1";
    run.check(run.stderr.matches(line).count() == 1, "it is reported once");
    lists(run);
}

/// Of two servers the one that the user names gets what is secret, and the other is not asked.
#[test]
fn keys_and_tokens_go_to_whom_the_user_names_and_nobody_else() {
    let (right, wrong) = (Fake::start(None, giver), Fake::start(None, giver));
    let (named, other) = (right.url(), wrong.url());
    let keys = format!("aws_access_key_id = AKIDBASE\naws_secret_access_key = {SECRET}\n");
    let role = format!("role_arn = {ROLE}\n");
    let sourced = format!("{role}source_profile = base\n[profile base]\n{keys}");
    let own = format!("[profile p]\nregion = us-east-1\nendpoint_url = {named}\n");
    let elsewhere = own.replace(&named, &other);
    let services = |s3: &str, sts: &str| {
        format!(
            "services = m\n[services m]\ns3 =\n  endpoint_url = {s3}\nsts =\n  endpoint_url = \
             {sts}\n"
        )
    };
    let both = services(&named, &named);
    let (all, s3, sts) = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS");
    let wrong_proxy = &[("http_proxy", &*other), ("no_proxy", "127.0.0.1")][..];
    for (what, config, variables) in [
        ("endpoint_url", format!("{own}{sourced}"), &[][..]),
        (
            "services",
            format!("{elsewhere}{role}source_profile = base\n{both}[profile base]\n{keys}"),
            &[],
        ),
        ("the environment", format!("{elsewhere}{sourced}"), &[(all, &*named)]),
        (
            "each service",
            format!("{own}{sourced}"),
            &[(all, &*other), (s3, &*named), (sts, &*named)],
        ),
        ("another profile", format!("{own}{sourced}endpoint_url = {other}\n"), &[]),
        ("no_proxy", format!("{own}{sourced}"), wrong_proxy),
        ("web identity", format!("{own}{role}web_identity_token_file = jwt\n"), &[]),
    ] {
        let program = Program::new(["ls", "s3://lab/", "--profile", "p", "-vv"]);
        let (path, token) = (program.home().join("config"), program.home().join("jwt"));
        fs::write(&token, "jwt").expect("room");
        let config = config.replace("= jwt", &format!("= {}", token.display()));
        fs::write(&path, config).expect("room");
        let program = variables
            .iter()
            .fold(program.set("AWS_CONFIG_FILE", path), |program, (name, value)| {
                program.set(name, value)
            });
        let before = right.seen().len();
        lists(program.run());
        assert_eq!(right.seen().len() - before, 2, "{what}: STS and S3");
        assert_eq!(wrong.seen(), [""; 0], "{what}");
    }
    // A container's keys come from loopback, or over TLS; its token goes nowhere else.
    let elsewhere = program(&right).set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-secret");
    let elsewhere = elsewhere.set("http_proxy", &other).set("no_proxy", "127.0.0.1");
    let run = elsewhere.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/c").run();
    run.expect(ACCESS);
    assert_eq!(wrong.seen(), [""; 0], "a proxy is not asked for it");
}

#[test]
fn a_token_does_not_go_where_an_ignored_variable_leads() {
    let (right, wrong) = (Fake::start(None, giver), Fake::start(None, giver));
    let other = wrong.url();
    // Nobody listens there: AWS is not asked.
    let proxy = "http://127.0.0.1:1";
    for (program, name, host) in [
        (with_web_identity(program(&right), &other), "AWS_ENDPOINT_URL_STS", "sts.us-east-1."),
        (with_session(&right, "lab", ""), "AWS_ENDPOINT_URL", "portal.sso.us-east-1."),
        (with_session(&right, "lab", ""), "AWS_ENDPOINT_URL_SSO", "portal.sso.us-east-1."),
    ] {
        let program = program.set(name, &other).set("https_proxy", proxy);
        let run = program.set("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true").run();
        run.expect(ENDPOINT).expect_words(&["cannot get credentials", host]);
        assert_eq!(wrong.seen(), [""; 0], "{name}");
    }
}

#[test]
fn who_gives_keys_and_fails_is_no_fault_of_the_profile() {
    let failing = |status: &'static str| {
        Fake::start(None, move |_| format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"))
    };
    for (status, code, words) in [
        ("503 Slow", ENDPOINT, &["answers 503", "try again later"][..]),
        ("500 Oops", ENDPOINT, &["answers 500", "try again later"]),
        ("403 No", ACCESS, &[]),
    ] {
        let server = failing(status);
        let url = server.url();
        let config = format!(
            "[default]\nrole_arn = {ROLE}\nsource_profile = base\n[profile base]\n\
             aws_access_key_id = AKIDBASE\naws_secret_access_key = {SECRET}\n"
        );
        for program in [
            with_config(&server, &config).set("AWS_ENDPOINT_URL_STS", &url),
            with_web_identity(program(&server), &url),
            with_session(&server, "lab", "").set("AWS_ENDPOINT_URL_SSO", &url),
            program(&server).set("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{url}/c")),
        ] {
            let run = program.run().expect(code);
            run.expect_words(&["error: cannot get credentials"]).expect_words(words);
        }
    }
}

/// As botocore: keys of the environment, a role of the profile, a web identity of the environment,
/// the keys of the profile, the role of the container.
#[test]
fn who_is_asked_for_keys_first() {
    let keys = format!("aws_access_key_id = AKIDBASE\naws_secret_access_key = {SECRET}\n");
    let role = format!("role_arn = {ROLE}\nsource_profile = base\n[profile base]\n{keys}");
    let (web, container) = ("Action=AssumeRoleWithWebIdentity", "GET /container ");
    for (profile, has_web, asked) in [
        (role.as_str(), true, "Action=AssumeRole&"),
        (&keys, true, web),
        ("region = us-east-1\n", true, web),
        (&keys, false, "Credential=AKIDBASE/"),
        ("region = us-east-1\n", false, container),
    ] {
        let server = Fake::start(None, giver);
        let url = server.url();
        let sources = || {
            let program = with_config(&server, &format!("[default]\n{profile}"))
                .set("AWS_ENDPOINT_URL_STS", &url)
                .set("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{url}/container"))
                .set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-secret");
            if has_web { with_web_identity(program, &url) } else { program }
        };
        sources().run();
        let first = server.seen().swap_remove(0);
        assert!(first.contains(asked), "{profile}{has_web}: {first}");
        let before = server.seen().len();
        sources().with_keys("AKIDENV", SECRET).run();
        let first = server.seen().swap_remove(before);
        assert!(first.contains("Credential=AKIDENV/"), "{profile}{has_web}: {first}");
    }
}

/// Each attempt at STS is signed anew.
#[test]
fn a_command_for_the_keys_of_a_role_is_run_once() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let server = Fake::start(None, move |request: &str| {
        let is_first = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        match is_first {
            true => "HTTP/1.1 503 Slow\r\nContent-Length: 0\r\n\r\n".to_owned(),
            false => giver(request),
        }
    });
    let program = with_config(&server, "");
    let folder = tempfile::tempdir().expect("a folder");
    let (runs, config) = (folder.path().join("runs"), folder.path().join("roles"));
    let script = folder.path().join("script");
    let keys = r#"{"Version":1,"AccessKeyId":"AKIDBASE","SecretAccessKey":"x"}"#;
    fs::write(&script, format!("echo x >> {}\necho '{keys}'\n", runs.display())).expect("room");
    let text = format!(
        "[default]\nrole_arn = {ROLE}\nsource_profile = base\nendpoint_url = {}\n[profile base]\n\
         credential_process = sh {}\n",
        server.url(),
        script.display(),
    );
    fs::write(&config, text).expect("room");
    lists(program.set("AWS_CONFIG_FILE", config).set("PATH", "/usr/bin:/bin").run());
    assert_eq!(server.seen().len(), 3, "two attempts, and a listing");
    assert_eq!(fs::read_to_string(runs).expect("it was run"), "x\n");
}

#[test]
fn a_redirect_gets_no_keys() {
    let wrong = Fake::start(None, giver);
    let there = wrong.url();
    let right = Fake::start(None, move |_| {
        format!("HTTP/1.1 307 Moved\r\nLocation: {there}/lab\r\nContent-Length: 0\r\n\r\n")
    });
    let run = program(&right).with_keys("AKIDBASE", SECRET).with(["--retry-for", "1ms"]).run();
    run.check(!run.status.success(), "there is no bucket");
    let followed = wrong.seen();
    assert!(!followed.is_empty(), "a server of objects may lead to another one");
    for head in &followed {
        let lower = head.to_ascii_lowercase();
        assert!(!lower.contains("authorization") && !lower.contains("x-amz-"), "{head}");
    }
    let config = format!(
        "[default]\nrole_arn = {ROLE}\nsource_profile = base\n[profile base]\n\
         aws_access_key_id = AKIDBASE\naws_secret_access_key = {SECRET}\n"
    );
    let url = right.url();
    let refused = format!(
        "{} answers 307, a redirect to {}, which is not followed",
        url.strip_prefix("http://").expect("no TLS"),
        wrong.url()
    );
    for program in [
        with_config(&right, &config).set("AWS_ENDPOINT_URL_STS", &url),
        program(&right)
            .set("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{url}/container"))
            .set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-secret"),
        program(&right)
            .set("AWS_EC2_METADATA_DISABLED", "false")
            .set("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url),
    ] {
        program.run().expect(ACCESS).expect_error(&[&refused]);
        assert_eq!(wrong.seen(), followed, "nobody is asked there");
    }
}

const PORTAL: &str = "sso_region = us-east-1\nsso_start_url = https://lab.invalid/start\n";

/// A profile of single sign-on, and its session, which has begun.
pub(crate) fn with_session(server: &Fake, session: &str, more: &str) -> Program {
    let config = format!(
        "[default]\nsso_session = {session}\nsso_account_id = 123456789012\nsso_role_name = train\n\
         {more}[sso-session '{session}']\n{PORTAL}"
    );
    let program = with_config(server, &config);
    let cache = program.home().join(".aws/sso/cache");
    fs::create_dir_all(&cache).expect("a folder");
    let token = format!(
        "{{\"accessToken\":\"{BEARER}\",\"expiresAt\":\"{UNTIL}\",\"region\":\"us-east-1\",\
         \"startUrl\":\"https://lab.invalid/start\"}}"
    );
    // `printf lab | sha1sum`, and of `s o`
    for name in
        ["3953f9ddf975ab5097ee468d99555c5b441169bf", "d77dd0f3a9a54deb3265130c8ce3e762b3365450"]
    {
        fs::write(cache.join(format!("{name}.json")), &token).expect("room");
    }
    program
}

#[test]
fn sessions_of_single_sign_on_and_processes_give_keys() {
    let server = Fake::start(None, giver);
    let url = server.url();
    let program = with_session(&server, "lab", "");
    lists(program.set("AWS_ENDPOINT_URL_SSO", &url).with(["-vv"]).run());
    // The profile says where it is, and its session has a name that aws-config's parser refuses.
    lists(with_session(&server, "s o", &format!("endpoint_url = {url}\n")).run());
    let services = format!("services = m\n[services m]\nsso =\n  endpoint_url = {url}\n");
    lists(with_session(&server, "lab", &services).run());
    let given = tempfile::NamedTempFile::new().expect("a file");
    let answer = metadata().replace("\"Code\"", "\"Version\":1,\"Code\"");
    fs::write(given.path(), answer.replace("\"Token\"", "\"SessionToken\"")).expect("room");
    let path: &Path = given.path();
    let config = format!("[default]\ncredential_process = /bin/cat {}\n", path.display());
    lists(with_config(&server, &config).set("PATH", "/usr/bin:/bin").with(["-vv"]).run());
}

#[test]
fn a_relay_gets_the_whole_url_of_the_service() {
    let server = Fake::start(None, giver);
    let program = with_web_identity(program(&server), "http://sts.invalid");
    lists(program.set("http_proxy", server.url()).set("no_proxy", "127.0.0.1").run());
    let seen = server.seen();
    assert!(seen[0].starts_with("POST http://sts.invalid/ HTTP/1.1\r\n"), "{}", seen[0]);
    assert!(seen[0].to_ascii_lowercase().contains("\r\nhost: sts.invalid\r\n"), "{}", seen[0]);
}
