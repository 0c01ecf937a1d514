//! What is fetched, how often, and to which names.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use crate::program::Program;
use crate::publisher::{Head, Publisher, Reply, file};
use crate::{OBJECTS, Place, SECRET, USAGE, get, presigned, text};

/// Of one request, of several, and in between.
const LENGTHS: [usize; 5] = [0, 1, 5_000, 900_000, (5 << 20) + 3];

/// Publishes a file of the length that the path ends in.
fn publisher() -> Publisher {
    Publisher::start(|head| {
        let length = head.target().split(['?', '#']).next().unwrap_or_default();
        let length: usize = length.rsplit('-').next().unwrap_or_default().parse().unwrap_or(0);
        file(head, &text(length), &format!("\"{length}\""))
    })
}

#[test]
fn a_file_is_fetched_in_ranges_of_its_version_and_once() {
    let (server, place) = (publisher(), Place::new());
    let length = (5 << 20) + 3;
    let url = server.url(&format!("/a/b%20c/f-{length}?{}", presigned("29990101T000000Z")));
    let to = place.path("to/");
    let run = get(&[&url], &to).run().expect(0);
    run.check(run.stderr.contains("1 object, 5.24 MB -> "), "a summary");
    place.assert_has(&format!("to/f-{length}"), &text(length));
    let ranges = server.ranges();
    let firsts: BTreeSet<_> = ranges.iter().filter_map(Head::range).map(|range| range.0).collect();
    assert_eq!(firsts, (0..6).map(|part| part << 20).collect(), "each range");
    let is_pinned = |head: &Head| head.header("if-match") == Some(&format!("\"{length}\""));
    assert!(ranges.iter().all(is_pinned), "{ranges:?}");
    assert!(ranges.iter().all(|head| head.target().ends_with(SECRET)), "as it was given");
    let written = fs::metadata(place.path(&format!("to/f-{length}"))).expect("it is there");
    let date = UNIX_EPOCH + Duration::from_secs(1_704_067_200);
    assert_eq!(written.modified().expect("a time"), date);
    // Signed anew, it is the object that is there.
    let url = url.replace("29990101T", "29990102T");
    let run = get(&[&url], &to).run().expect(0);
    run.expect_words(&["already present, skipped"]);
    assert_eq!(server.ranges().len(), ranges.len());
}

#[test]
fn files_of_all_lengths_go_to_the_names_of_their_paths_and_into_streams() {
    let (server, place) = (publisher(), Place::new());
    let urls: Vec<_> =
        LENGTHS.iter().map(|length| server.url(&format!("/x/a%2Bb%20-{length}?t=1"))).collect();
    let words: Vec<_> = urls.iter().map(String::as_str).collect();
    get(&words, &place.path("many")).run().expect(0);
    for length in LENGTHS {
        place.assert_has(&format!("many/a+b -{length}"), &text(length));
    }
    get(&words[3..4], &place.path("one")).run().expect(0);
    place.assert_has("one", &text(900_000));
    let list = place.path("list");
    fs::write(&list, format!("# {}\n{}\n\n{}\n", words[4], words[1], words[2])).expect("room");
    let from = ["--files-from", list.to_str().expect("UTF-8")];
    get(&from, &place.path("listed")).run().expect(0);
    place.assert_has("listed/a+b -5000", &text(5_000));
    place.assert_has("listed/a+b -1", &text(1));
    let run = Program::new(["cat", words[4]]).run().expect(0);
    assert!(run.stdout.as_bytes() == text(LENGTHS[4]), "a stream");
    let run = Program::new(["cat", "--range", "10-19", words[2]]).run().expect(0);
    assert_eq!(run.stdout.as_bytes(), &text(5_000)[10..20]);
    server.heads();
}

/// The request as a server takes it that ignores `Range`.
fn without_range(head: &Head) -> Head {
    Head(head.0.replace("range: ", "x-range: ").replace("if-match", "x-if"))
}

