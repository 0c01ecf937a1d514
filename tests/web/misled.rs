//! Redirects of a gateway that lead to something else than the object: to a login, to a server that
//! knows no versions, to one that nobody trusts.

use std::fs;

use crate::gateway::{answer, at, bytes_of, gateway, key_of, silent};
use crate::publisher::{Head, Publisher, Reply, file};
use crate::{ENDPOINT, OBJECTS, Place};

/// A proxy in front of the server sends everybody to a page of constant length.
#[test]
fn a_page_behind_a_redirect_is_no_object() {
    for etag in ["", "\"page\""] {
        let (place, page) = (Place::new(), "<html>please log in</html>");
        let login = Publisher::start(move |_| {
            let reply = Reply::new(200, page).header("Content-Type", "text/html; charset=utf-8");
            if etag.is_empty() { reply } else { reply.header("ETag", etag) }
        });
        let login_url = login.url("/login");
        let proxy = Publisher::start(move |_| Reply::leading_to(302, &login_url));
        let to = place.path("to");
        fs::write(&to, "as it was").expect("room");
        let words = ["where a redirect leads", "it leads to an HTML page"];
        let run = at(&proxy, &["get", "s3://lab/c"]).with([&to]).run();
        silent(run.expect(ENDPOINT).expect_words(&words));
        assert_eq!(fs::read(&to).expect("it is there"), b"as it was");
        let run = at(&proxy, &["cat", "s3://lab/c"]).run().expect(ENDPOINT).expect_words(&words);
        run.check(run.stdout.is_empty(), "no byte of the page");
    }
}

/// A node may ignore `If-Match`: its bytes count only with the ETag of the listing.
#[test]
fn a_node_without_etags_is_refused_where_the_listing_has_some() {
    let place = Place::new();
    let node = Publisher::start(|head| match key_of(head).and_then(|key| bytes_of(&key)) {
        Some(bytes) => {
            let unconditional = head.0.replace("If-Match", "X").replace("if-match", "x");
            file(&Head(unconditional), &bytes, "")
        }
        None => Reply::new(404, ""),
    });
    let gateway = gateway(307, false, [0, 1].map(|_| node.url("")));
    let to = place.path("to");
    let words = ["get", "--part-size", "1MiB", "s3://lab/"];
    let run = silent(at(&gateway, &words).with([&to]).run().expect(ENDPOINT));
    run.expect_words(&["where a redirect leads", "sends no ETag"]);
    assert!(!to.join("c").exists() && !to.join("d/large").exists(), "no file has its name");
}

/// One node with the certificate of a stranger takes no other node's objects with it.
#[test]
fn a_node_that_is_not_trusted_fails_its_objects_alone() {
    let place = Place::new();
    let bundles = ["node.pem", "gateway.pem", "stranger.pem"].map(|name| place.path(name));
    let node = Publisher::over(Some(&bundles[0]), answer);
    let stranger = Publisher::over(Some(&bundles[2]), answer);
    let nodes = [node.url(""), stranger.url("")];
    let gateway = Publisher::over(Some(&bundles[1]), move |head| {
        let Some(key) = key_of(head) else { return answer(head) };
        let to = &nodes[usize::from(key == "c")];
        Reply::leading_to(307, &format!("{to}{}", head.target()))
    });
    let bundle = place.path("ca.pem");
    let trusted = [0, 1].map(|at| fs::read_to_string(&bundles[at]).expect("a certificate"));
    fs::write(&bundle, trusted.concat()).expect("room");
    let to = place.path("to");
    let program = at(&gateway, &["get", "s3://lab/", "--connections", "1"]).with([&to]);
    let run = silent(program.with(["--ca-bundle".as_ref(), bundle.as_os_str()]).run());
    let run = run.expect(OBJECTS).expect_words(&["where a redirect leads", "s3://lab/c"]);
    run.check(stranger.all_heads().is_empty(), "no request goes to it");
    for key in ["a b", "d/large", "e"] {
        let found = fs::read(to.join(key)).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert!(Some(found) == bytes_of(key), "{key}");
    }
    assert!(!to.join("c").exists(), "it failed");
}
