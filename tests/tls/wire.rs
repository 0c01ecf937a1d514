//! What stands on the wire: the key of SSE-C, for objects and over TLS alone; and in which order a
//! directory bucket's objects come, which lists them in none.

use std::fs;

use crate::USAGE;
use crate::fake::{Fake, listing, object, page};
use crate::program::{Program, Run};
use crate::served::{ACCESS_KEY, SECRET};

const KEY: [u8; 32] = *b"0123456789abcdef0123456789ABCDEF";
/// `printf 0123456789abcdef0123456789ABCDEF | base64`, and through `openssl md5 -binary`.
const KEY_BASE64: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlBQkNERUY=";
const KEY_MD5: &str = "V5euSAsQOO0sIBHETfEa4w==";
const BODY: &str = "bytes";

/// Answers for a bucket with the object `a`.
fn bucket(head: &str) -> String {
    match head.contains("list-type=2") {
        true => listing(&[("a", BODY)]),
        false => object(head, BODY),
    }
}

fn asking(fake: &Fake, words: &[&str]) -> Program {
    Program::new(words)
        .with(["--endpoint-url", &fake.url(), "--region", "us-east-1"])
        .with_keys(ACCESS_KEY, SECRET)
        .set("RUST_LOG", "trace")
}

/// Nothing that was printed holds the key.
fn nothing_shown(run: &Run) {
    let printed = format!("{}{}", run.stdout, run.stderr);
    for hidden in [std::str::from_utf8(&KEY).expect("text"), KEY_BASE64, KEY_MD5] {
        run.check(!printed.contains(hidden), "no key was printed");
    }
}

#[test]
fn a_customer_key_from_a_file_goes_with_objects_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let [bundle, raw, text, destination] =
        ["ca.pem", "raw", "text", "destination"].map(|name| folder.path().join(name));
    fs::write(&raw, KEY).expect("room");
    fs::write(&text, format!("{KEY_BASE64}\n")).expect("room");
    let expected = format!(
        "\r\nx-amz-server-side-encryption-customer-algorithm: AES256\
         \r\nx-amz-server-side-encryption-customer-key: {KEY_BASE64}\
         \r\nx-amz-server-side-encryption-customer-key-md5: {KEY_MD5}\r\n"
    );
    let signed = "x-amz-server-side-encryption-customer-algorithm;\
                  x-amz-server-side-encryption-customer-key;\
                  x-amz-server-side-encryption-customer-key-md5";
    let destination = destination.to_str().expect("UTF-8");
    let commands: [&[&str]; 3] = [
        &["get", "s3://lab/", destination, "--json", "--overwrite", "always"],
        &["get", "s3://lab/a", "--discard"],
        &["cat", "s3://lab/a"],
    ];
    for (command, file) in commands.iter().flat_map(|command| [(command, &raw), (command, &text)]) {
        let fake = Fake::start(Some(&bundle), bucket);
        let run = asking(&fake, command)
            .with(["--ca-bundle".as_ref(), bundle.as_os_str()])
            .with(["--sse-c-key-file".as_ref(), file.as_os_str()])
            .run()
            .expect(0);
        nothing_shown(&run);
        let seen = fake.seen();
        let (lists, objects): (Vec<_>, Vec<_>) =
            seen.iter().partition(|head| head.contains("list-type=2"));
        run.check(objects.iter().any(|head| head.starts_with("GET ")), "an object was asked for");
        for head in objects {
            run.check(head.matches(&expected).count() == 1, &format!("the headers in {head}"));
            run.check(head.matches("customer-key:").count() == 1, "once");
            run.check(head.contains(signed), &format!("they are signed in {head}"));
        }
        for head in lists {
            run.check(!head.contains("customer"), "a listing has no key");
        }
    }
}

#[test]
fn a_customer_key_does_not_go_over_plain_http() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    fs::write(&file, KEY).expect("room");
    let fake = Fake::start(None, bucket);
    for command in [&["get", "s3://lab/", "--discard"][..], &["cat", "s3://lab/a"]] {
        let run = asking(&fake, command).with(["--sse-c-key-file".as_ref(), file.as_os_str()]);
        let run = run.run().expect(USAGE).expect_error(&["SSE-C key is not sent to http://"]);
        nothing_shown(&run);
    }
    let short = folder.path().join("short");
    fs::write(&short, &KEY[..31]).expect("room");
    let run = asking(&fake, &["cat", "s3://lab/a"]);
    let run = run.with(["--sse-c-key-file".as_ref(), short.as_os_str()]).run();
    let run = run.expect(USAGE).expect_error(&["short", "neither 32 bytes nor their base64"]);
    run.check(!run.stderr.contains("0123456789abcdef"), "no part of it was printed");
    assert!(fake.seen().is_empty(), "nobody was asked");
}

#[test]
fn a_directory_bucket_is_read_in_the_order_of_its_keys() {
    const OBJECTS: [(&str, &str); 5] =
        [("m/2", "4"), ("m", "2"), ("z", "5"), ("B", "1"), ("m/1", "3")];
    let folder = tempfile::tempdir().expect("a folder");
    let bundle = folder.path().join("ca.pem");
    let fake = Fake::start(Some(&bundle), |head| {
        let target = head.split(' ').nth(1).expect("a target");
        if target.ends_with("?session") {
            return page(
                "<CreateSessionResult><Credentials><SessionToken>T</SessionToken>\
                 <SecretAccessKey>S</SecretAccessKey><AccessKeyId>K</AccessKeyId>\
                 <Expiration>2100-01-01T00:00:00Z</Expiration></Credentials>\
                 </CreateSessionResult>",
            );
        }
        if target.contains("list-type=2") {
            return listing(&OBJECTS);
        }
        let named = OBJECTS.iter().find(|(key, _)| target.ends_with(&format!("-x-s3/{key}")));
        object(head, named.expect("a listed key").1)
    });
    let run = asking(&fake, &["cat", "s3://train--use1-az4--x-s3/"])
        .with(["--ca-bundle".as_ref(), bundle.as_os_str()])
        .run()
        .expect(0);
    run.check(run.stdout == "12345", "the objects came in the order of their keys");
}
