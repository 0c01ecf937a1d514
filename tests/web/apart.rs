//! Several URLs of which some fail: each by itself, and the others are complete.

use std::fs;
use std::net::TcpListener;
use std::time::Instant;

use crate::publisher::{Publisher, Reply, file};
use crate::{ACCESS, ENDPOINT, NOT_FOUND, OBJECTS, Place, get, text};

const LENGTH: usize = (1 << 20) + 3;

/// A server whose paths say what is wrong with their files.
fn server() -> Publisher {
    Publisher::start(|head| match head.target().trim_start_matches('/') {
        "loop" => Reply::leading_to(302, "/loop"),
        "nowhere" => Reply::new(302, ""),
        "failing" => Reply::new(501, ""),
        "refused" | "refused2" => Reply::new(403, ""),
        name if name.starts_with("none") => Reply::new(404, ""),
        "endless" => Reply::new(206, "x"),
        _ => file(head, &text(LENGTH), "\"e\""),
    })
}

/// A URL whose port nobody listens at.
fn away(name: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    format!("http://{}/{name}", listener.local_addr().expect("an address"))
}

#[test]
fn what_one_server_does_wrong_is_the_failure_of_one_url() {
    let (server, place) = (server(), Place::new());
    let wrong = ["loop", "nowhere", "failing", "refused", "none", "endless"];
    for url in wrong.map(|name| server.url(&format!("/{name}"))).iter().chain([&away("away")]) {
        let words = [url, &server.url("/f"), "--retry-for", "0"];
        let run = get(&words, &place.path("to")).run().expect(OBJECTS);
        run.expect_words(&[url, "1 of 2 sources ", "the objects of the others are complete"]);
        place.assert_has("to/f", &text(LENGTH));
        fs::remove_file(place.path("to/f")).expect("it is there");
    }
    let words = [&server.url("/none"), &server.url("/refused"), &server.url("/f")];
    let run = get(&words.map(String::as_str), &place.path("to")).run().expect(OBJECTS);
    run.expect_words(&["2 of 3 sources do not exist or cannot be read; the objects of"]);
}

#[test]
fn urls_that_all_fail_alike_have_the_exit_code_of_their_failure() {
    let (server, place) = (server(), Place::new());
    let url = |name: &str| server.url(&format!("/{name}"));
    let five = vec!["none", "none2", "none3", "none4", "none5"];
    for (names, code, words, more) in [
        (vec!["refused", "refused2"], ACCESS, "none of 2 sources can be read (", ""),
        (vec!["loop", "nowhere"], ENDPOINT, "none of 2 sources can be read (", ""),
        (vec!["loop", "refused"], OBJECTS, "none of 2 sources can be read (", ""),
        (five, NOT_FOUND, "none of 5 sources was found (", " and 2 more"),
    ] {
        let (list, urls) = (place.path("list"), names.into_iter().map(url).collect::<Vec<_>>());
        fs::write(&list, urls.join("\n")).expect("room");
        let from = ["--files-from", list.to_str().expect("UTF-8")];
        let run = get(&from, &place.path("to")).run().expect(code);
        let named = urls[..urls.len().min(3)].join(", ");
        run.expect_error(&[&format!("{words}{named}{more}), the first: get {}: ", urls[0])]);
    }
    assert!(!place.path("to").exists());
}

/// As many as are asked at once share the time that one server is waited for.
#[test]
fn many_urls_of_one_server_that_is_away_wait_for_it_once() {
    const COUNT: usize = 400;
    let (server, place) = (server(), Place::new());
    let away = away("away");
    let mut urls: Vec<_> = (0..COUNT).map(|number| format!("{away}{number}")).collect();
    urls.push(server.url("/f"));
    let list = place.path("list");
    fs::write(&list, urls.join("\n")).expect("room");
    let from = ["--files-from", list.to_str().expect("UTF-8"), "--retry-for", "3s"];
    let begun = Instant::now();
    let run = get(&from, &place.path("to")).run().expect(OBJECTS);
    run.expect_words(&["400 of 401 sources cannot be read", "does not answer"]);
    assert!(begun.elapsed().as_secs() < 12, "{:?}", begun.elapsed());
    place.assert_has("to/f", &text(LENGTH));
}
