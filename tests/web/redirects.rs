//! Redirects, and what happens when their last target expires.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::program::Program;
use crate::publisher::{Head, Publisher, Reply, file};
use crate::{ACCESS, ENDPOINT, NOT_FOUND, OBJECTS, Place, get, presigned, text};

const LENGTH: usize = (5 << 20) + 3;

/// A server of one file of [`LENGTH`] bytes.
fn store() -> Publisher {
    Publisher::start(|head| file(head, &text(LENGTH), "\"e\""))
}

/// A server that redirects to this URL, first to another path of its own.
fn front(to: String) -> Publisher {
    Publisher::start(move |head| match head.target().starts_with("/resolve/") {
        true => Reply::leading_to(302, "/api/f?token=between"),
        false => Reply::leading_to(307, &to),
    })
}

#[test]
fn ranges_go_to_the_end_of_the_redirects_which_learns_nothing_of_the_start() {
    let (store, place) = (store(), Place::new());
    let front = front(store.url("/blob?sig=end"));
    let words = [&front.url("/resolve/f?token=start"), "-v"];
    let run = get(&words, &place.path("to/")).run().expect(0);
    place.assert_has("to/f", &text(LENGTH));
    for service in ["AWS", "region"] {
        run.check(!run.stderr.contains(service), "nothing is asked of the S3 service");
    }
    let targets: Vec<_> = front.heads().iter().map(|head| head.target().to_owned()).collect();
    run.check(targets == ["/resolve/f?token=start", "/api/f?token=between"], "looked up once");
    let heads = store.heads();
    run.check(heads.len() == 7, "a look and six ranges");
    for Head(head) in &heads {
        run.check(head.starts_with("GET /blob?sig=end HTTP/1.1\r\n"), head);
        let address = format!("\r\nhost: {}\r\n", store.address());
        run.check(head.to_ascii_lowercase().contains(&address), head);
        run.check(!head.contains("start") && !head.contains("between"), head);
    }
    let run = Program::new(["cat", &front.url("/resolve/f?token=start")]).run().expect(0);
    assert!(run.stdout.as_bytes() == text(LENGTH), "a stream");
}

#[test]
fn loops_and_redirects_without_end_are_named() {
    let server = Publisher::start(|head| {
        let number: usize = head.target().trim_start_matches("/f").parse().unwrap_or(0);
        let next = if number == 3 { 1 } else { number + 1 };
        Reply::leading_to(308, &format!("/f{next}"))
    });
    let place = Place::new();
    let refused = |path: &str, words: &[&str]| {
        let run = get(&[&server.url(path)], &place.path("f")).run().expect(ENDPOINT);
        run.expect_error(words);
    };
    refused("/f1", &["are a loop", &server.url("/f1")]);
    refused("/f4", &["more than 10 redirects"]);
}

#[test]
fn an_encrypted_host_leads_to_no_other_and_any_to_it() {
    let place = Place::new();
    let (bundle, store) = (place.path("ca.pem"), store());
    let plain = store.url("/blob?sig=hunter2");
    let secure = Publisher::over(Some(&bundle), move |head| match head.target() {
        "/to-plain" => Reply::leading_to(302, &plain),
        "/to-file" => Reply::leading_to(302, "file:///etc/passwd"),
        "/to-user" => Reply::leading_to(302, "https://me:hunter2@127.0.0.1/f"),
        _ => file(head, &text(LENGTH), "\"e\""),
    });
    let trusting = |url: &str| {
        let program = get(&[url], &place.path("f"));
        program.with(["--ca-bundle".as_ref(), bundle.as_os_str()])
    };
    let to_plain = trusting(&secure.url("/to-plain")).run().expect(ENDPOINT);
    to_plain.expect_error(&["it leads from https to ", "/blob?..., which is not encrypted"]);
    assert!(store.heads().is_empty());
    let to_file = trusting(&secure.url("/to-file")).run().expect(ENDPOINT);
    to_file.expect_error(&["does not begin with http"]);
    let to_user = trusting(&secure.url("/to-user")).run().expect(ENDPOINT);
    let to_user = to_user.expect_error(&["it has a user"]);
    to_user.check(!to_user.stderr.contains("hunter2"), "no password is printed");
    trusting(&front(secure.url("/blob")).url("/resolve/f")).run().expect(0);
    place.assert_has("f", &text(LENGTH));
    let url = secure.url("/blob");
    let cat = Program::new(["cat", &url]).with(["--ca-bundle".as_ref(), bundle.as_os_str()]);
    assert!(cat.run().expect(0).stdout.as_bytes() == text(LENGTH), "a stream");
    // Nobody vouches for it.
    get(&[&url], &place.path("g")).run().expect(ENDPOINT).expect_error(&["certificate"]);
    secure.heads();
}