#[test]
fn a_server_without_ranges_sends_each_file_once() {
    for etag in ["\"e\"", "W/\"e\"", ""] {
        let (place, length) = (Place::new(), (3 << 20) + 5);
        let server = Publisher::start(move |head| file(&without_range(head), &text(length), etag));
        let run = get(&[&server.url("/f"), "--json"], &place.path("f")).run().expect(0);
        place.assert_has("f", &text(length));
        assert_eq!(server.heads().len(), 2, "a look and a request");
        let document = run.json();
        run.check(document["retries"] == serde_json::json!({}), "no request fails");
        let words = [&server.url("/f"), "--bandwidth-limit", "1GB"];
        let run = get(&words, &place.path("g")).run().expect(0);
        run.expect_words(&["/f: downloaded by one request each", "--bandwidth-limit slows only"]);
        let run = Program::new(["cat", "--range", "1-2", &server.url("/f")]).run();
        run.expect(crate::ENDPOINT).expect_error(&["/f: its server ignores Range", "omit --range"]);
    }
}

/// As it is advised to those who give `--range`.
#[test]
fn a_stream_has_all_of_each_file_of_a_server_without_ranges() {
    let (place, lengths) = (Place::new(), [1 << 20, 1, (20 << 20) + 3, 900_000]);
    for bundle in [None, Some(place.path("ca.pem"))] {
        let server = Publisher::over(bundle.as_deref(), |head| {
            let length: usize = head.target().trim_start_matches('/').parse().expect("a length");
            file(&without_range(head), &text(length), "")
        });
        let url = |length: usize| server.url(&format!("/{length}"));
        let trusting = |words: &[String]| {
            let bundle = bundle.iter().flat_map(|path| ["--ca-bundle".as_ref(), path.as_os_str()]);
            Program::new(["cat"]).with(words).with(bundle)
        };
        let run = trusting(&[url(lengths[0])]).run().expect(0);
        assert!(run.stdout.as_bytes() == text(lengths[0]));
        let run = trusting(&lengths.map(url)).run().expect(0);
        assert!(run.stdout.as_bytes() == lengths.map(text).concat(), "in their order");
        // A range that waits long for its answer may be requested again over another connection.
        let is_whole = |head: &Head| {
            let length: usize = head.target().trim_start_matches('/').parse().expect("a length");
            head.range() == Some((0, length - 1))
        };
        assert!(server.ranges().iter().all(is_whole), "in one piece");
    }
}

/// What each version of a file is known by, whose server ends the connection in its middle.
struct Cut {
    etag: &'static str,
    is_dated: bool,
    /// The file is another one then.
    is_replaced: bool,
}

impl Cut {
    /// A server without ranges whose first answers with the file are cut.
    fn server(self, length: usize) -> Publisher {
        let served = AtomicUsize::new(0);
        Publisher::start(move |head| {
            let number = match head.is_first_byte() {
                true => served.load(Ordering::SeqCst),
                false => served.fetch_add(1, Ordering::SeqCst),
            };
            let (bare, is_new) = (Reply::new(200, text(length)), self.is_replaced && number > 0);
            let reply = match (self.etag, self.is_dated) {
                ("", false) => bare,
                ("", true) if is_new => {
                    bare.header("Last-Modified", "Tue, 02 Jan 2024 00:00:00 GMT")
                }
                (etag, _) => {
                    file(&without_range(head), &text(length), if is_new { "\"new\"" } else { etag })
                }
            };
            if number < 2 && !head.is_first_byte() { reply.cut() } else { reply }
        })
    }
}

#[test]
fn a_whole_file_that_breaks_in_its_middle_goes_on_if_it_is_unchanged() {
    let length = (3 << 20) + 5;
    for (etag, is_dated) in [("\"e\"", true), ("W/\"e\"", true), ("", true), ("", false)] {
        for is_replaced in [false, true] {
            let cut = || Cut { etag, is_dated, is_replaced };
            let (place, server) = (Place::new(), cut().server(length));
            let cat = Program::new(["cat", &server.url("/f")]).run();
            let (server, other) = (cut().server(length), publisher());
            // A range that waits for another try leaves its connection to the other server.
            let urls = [server.url("/f"), other.url("/g-7")];
            let words = urls.each_ref().map(String::as_str);
            let get = get(&words, &place.path("to")).run();
            if is_dated && !is_replaced {
                assert!(cat.expect(0).stdout.as_bytes() == text(length), "{etag}");
                get.expect(0);
                place.assert_has("to/f", &text(length));
                continue;
            }
            let why = match is_dated {
                true => "the object changed",
                false => "that shows whether the object is unchanged",
            };
            let cat = cat.expect(if is_dated { OBJECTS } else { crate::ENDPOINT });
            let cat = cat.expect_words(&[why]);
            cat.check(text(length).starts_with(cat.stdout.as_bytes()), "no byte of another");
            get.expect(OBJECTS).expect_words(&[why]);
            assert!(!place.path("to/f").exists());
        }
    }
}

