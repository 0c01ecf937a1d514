//! Keys of sessions of `aws login`, which AWS's sign-in service renews.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::encoding::EcPrivateKeyRfc5915Der;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fake::{Fake, page};
use crate::keys::{GIVEN, TOKEN, UNTIL, giver, lists, with_config};
use crate::program::Program;
use crate::{ACCESS, ENDPOINT, SECRET};

/// The one who has logged in; `printf arn:aws:iam::111122223333:user/me | sha256sum`.
const SESSION: &str = "arn:aws:iam::111122223333:user/me";
const FILE: &str = "6eeec053fe13079aaf7fd81065ec5ecbdb93674f20700e51842d0c769b240c8a.json";
/// Secrets of a session.
const REFRESH: &str = "refresh-token-of-a-session";
const NEWER: &str = "newer-token-of-a-session";

/// The private key of a session, as its file has it.
fn private_key(key: &EcdsaKeyPair) -> String {
    let der: EcPrivateKeyRfc5915Der<'_> = key.private_key().as_der().expect("a key");
    let text = STANDARD.encode(der.as_ref());
    let (first, second) = text.split_at(64);
    format!("-----BEGIN EC PRIVATE KEY-----\n{first}\n{second}\n-----END EC PRIVATE KEY-----\n")
}

/// A session whose keys are valid until then.
fn session(until: &str) -> (Value, EcdsaKeyPair) {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
    let session = json!({
        "accessToken": {
            "accessKeyId": GIVEN, "secretAccessKey": SECRET, "sessionToken": TOKEN,
            "accountId": "111122223333", "expiresAt": until,
        },
        "tokenType": "aws_sigv4",
        "refreshToken": REFRESH,
        "clientId": "arn:aws:signin:::devtools/same-device",
        "dpopKey": private_key(&key),
        "ofAnotherVersion": [1, 2],
    });
    (session, key)
}

/// A folder with this session.
fn folder(session: &Value) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join(FILE), session.to_string()).expect("room");
    folder
}

fn written(folder: &TempDir) -> Value {
    let text = fs::read(folder.path().join(FILE)).expect("a file");
    serde_json::from_slice(&text).expect("JSON")
}

/// A listing by a profile with a session, which is looked for below HOME.
fn at_home(server: &Fake) -> Program {
    let config = format!("[profile me]\nlogin_session = {SESSION}\nregion = us-east-1\n");
    let program = with_config(server, &config).with(["--profile", "me"]);
    program.set("AWS_ENDPOINT_URL_SIGNIN", server.url())
}

/// A listing by a profile with the session in this folder.
fn program(server: &Fake, folder: &TempDir) -> Program {
    at_home(server).set("AWS_LOGIN_CACHE_DIRECTORY", folder.path())
}

/// An answer with keys that the bucket accepts.
fn renewed() -> String {
    let answer = json!({
        "accessToken":
            {"accessKeyId": GIVEN, "secretAccessKey": SECRET, "sessionToken": TOKEN},
        "tokenType": "aws_sigv4", "expiresIn": 900, "refreshToken": NEWER,
    });
    page(&answer.to_string())
}

/// Renews keys, and lists the bucket for those.
fn service(request: &str) -> String {
    match request.starts_with("POST /v1/token HTTP/1.1\r\n") {
        true => renewed(),
        false => giver(request),
    }
}

/// A refusal of the service.
fn refusal(code: &str) -> String {
    let body = json!({"error": code, "message": "not now"}).to_string();
    page(&body).replacen("200 OK", "400 Bad Request", 1)
}

const EXPIRED: &str = "2026-01-01T00:00:00Z";

#[test]
fn keys_that_are_valid_are_used() {
    let server = Fake::start(None, service);
    let program = at_home(&server);
    let folder = program.home().join(".aws/login/cache");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(FILE), session(UNTIL).0.to_string()).expect("room");
    let run = program.with(["-vv"]).run();
    lists(run.expect_words(&["credentials: from a session of aws login, until 2100"]));
    assert_eq!(server.seen().len(), 1, "the sign-in service is not asked");
}