/// A store whose signatures are good for `requests` requests each, and the one in front that signs.
fn short_lived(requests: usize, status: u16) -> (Publisher, Publisher) {
    let served = Arc::new(AtomicUsize::new(0));
    let store = Publisher::start(move |head| {
        let number: usize = head.target().trim_start_matches("/blob?sig=").parse().unwrap_or(0);
        // The n-th signature has ended when n times as many requests were served.
        let may = |served: usize| (served < number * requests).then_some(served + 1);
        match served.fetch_update(Ordering::SeqCst, Ordering::SeqCst, may) {
            Ok(_) => file(head, &text(LENGTH), "\"e\""),
            Err(_) => Reply::new(status, "<html>expired</html>"),
        }
    });
    let (signed, to) = (AtomicUsize::new(0), store.url("/blob?sig="));
    let front = Publisher::start(move |_| {
        let number = signed.fetch_add(1, Ordering::SeqCst) + 1;
        Reply::leading_to(302, &format!("{to}{number}"))
    });
    (front, store)
}

#[test]
fn a_target_that_expires_is_looked_up_again() {
    for status in [401, 403, 410] {
        let place = Place::new();
        let (front, store) = short_lived(4, status);
        let words = [&front.url("/f?token=x"), "--connections", "1", "--workers", "1", "--json"];
        let run = get(&words, &place.path("f")).run().expect(0);
        place.assert_has("f", &text(LENGTH));
        run.check(front.heads().len() >= 2, "looked up again");
        let report = run.json();
        run.check(report["retries"]["expired_token"].as_u64() > Some(0), "it says why");
        store.heads();
    }
}

#[test]
fn a_target_that_is_always_refused_ends_its_object() {
    let place = Place::new();
    let store = Publisher::start(|head| match head.is_first_byte() {
        true => file(head, &text(LENGTH), "\"e\""),
        false => Reply::new(403, ""),
    });
    let url = store.url("/f?sig=x");
    let run = get(&[&url], &place.path("f")).run().expect(ACCESS);
    run.expect_words(&["refuses it again each time", "the server answered 403"]);
    assert!(!place.path("f").exists());
}

#[test]
fn a_url_that_expires_fails_by_itself() {
    let place = Place::new();
    let left = AtomicUsize::new(4);
    let server = Publisher::start(move |head| {
        if head.target().starts_with("/other") {
            return file(head, &text(LENGTH), "\"e\"");
        }
        let may = |left: usize| left.checked_sub(1);
        match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, may) {
            Ok(_) => file(head, &text(LENGTH), "\"e\""),
            Err(_) => {
                let why = "<Error><Code>AccessDenied</Code><Message>Request has expired</Message>\
                           </Error>";
                Reply::new(403, why)
            }
        }
    });
    let expired = server.url(&format!("/f?{}", presigned("20240101T000000Z")));
    let other = server.url("/other?sig=x");
    let words = [expired.as_str(), &other, "--connections", "1", "--workers", "1"];
    let run = get(&words, &place.path("to")).run().expect(OBJECTS);
    run.expect_words(&[
        &format!("{} bytes ", server.url("/f?...")),
        "403 AccessDenied (Request has expired)",
        "valid until 2024-01-01T01:00:00Z",
        "get a new URL",
    ]);
    place.assert_has("to/other", &text(LENGTH));
    assert!(!place.path("to/f").exists());
}

#[test]
fn an_object_that_is_replaced_meanwhile_has_changed() {
    for etag in [true, false] {
        let place = Place::new();
        let served = AtomicUsize::new(0);
        let server = Publisher::start(move |head| {
            let is_old = served.fetch_add(1, Ordering::SeqCst) < 4;
            match (etag, is_old) {
                (true, true) => file(head, &text(LENGTH), "\"old\""),
                (true, false) => file(head, &text(LENGTH), "\"new\""),
                (false, true) => file(head, &text(LENGTH), ""),
                (false, false) => file(head, &text(LENGTH - 1), ""),
            }
        });
        let words = [&server.url("/f"), "--connections", "1", "--workers", "1"];
        let run = get(&words, &place.path("f")).run().expect(OBJECTS);
        run.expect_words(&["the object changed during the download"]);
        assert!(!place.path("f").exists());
    }
}

#[test]
fn what_is_not_there_is_said_before_anything_is_written() {
    let place = Place::new();
    for (status, code, words) in [
        (404, NOT_FOUND, "the server answered 404"),
        (410, NOT_FOUND, "the server answered 410"),
        (403, ACCESS, "it has expired, it was valid until 2024-01-01T01:00:00Z: get a new URL"),
        (401, ACCESS, "it has expired"),
    ] {
        let server = Publisher::start(move |_| Reply::new(status, ""));
        let url = server.url(&format!("/f?{}", presigned("20240101T000000Z")));
        let run = get(&[&url], &place.path("to/")).run().expect(code);
        run.expect_error(&[&format!("get {}: ", server.url("/f?...")), words]);
        assert!(!place.path("to").exists());
    }
}