#[test]
fn a_weak_tag_is_compared_here_and_not_there() {
    let (place, length) = (Place::new(), (3 << 20) + 5);
    let server = Publisher::start(move |head| file(head, &text(length), "W/\"e\""));
    get(&[&server.url("/f")], &place.path("f")).run().expect(0);
    place.assert_has("f", &text(length));
    assert!(server.heads().iter().all(|head| head.header("if-match").is_none()));
}

#[test]
fn an_interrupted_download_is_resumed() {
    static LEFT: AtomicUsize = AtomicUsize::new(3);
    let (place, length) = (Place::new(), (5 << 20) + 3);
    let server = Publisher::start(move |head| {
        let may = |left: usize| left.checked_sub(1);
        let is_first_byte = head.is_first_byte();
        if !is_first_byte && LEFT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, may).is_err() {
            return Reply::new(501, "");
        }
        file(head, &text(length), "\"e\"")
    });
    let url = server.url("/f?sig=one");
    let words = [url.as_str(), "--connections", "1", "--workers", "1"];
    get(&words, &place.path("f")).run().expect(crate::ENDPOINT);
    assert!(!place.path("f").exists());
    let before = server.ranges().len();
    LEFT.store(100, Ordering::SeqCst);
    let run = get(&[&url.replace("one", "two")], &place.path("f")).run().expect(0);
    run.expect_words(&["1 object resumed"]);
    place.assert_has("f", &text(length));
    assert_eq!(server.ranges().len() - before, 3, "what was there is not requested again");
}

#[test]
fn a_plan_names_files_and_no_queries() {
    let (server, place) = (publisher(), Place::new());
    let url = server.url(&format!("/f-7?sig={SECRET}"));
    let run = get(&[&url, "--dry-run"], &place.path("to/")).run().expect(0);
    let to = place.path("to/f-7");
    let line = format!("(dry run) get: {} -> {} (7 B)", server.url("/f-7"), to.display());
    run.check(run.stdout.trim() == line, &line);
    let run = get(&[&url, "--dry-run", "--json"], &place.path("to/")).run().expect(0);
    let line: serde_json::Value =
        serde_json::from_str(run.stdout.lines().next().unwrap_or_default()).expect("JSON");
    run.check(line["bucket"] == server.url("") && line["key"] == "f-7", "the URL");
    assert!(server.ranges().is_empty() && !place.path("to").exists());
}

#[test]
fn two_urls_of_one_name_are_refused_before_anything_is_requested() {
    let (server, place) = (publisher(), Place::new());
    let urls = ["/a/f-7?sig=hunter2", "/b/f-7?sig=hunter2"].map(|target| server.url(target));
    let run = get(&[&urls[0], &urls[1]], &place.path("to")).run().expect(USAGE);
    let both = format!("{} and {}: both", server.url("/a/f-7?..."), server.url("/b/f-7?..."));
    run.expect_error(&[&both, "the name 'f-7'", "inrush get URL DEST/NAME"]);
    assert!(server.heads().is_empty() && !place.path("to").exists());
    // One that is given twice is one.
    get(&[&urls[0], &urls[0]], &place.path("to")).run().expect(0);
    place.assert_has("to/f-7", &text(7));
}

#[test]
fn a_proxy_gets_the_whole_url() {
    let (server, place) = (publisher(), Place::new());
    let url = "http://store.invalid/f-900000?sig=hunter2";
    let program = get(&[url], &place.path("f"));
    program.set("http_proxy", format!("http://{}", server.address())).run().expect(0);
    place.assert_has("f", &text(900_000));
    assert!(server.heads().iter().all(|head| head.target() == url));
}
