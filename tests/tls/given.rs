//! Who gives keys, where variables are empty, files are missing and answers are wrong.

use std::fs;

use crate::fake::{Fake, page};
use crate::keys::{
    GIVEN, ROLE, assumed, giver, lists, metadata, program, with_config, with_session,
    with_web_identity,
};
use crate::program::Program;
use crate::{ACCESS, ENDPOINT, SECRET, USAGE};

const TOKEN_FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
const AGENT: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const AGENT_TOKEN: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
const AGENT_TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";

/// A listing by the keys of a container's agent, at this path.
fn with_agent(server: &Fake, path: &str) -> Program {
    let program = program(server).set(AGENT, format!("{}{path}", server.url()));
    program.set(AGENT_TOKEN, "container-secret")
}

/// Answers each request for keys with this status and body.
fn answering(status: &'static str, body: &'static str) -> Fake {
    Fake::start(None, move |_| page(body).replacen("200 OK", status, 1))
}

#[test]
fn empty_variables_are_unset_ones() {
    let server = Fake::start(None, giver);
    let url = server.url();
    let web = || {
        let program = with_config(&server, &format!("[default]\nendpoint_url = {url}\n"));
        with_web_identity(program, "")
    };
    let session = || with_session(&server, "lab", &format!("endpoint_url = {url}\n"));
    let profile = format!(
        "[default]\nendpoint_url = {url}\nrole_arn = {ROLE}\nsource_profile = base\n\
         [profile base]\naws_access_key_id = AKIDBASE\naws_secret_access_key = {SECRET}\n"
    );
    let assumed = || with_config(&server, &profile);
    let all = "AWS_ENDPOINT_URL";
    for (program, name) in [
        (web(), all),
        (web(), "AWS_ENDPOINT_URL_STS"),
        (web(), "AWS_ROLE_SESSION_NAME"),
        (web(), AGENT),
        (assumed(), all),
        (assumed(), "AWS_ENDPOINT_URL_STS"),
        (assumed(), TOKEN_FILE),
        (session(), all),
        (session(), "AWS_ENDPOINT_URL_SSO"),
        (session(), "AWS_ENDPOINT_URL_SSO_OIDC"),
        (with_agent(&server, "/container"), all),
        (with_agent(&server, "/container"), "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
        (with_agent(&server, "/container"), AGENT_TOKEN_FILE),
        (with_agent(&server, "/container"), "AWS_ACCESS_KEY_ID"),
    ] {
        println!("{name}=");
        lists(program.set(name, "").run());
    }
    // The SDK's clients end the program by it.
    let partitions = "SMITHY_CLIENT_SDK_CUSTOM_PARTITION";
    let run = web().set(partitions, "").run().expect(USAGE);
    run.expect_error(&[&format!("error: {partitions} is set, which is not supported")]);
    lists(with_agent(&server, "/container").set(partitions, "").run());
    // Nobody is asked, and that is said as where it is unset.
    for name in [AGENT, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", AGENT_TOKEN_FILE] {
        let run = program(&server).set(name, "").run().expect(ACCESS);
        run.expect_error(&["error: no credentials found: not in the environment"]);
    }
}

#[test]
fn files_of_tokens_are_named_with_what_names_them() {
    let server = Fake::start(None, giver);
    let asked = |program: Program, words: &str| {
        program.run().expect(ACCESS).expect_error(&[words]);
        assert_eq!(server.seen(), [""; 0], "{words}");
    };
    let (missing, empty) = ("No such file or directory", "it has no token");
    for (content, why) in [(None, missing), (Some("\n"), empty)] {
        let token = || {
            let program = with_config(&server, "");
            let path = program.home().join("nope");
            if let Some(content) = content {
                fs::write(&path, content).expect("room");
            }
            (program, path)
        };
        let (program, path) = token();
        let words = format!("error: {TOKEN_FILE} ({}): {why}", path.display());
        asked(program.set(TOKEN_FILE, path).set("AWS_ROLE_ARN", ROLE), &words);
        let (program, path) = token();
        let config = program.home().join("config");
        let path = path.display();
        let text = format!("[default]\nrole_arn = {ROLE}\nweb_identity_token_file = {path}\n");
        fs::write(&config, text).expect("room");
        let words = format!(
            "error: web_identity_token_file of the profile 'default' in {} ({path}): {why}",
            config.display()
        );
        asked(program, &words);
        let (program, path) = token();
        let words = format!("error: {AGENT_TOKEN_FILE} ({}): {why}", path.display());
        asked(program.set(AGENT, server.url()).set(AGENT_TOKEN_FILE, path), &words);
    }
}

#[test]
fn the_token_of_a_container_is_read_from_its_file() {
    let server = Fake::start(None, giver);
    let program = program(&server).set(AGENT, format!("{}/container", server.url()));
    let path = program.home().join("token");
    fs::write(&path, "container-secret\n").expect("room");
    lists(program.set(AGENT_TOKEN_FILE, path).run());
    let run = with_agent(&server, "/container").set(AGENT_TOKEN, "two\nlines").run();
    run.expect(ACCESS).expect_error(&[&format!("error: {AGENT_TOKEN}: it is no token")]);
    for (url, why) in [
        ("http://192.0.2.1/c", "with http:// it must be this machine's, or a container's agent"),
        ("ftp://127.0.0.1/c", "it begins with neither https:// nor http://"),
        ("http://a b/c", "it is no URL"),
    ] {
        let run = with_agent(&server, "").set(AGENT, url).run().expect(ACCESS);
        run.expect_error(&[&format!("error: {AGENT}: {why}")]);
    }
}

#[test]
fn who_refuses_or_answers_otherwise_is_named() {
    let html = "<!doctype html><html><body>Log in</body></html>";
    let denied = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not \
                  you</Message></Error></ErrorResponse>";
    let late = denied.replace("AccessDenied", "ExpiredTokenException");
    let late = Box::leak(late.into_boxed_str());
    let sts = "the answer of HOST is not one of STS";
    let agent = "the answer of HOST has no AccessKeyId";
    let token = r#"{"Token":"secret-token"}"#;
    let old = Box::leak(metadata().replace("2100", "2001").into_boxed_str());
    let role = Box::leak(assumed("AssumeRoleWithWebIdentity").replace("2100", "2001").into());
    let expired = "HOST gives keys that have expired: their Expiration is 2001-01-01T00:00:00Z";
    for (is_web, status, body, code, words) in [
        (true, "200 OK", html, ACCESS, sts),
        (true, "404 No", html, ACCESS, "HOST answers 404, and not as STS does"),
        (true, "503 No", html, ENDPOINT, "HOST answers 503, and not as STS does"),
        (
            true,
            "403 No\r\nx-amzn-RequestId: R-1",
            denied,
            ACCESS,
            "HOST answers 403: AccessDenied (not you), request id R-1;",
        ),
        (
            true,
            "400 No\r\nx-amzn-RequestId: R-1",
            late,
            ACCESS,
            "HOST answers 400: ExpiredTokenException (not you), request id R-1;",
        ),
        (true, "200 OK", role, ACCESS, expired),
        (false, "200 OK", html, ACCESS, "the answer of HOST is no JSON object"),
        (false, "200 OK", token, ACCESS, agent),
        (false, "404 No", html, ACCESS, "HOST answers 404"),
        (false, "503 No", html, ENDPOINT, "HOST answers 503"),
        (
            false,
            "401 No",
            r#"{"code":"C","message":"not you"}"#,
            ACCESS,
            "HOST answers 401: C: not",
        ),
        (false, "200 OK", old, ACCESS, expired),
    ] {
        let server = answering(status, body);
        let url = server.url();
        let program = match is_web {
            true => with_web_identity(program(&server), &url),
            false => with_agent(&server, "/c"),
        };
        let words = words.replace("HOST", url.strip_prefix("http://").expect("no TLS"));
        let words = format!("error: cannot get credentials: {words}");
        // A wait of some seconds prints a line.
        let run = program.run().expect(code).expect_words(&[&words]);
        for word in ["sso", "Unhandled", "unhandled", "Error", "secret-token", GIVEN, "<"] {
            run.check(!run.stderr.contains(word), word);
        }
    }
}

/// A role that may not be assumed, as in an error of S3.
#[test]
fn a_role_that_sts_refuses_is_reported_by_code_message_and_request() {
    let denied = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not \
                  you</Message></Error></ErrorResponse>";
    let server = answering("403 No\r\nx-amzn-RequestId: R-1", denied);
    let url = server.url();
    let config = format!(
        "[default]\nrole_arn = {ROLE}\nsource_profile = base\nendpoint_url = {url}\n\
         [profile base]\naws_access_key_id = AKIDBASE\naws_secret_access_key = {SECRET}\n"
    );
    let run = with_config(&server, &config).run().expect(ACCESS);
    let host = url.strip_prefix("http://").expect("no TLS");
    let words = format!("{host} answers 403: AccessDenied (not you), request id R-1; check what");
    let run = run.expect_error(&["error: cannot get credentials: ", &words]);
    run.check(!run.stderr.contains("endpoint_url"), "it is the right server");
    for word in ["Error", "rror {", "unhandled", "service error", "Sender"] {
        run.check(!run.stderr.contains(word), word);
    }
}

#[test]
fn sessions_that_are_refused_are_renewed_by_their_own_command() {
    for (status, body) in
        [("401 No", "{\"message\":\"Session token not found or invalid\"}"), ("200 OK", "<html>")]
    {
        let server = answering(status, body);
        let url = server.url();
        let program = with_session(&server, "lab", "").set("AWS_ENDPOINT_URL_SSO", &url);
        let run = program.run().expect(ACCESS);
        let host = url.strip_prefix("http://").expect("no TLS");
        let words = ["error: cannot get credentials", host, "aws sso login"];
        run.expect_error(&words).check(!server.seen().is_empty(), "it was asked");
    }
    let server = answering("200 OK", "");
    let program = with_session(&server, "never begun", "");
    // `printf 'never begun' | sha1sum`
    let file = ".aws/sso/cache/95150e2a9de07020996999ee18569d3258db5e0a.json";
    let file = program.home().join(file).display().to_string();
    let failed = format!("failed to read `{file}`: No such file or directory");
    program.run().expect(ACCESS).expect_error(&[&failed, "aws sso login"]);
    let program = with_session(&server, "lab", "");
    let run = program.set("HOME", "").run().expect(ACCESS);
    run.expect_error(&["HOME is not set", "~/.aws/sso/cache"]);
}

#[test]
fn a_source_without_its_variables_is_reported_by_their_names() {
    let server = Fake::start(None, giver);
    for (source, variables) in [
        ("Environment", "neither AWS_ACCESS_KEY_ID nor AWS_SECRET_ACCESS_KEY is set"),
        (
            "EcsContainer",
            "neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor \
             AWS_CONTAINER_CREDENTIALS_FULL_URI is set",
        ),
    ] {
        let config = format!("[default]\nrole_arn = {ROLE}\ncredential_source = {source}\n");
        let run = with_config(&server, &config).run().expect(ACCESS);
        let words = format!("'default' has credential_source = {source}, but {variables}");
        run.expect_error(&[&words]).check(server.seen().is_empty(), "nobody was asked");
    }
}
