//! Servers that refuse the optional headers of a request, or misread them.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{ASKED_AT_FIRST_MAX, asking, check, etag, objects, refused, replaced, right, serve};

#[test]
fn who_knows_if_match_without_quotes_alone_is_asked_without_it() {
    let heads = check(|request, bytes| {
        let wanted = request.head.lines().find_map(|line| line.strip_prefix("if-match: "));
        match wanted {
            Some(wanted) if wanted != etag(bytes) => refused(412),
            _ => right(request, bytes),
        }
    });
    let with = heads.iter().filter(|head| head.contains("if-match")).count();
    assert!(0 < with && with <= ASKED_AT_FIRST_MAX, "{with} of {}", heads.len());
}

/// The answer does not name the header, as S3's does not.
#[test]
fn who_refuses_headers_that_it_does_not_know_is_asked_without_them() {
    for (status, unknown) in [
        (501, &["x-amz-checksum-mode"][..]),
        (400, &["if-match"]),
        (501, &["if-match", "x-amz-checksum-mode"]),
    ] {
        let heads = check(move |request, bytes| {
            match unknown.iter().any(|name| request.head.contains(name)) {
                true => refused(status),
                false => right(request, bytes),
            }
        });
        let has = |name: &&str| heads.iter().filter(|head| head.contains(*name)).count();
        for name in ["x-amz-checksum-mode", "if-match"] {
            let count = has(&name);
            let (least, most) = match unknown.contains(&name) {
                true => (1, 2 * ASKED_AT_FIRST_MAX),
                false => (4, heads.len()),
            };
            assert!((least..=most).contains(&count), "{unknown:?}: {name} {count} times");
        }
    }
}

/// What is between may refuse a request once: others are requested with their checksums.
#[test]
fn one_refusal_turns_off_no_checksums() {
    let (objects, folder) = (objects(), tempfile::tempdir().expect("a folder"));
    let is_first = AtomicBool::new(true);
    let (address, heads) = serve(&objects, move |request, bytes| {
        let is_meant = request.head.contains("x-amz-checksum-mode");
        match is_meant && is_first.swap(false, Ordering::SeqCst) {
            true => refused(400),
            false => right(request, bytes),
        }
    });
    let to = folder.path().join("data");
    let words = ["get", "--part-size", "8MiB", "s3://lab/", to.to_str().expect("UTF-8")];
    asking(address, &words).with(["--connections", "1"]).run().expect(0);
    let heads = heads.lock().expect("no panic under the lock").clone();
    let is_without =
        |head: &&String| head.starts_with("get /lab/") && !head.contains("x-amz-checksum-mode");
    let without = heads.iter().filter(|head| !head.contains("list-type")).filter(is_without);
    assert_eq!(without.count(), 1, "{heads:?}");
}

/// Its refusal says nothing of others: they are requested with their checksums.
#[test]
fn an_object_that_is_refused_for_itself_fails_alone() {
    let (objects, folder) = (objects(), tempfile::tempdir().expect("a folder"));
    let (address, heads) = serve(&objects, |request, bytes| match request.key.as_str() {
        "small" => refused(400),
        _ => right(request, bytes),
    });
    let to = folder.path().join("data");
    let words = ["get", "--part-size", "8MiB", "s3://lab/", to.to_str().expect("UTF-8")];
    asking(address, &words).with(["--connections", "1"]).run().expect(1).expect_words(&["400"]);
    asking(address, &words).run().expect(1);
    assert!(!to.join("small").exists() && to.join("medium").exists() && to.join("large").exists());
    let heads = heads.lock().expect("no panic under the lock").clone();
    let whole = |key: &str| -> Vec<&String> {
        let line = format!("get /lab/{key} ");
        heads.iter().filter(|head| head.starts_with(&line)).collect()
    };
    assert!(whole("small").len() <= 8, "{heads:?}");
    for key in ["medium", "large"] {
        let whole = whole(key);
        assert!(!whole.is_empty(), "{heads:?}");
        assert!(whole.iter().all(|head| head.contains("x-amz-checksum-mode")), "{whole:?}");
    }
}

#[test]
fn an_object_that_changed_is_reported_by_its_etag() {
    let (objects, folder) = (objects(), tempfile::tempdir().expect("a folder"));
    let (address, _) = serve(&objects, |request, bytes| {
        let answer = right(request, bytes);
        match (request.key.as_str(), request.head.contains("if-match")) {
            ("small", true) => refused(412),
            ("small", false) => replaced(answer, &etag(bytes), "another"),
            _ => answer,
        }
    });
    let to = folder.path().join("data");
    let run = asking(address, &["get", "s3://lab/", to.to_str().expect("UTF-8")]).run();
    let run = run.expect(1).expect_words(&["s3://lab/small", "the object changed"]);
    run.check(!to.join("small").exists() && to.join("large").exists(), "the others are there");
}

/// Without `If-Match` only the ETag distinguishes one version from another.
#[test]
fn who_misreads_if_match_and_sends_no_etag_is_not_believed() {
    let (objects, folder) = (objects(), tempfile::tempdir().expect("a folder"));
    let (address, _) = serve(&objects, |request, bytes| {
        let answer = right(request, bytes);
        let etag = format!("ETag: \"{}\"\r\n", etag(bytes));
        match request.head.contains("if-match") {
            true => refused(412),
            false => replaced(answer, &etag, ""),
        }
    });
    let to = folder.path().join("data");
    let run = asking(address, &["get", "s3://lab/", to.to_str().expect("UTF-8")]).run();
    run.expect(1).expect_words(&["the object changed"]);
    for key in objects.keys() {
        assert!(!to.join(key).exists(), "{key}");
    }
}
