//! Commands that read no URLs, and URLs that are none of a file.

use std::path::PathBuf;

use crate::program::Program;
use crate::publisher::{Publisher, Reply, file};
use crate::{OBJECTS, Place, SECRET, USAGE, get};

#[test]
fn commands_without_urls_say_what_reads_them() {
    let (server, place) = (Publisher::start(|_| Reply::new(500, "")), Place::new());
    let url = server.url(&format!("/f?sig={SECRET}"));
    let to = place.path("to");
    let to = to.to_str().expect("UTF-8");
    let list = place.path("list");
    std::fs::write(&list, format!("{url}\n")).expect("room");
    let list = list.to_str().expect("UTF-8");
    let refused: [&[&str]; 10] = [
        &["sync", &url, to],
        &["verify", &url, to],
        &["ls", &url],
        &["pipe", &url, to],
        &["mount", &url, to],
        &["load", &url, "--to", to],
        &["sync", "--files-from", list, to],
        &["ls", "--files-from", list],
        &["get", "--prefix", &url, to],
        &["bench", &url],
    ];
    for words in refused {
        let run = Program::new(words).run().expect(USAGE);
        let run = run.expect_words(&["f?...' is not an S3 address", "only get and cat take URLs"]);
        run.check(!run.stderr.contains(SECRET), "no query is printed");
    }
    // What is typed wrongly in other ways.
    let wrong: [&[&str]; 5] = [
        &["get", &url],
        &["get", &url, "s3://bucket/key"],
        &[&url, to],
        &["doctor", &url],
        &["get", &url, to, "--version-id", "v"],
    ];
    for words in wrong {
        let run = Program::new(words).run().expect(USAGE);
        run.check(run.stderr.contains("f?..."), "it names the URL");
        run.check(!run.stderr.contains(SECRET), "no query is printed");
    }
    assert!(server.heads().is_empty());
}

#[test]
fn a_url_without_its_two_slashes_is_suggested() {
    let refused: [&[&str]; 4] = [
        &["get", "https:/h.test/f?sig=hunter2", "to"],
        &["get", "https:/h.test/f?sig=hunter2"],
        &["cat", "https:h.test/f?sig=hunter2"],
        &["get", "https://h.test/a", "https:/h.test/f?sig=hunter2"],
    ];
    for words in refused {
        let run = Program::new(words).run().expect(USAGE);
        let run = run.expect_words(&["did you mean https://h.test/f?..."]);
        run.check(!run.stderr.contains(SECRET), "no query is printed");
    }
}

#[test]
fn urls_that_name_no_file_are_refused() {
    let place = Place::new();
    for (url, why) in [
        ("https://127.0.0.1/?sig=hunter2", "its path names no file"),
        ("https://127.0.0.1/a/?sig=hunter2", "its path names no file"),
        ("https://127.0.0.1/a%2Fb?sig=hunter2", "has a slash"),
        ("https://127.0.0.1/a%0Ab?sig=hunter2", "a control character"),
        ("https://me:hunter2@127.0.0.1/f?sig=hunter2", "it has a user"),
        ("https://127.0.0.1:hunter2/f?sig=hunter2", "port"),
    ] {
        let run = get(&[url], &place.path("f")).run().expect(USAGE);
        let run = run.expect_words(&[why]);
        let printed = run.stderr.replace("127.0.0.1:hunter2/", "");
        run.check(!printed.contains(SECRET), "no secret is printed");
    }
}

#[test]
fn what_cannot_be_verified_is_not_said_to_be_stored() {
    let (server, place) = (Publisher::start(|head| file(head, &[b'x'; 9], "")), Place::new());
    let words = ["get", &server.url("/f"), "--verify", "strict"];
    for to in [PathBuf::from("--discard"), place.path("f")] {
        let run = Program::new(words).with([to]).run().expect(OBJECTS);
        let words = ["no checksum comes with a URL", "no object can be downloaded"];
        let run = run.expect_words(&words);
        run.check(!run.stderr.contains("stored\n"), "it is not about the destination");
    }
}

#[test]
fn an_answer_without_a_length_is_named() {
    let server = Publisher::start(|_| Reply::new(206, "x"));
    let place = Place::new();
    let run = get(&[&server.url("/f?x")], &place.path("f")).run().expect(crate::ENDPOINT);
    run.expect_error(&["f?...: the answer does not say how long the object is"]);
}