#[test]
fn keys_that_have_expired_are_renewed_for_all_programs() {
    let server = Fake::start(None, service);
    let (session, key) = session(EXPIRED);
    let folder = folder(&session);
    let file = folder.path().join(FILE);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("its mode");
    let run = program(&server, &folder).with(["-vv"]).run();
    for secret in [REFRESH, NEWER, "EC PRIVATE"] {
        run.check(!run.stderr.contains(secret), "a secret is printed");
    }
    lists(run);
    let seen = server.seen();
    assert_eq!(seen.len(), 2, "{seen:?}");
    let (head, body) = seen[0].split_once("\r\n\r\n").expect("a body");
    let expected = json!({
        "clientId": "arn:aws:signin:::devtools/same-device", "grantType": "refresh_token",
        "refreshToken": REFRESH,
    });
    assert_eq!(serde_json::from_str::<Value>(body).expect("JSON"), expected);
    let head = head.to_ascii_lowercase();
    assert!(!head.contains("\r\nauthorization:"), "nothing is signed: {head}");
    // The proof: of the session's key, for this request.
    let proof = seen[0].lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("dpop").then(|| value.to_owned())
    });
    let proof = proof.expect("a proof");
    let (signed, signature) = proof.rsplit_once('.').expect("a signature");
    let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64");
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.public_key().as_ref());
    public.verify(signed.as_bytes(), &signature).expect("the key's own signature");
    let claims = signed.split('.').map(|part| {
        let text = URL_SAFE_NO_PAD.decode(part).expect("base64");
        serde_json::from_slice::<Value>(&text).expect("JSON")
    });
    let claims: Vec<Value> = claims.collect();
    assert_eq!((&claims[0]["typ"], &claims[0]["alg"]), (&json!("dpop+jwt"), &json!("ES256")));
    let (x, y) = key.public_key().as_ref()[1..].split_at(32);
    assert_eq!(claims[0]["jwk"]["x"], json!(URL_SAFE_NO_PAD.encode(x)));
    assert_eq!(claims[0]["jwk"]["y"], json!(URL_SAFE_NO_PAD.encode(y)));
    assert_eq!(claims[1]["htu"], json!(format!("{}/v1/token", server.url())));
    assert_eq!(claims[1]["htm"], json!("POST"));
    // The file has the newer session, and all that is not known here.
    let after = written(&folder);
    assert_eq!(after["refreshToken"], json!(NEWER));
    assert_eq!(after["accessToken"]["accountId"], json!("111122223333"));
    assert_eq!(after["ofAnotherVersion"], json!([1, 2]));
    assert_eq!(after["dpopKey"], session["dpopKey"]);
    assert_ne!(after["accessToken"]["expiresAt"], json!(EXPIRED));
    assert_eq!(file.metadata().expect("a file").mode() & 0o777, 0o600);
    let files = fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(files, 1, "nothing else is left there");
    // The next program uses the keys.
    lists(program(&server, &folder).run());
    assert_eq!(server.seen().len(), 3);
}

#[test]
fn another_program_may_renew_the_session_meanwhile() {
    let folder = folder(&session(EXPIRED).0);
    let file = folder.path().join(FILE);
    let server = Fake::start(None, move |request| match request.starts_with("POST /v1/token ") {
        false => giver(request),
        true => {
            fs::write(&file, session(UNTIL).0.to_string()).expect("room");
            refusal("TOKEN_EXPIRED")
        }
    });
    lists(program(&server, &folder).run());
    assert_eq!(server.seen().len(), 2);
}

