//! Services that give credentials and are not what is meant, or give none: the error says what the
//! answer was, and which setting led there.

use std::net::TcpListener;

use crate::answers::answering;
use crate::program::{Program, url};
use crate::served::serve;
use crate::{ACCESS, ENDPOINT, objects};

const ROLE: &str = "arn:aws:iam::111122223333:role/x";

/// An answer of this status and body, after which the connection ends.
fn whole(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

#[test]
fn a_server_of_s3_that_is_asked_for_a_role_is_named_with_what_led_there() {
    let origin = serve(&objects(&[("a", 3)]));
    let host = url(&origin).replace("http://", "");
    let folder = tempfile::tempdir().expect("a folder");
    let (settings, token) = (folder.path().join("config"), folder.path().join("token"));
    let profile = format!(
        "[profile role]\nrole_arn = {ROLE}\nsource_profile = base\n\
         [profile base]\naws_access_key_id = A\naws_secret_access_key = S\n"
    );
    std::fs::write(&settings, profile).expect("written");
    std::fs::write(&token, "jwt").expect("written");
    let all = "; check AWS_ENDPOINT_URL: it is for all services, AWS_ENDPOINT_URL_S3 for S3 alone";
    for (variable, advice) in
        [("AWS_ENDPOINT_URL", all), ("AWS_ENDPOINT_URL_STS", "; check AWS_ENDPOINT_URL_STS")]
    {
        let program = || {
            let program = Program::new(["ls", "s3://lab/"]).asking(&origin);
            program.set(variable, url(&origin))
        };
        let with_token = program().set("AWS_WEB_IDENTITY_TOKEN_FILE", &token);
        let with_profile = program().set("AWS_CONFIG_FILE", &settings);
        for program in
            [with_token.set("AWS_ROLE_ARN", ROLE), with_profile.with(["--profile", "role"])]
        {
            let run = program.run().expect(ACCESS);
            let refused = format!("{host} answers 405 MethodNotAllowed");
            let words = [&*refused, "and not as STS does", advice];
            let run = run.expect_error(&words);
            for words in ["{", "nhandled", "service error", "XML"] {
                run.check(!run.stderr.contains(words), words);
            }
        }
    }
}

#[test]
fn an_answer_of_sts_without_words_is_none_of_the_librarys() {
    let host = answering(|_| whole("405 No", ""));
    let origin = serve(&objects(&[("a", 3)]));
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "jwt").expect("written");
    let program = Program::new(["ls", "s3://lab/"]).asking(&origin);
    let program = program.set("AWS_WEB_IDENTITY_TOKEN_FILE", &token).set("AWS_ROLE_ARN", ROLE);
    let run = program.set("AWS_ENDPOINT_URL_STS", format!("http://{host}")).run().expect(ACCESS);
    let words = format!("credentials: {host} answers 405; check AWS_ENDPOINT_URL_STS");
    run.expect_error(&[&words]);
}

#[test]
fn an_agent_that_gives_nothing_is_named_with_its_variable() {
    let variable = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    let origin = serve(&objects(&[("a", 3)]));
    let refusing = answering(|_| whole("404 No", ""));
    let leading = answering(|_| {
        "HTTP/1.1 302 No\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n"
            .to_owned()
    });
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port");
    let gone = listener.local_addr().expect("its address").to_string();
    drop(listener);
    for (host, code, words, advice) in [
        (refusing, ACCESS, "answers 404", format!("; check {variable}")),
        (leading, ACCESS, "a redirect to http://elsewhere", format!("; check {variable}")),
        (gone, ENDPOINT, "does not answer", format!("; check the network and {variable}")),
    ] {
        let program = Program::new(["ls", "s3://lab/", "--quiet"]).asking(&origin);
        let run = program.set(variable, format!("http://{host}/keys")).run().expect(code);
        run.expect_error(&[&host, words, &advice]);
    }
}