#[test]
fn a_refresh_token_goes_to_the_sign_in_service_alone() {
    let (right, wrong) = (Fake::start(None, service), Fake::start(None, service));
    let other = wrong.url();
    let expired = session(EXPIRED).0;
    // A listing at `right`, whose profile and environment lead elsewhere but for this service.
    let sessions = folder(&expired);
    let by_environment = program(&right, &sessions).set("AWS_ENDPOINT_URL", &other);
    lists(by_environment.set("AWS_ENDPOINT_URL_STS", &other).run());
    let sessions = folder(&expired);
    let by_profile = program(&right, &sessions);
    let config = by_profile.home().join("config");
    let services = format!(
        "[profile me]\nlogin_session = {SESSION}\nendpoint_url = {other}\nservices = here\n\
         [services here]\nsignin =\n  endpoint_url = {}/\n",
        right.url()
    );
    fs::write(&config, services).expect("room");
    lists(by_profile.set("AWS_ENDPOINT_URL_SIGNIN", "").run());
    assert_eq!(wrong.seen(), [""; 0]);
    // With settings of endpoints disabled it is AWS's: nobody listens at this proxy.
    for (region, host) in [
        (None, "us-east-1.signin.aws.amazon.com"),
        (Some("cn-north-1"), "cn-north-1.signin.amazonaws.cn"),
    ] {
        let mut elsewhere = expired.clone();
        if let Some(region) = region {
            elsewhere["signInRegion"] = region.into();
        }
        let sessions = folder(&elsewhere);
        let program = program(&right, &sessions).set("https_proxy", "http://127.0.0.1:1");
        let program =
            program.set("AWS_ENDPOINT_URL", &other).set("AWS_ENDPOINT_URL_SIGNIN", &other);
        let run = program.set("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true").run();
        run.expect(ENDPOINT).expect_words(&["cannot get credentials", host]);
        assert_eq!(wrong.seen(), [""; 0], "{host}");
    }
    // A region in a file is no way to another host.
    let mut astray = expired.clone();
    astray["signInRegion"] = "us-east-1.example.com/".into();
    let run = program(&right, &folder(&astray)).run().expect(ACCESS);
    run.expect_error(&[FILE, "has a signInRegion that is no region", "aws login --profile me"]);
}

#[test]
fn a_session_that_gives_no_keys_is_begun_again() {
    let advice = "to renew the session: aws login --profile me";
    for (answer, code, words) in [
        (refusal("TOKEN_EXPIRED"), ACCESS, &["answers 400: TOKEN_EXPIRED: not now", advice][..]),
        (
            refusal("INSUFFICIENT_PERMISSIONS"),
            ACCESS,
            &["answers 400: INSUFFICIENT_PERMISSIONS", "allow signin:CreateOAuth2Token"],
        ),
        (
            refusal("INVALID_REQUEST"),
            ACCESS,
            &["answers 400: INVALID_REQUEST", "check this machine's clock"],
        ),
        (page("{}"), ACCESS, &["has no expiresIn", "check AWS_ENDPOINT_URL_SIGNIN"]),
        (page("<html>"), ACCESS, &["is no JSON object", "check AWS_ENDPOINT_URL_SIGNIN"]),
        (
            "HTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\nbah".to_owned(),
            ACCESS,
            &["answers 404", "and not as AWS Sign-In does", "check AWS_ENDPOINT_URL_SIGNIN"],
        ),
        (
            "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_owned(),
            ENDPOINT,
            &["answers 503", "try again later"],
        ),
    ] {
        let server = Fake::start(None, move |_| answer.clone());
        let sessions = folder(&session(EXPIRED).0);
        let run = program(&server, &sessions)
            .run()
            .expect(code)
            .expect_words(&["error: cannot get credentials"]);
        let run = run.expect_words(words);
        for secret in [REFRESH, "EC PRIVATE"] {
            run.check(!run.stderr.contains(secret), "a secret is printed");
        }
        assert_eq!(written(&sessions)["refreshToken"], json!(REFRESH), "the file stays");
    }
    let server = Fake::start(None, service);
    let whole = session(EXPIRED).0;
    for (field, value, why) in [
        ("accessToken", json!(null), "has no accessToken"),
        ("accessToken", json!({"accessKeyId": "A"}), "has no SecretAccessKey"),
        ("dpopKey", json!("none"), "has a dpopKey that is no key of P-256"),
        ("refreshToken", json!(null), "has no refreshToken"),
        ("clientId", json!(5), "has no clientId"),
    ] {
        let mut damaged = whole.clone();
        damaged[field] = value;
        let run = program(&server, &folder(&damaged)).run().expect(ACCESS);
        run.expect_error(&[FILE, why, advice]);
    }
    let run = at_home(&server).run().expect(ACCESS);
    run.expect_error(&["/.aws/login/cache/", FILE, "No such file or directory", advice]);
    assert_eq!(server.seen(), [""; 0], "nobody is asked");
}
