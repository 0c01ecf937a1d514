//! Listings of the real program by many requests at once: every key once and in order, whatever the
//! keys are and however the server fails; and no request in vain where there is little to list.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "programs under test")]

#[path = "../common/matrix.rs"]
#[expect(dead_code, reason = "the matrix of names belongs to other tests")]
mod matrix;
#[path = "../common/program.rs"]
#[expect(dead_code, reason = "signals belong to other tests")]
mod program;
#[path = "../common/served.rs"]
#[expect(dead_code, reason = "nothing is fetched here")]
mod served;

mod buckets;
mod endless;
mod levels;

use std::time::Duration;

use inrush_origin::{
    Config, Credentials, FaultPlan, ObjectContent, ObjectSpec, Origin, Profile, SyntheticSet,
};

use program::Program;
use served::{ACCESS_KEY, BUCKET, SECRET, start};

/// Keys that are hard to guess from each other, by the folder they are in.
fn keys() -> Vec<String> {
    let mut chance = fastrand::Rng::with_seed(1);
    let mut word = |letters: &str, length: usize| -> String {
        let letters: Vec<char> = letters.chars().collect();
        (0..length).map(|_| letters[chance.usize(..letters.len())]).collect()
    };
    let mut keys = Vec::new();
    keys.extend((0..7_000).map(|_| format!("random/{}", word("0123456789abcdef", 12))));
    keys.extend(
        (0..5_000).map(|_| format!("unicode/{}", word("aéß日本\u{10ffff}\u{e000} +%/", 7))),
    );
    keys.extend((0..4_500).map(|number| format!("long/{}{number:05}", "k".repeat(990))));
    keys.extend((0..4_000).map(|number| format!("folders/{number:04}/")));
    keys.extend((0..6_000).map(|number| format!("numbers/{number}.jpg")));
    // One hot folder between small ones.
    for (folder, count) in [("a", 1_500), ("hot", 9_000), ("z", 1_100)] {
        keys.extend((0..count).map(|number| format!("uneven/{folder}/{number:08}")));
    }
    keys.extend((0..999).map(|number| format!("page/{number}")));
    keys.extend((0..2_000).map(|number| format!("pages/{number:05}")));
    keys.push("one/object".to_owned());
    keys.sort();
    keys.dedup();
    keys
}

const FOLDERS: [&str; 9] =
    ["random/", "unicode/", "long/", "folders/", "numbers/", "uneven/", "page/", "pages/", "one/"];

fn config(keys: &[String]) -> Config {
    let content = ObjectContent::Synthetic { length_bytes: 1 };
    let object = |key: &String| ObjectSpec::new(BUCKET, key, content.clone());
    Config {
        objects: keys.iter().map(object).collect(),
        credentials: vec![Credentials::new(ACCESS_KEY, SECRET)],
        ..Config::default()
    }
}

/// The keys that `ls` prints, in its order.
fn listed(origin: &Origin, source: &str, words: &[&str]) -> Vec<String> {
    let source = format!("s3://{BUCKET}/{source}");
    let program = Program::new(["ls", "--recursive", "--json", &source]).with(words).asking(origin);
    let run = program.with_keys(ACCESS_KEY, SECRET).run().expect(0);
    let key = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        line["key"].as_str().expect("a key").to_owned()
    };
    run.stdout.lines().map(key).collect()
}

#[track_caller]
fn assert_listed(origin: &Origin, keys: &[String], prefix: &str, words: &[&str]) {
    let found = listed(origin, prefix, words);
    // The mark of the folder that is listed is no object of it.
    let wanted = keys.iter().filter(|key| key.starts_with(prefix));
    let differs = wanted.clone().zip(&found).find(|(wanted, found)| wanted != found);
    assert!(differs.is_none(), "{prefix} {words:?}: {differs:?}");
    assert_eq!(found.len(), wanted.count(), "{prefix} {words:?}");
}

#[test]
fn every_key_comes_once_and_in_order() {
    let keys = keys();
    let latency = Duration::from_millis(10);
    let origin = start(Config { first_byte_latency: latency, ..config(&keys) });
    for prefix in FOLDERS {
        assert_listed(&origin, &keys, prefix, &[]);
    }
    assert_listed(&origin, &keys, "", &["--list-requests", "32"]);
    // So a listing is split at all, and asks as often as there are pages when it is not.
    let before = origin.stats();
    assert!(before.connections > FOLDERS.len() as u64 + 8, "{} connections", before.connections);
    assert_listed(&origin, &keys, "uneven/", &["--list-requests", "1"]);
    let after = origin.stats();
    assert_eq!(after.connections, before.connections + 1);
    assert_eq!(after.lists, before.lists + 12, "11,600 keys");
}

#[test]
fn a_literal_prefix_lists_every_key_that_begins_so() {
    let keys = keys();
    let origin = start(Config { first_byte_latency: Duration::from_millis(10), ..config(&keys) });
    // In a folder, beside one, the start of a folder's name, and all.
    for prefix in ["numbers/1", "page", "uneven/h", ""] {
        assert_listed(&origin, &keys, prefix, &["--prefix"]);
    }
    // Object `i` of all keys in order is of shard `i` modulo 3, across folders.
    for (index, shard) in ["0/3", "1/3", "2/3"].into_iter().enumerate() {
        let found = listed(&origin, "u", &["--prefix", "--shard", shard]);
        let mine = keys.iter().filter(|key| key.starts_with('u')).skip(index).step_by(3);
        assert!(mine.eq(&found), "{shard}: {} objects", found.len());
    }
}

#[test]
fn short_listings_cost_no_request_more() {
    let keys = keys();
    let latency = Duration::from_millis(20);
    let origin = start(Config { first_byte_latency: latency, ..config(&keys) });
    for (prefix, pages) in [("one/", 1), ("page/", 1), ("pages/", 2)] {
        let before = origin.stats();
        assert_listed(&origin, &keys, prefix, &[]);
        let after = origin.stats();
        assert_eq!(after.lists, before.lists + pages, "{prefix}");
        assert_eq!(after.connections, before.connections + 1, "{prefix}");
    }
    let nothing =
        Program::new(["ls", "--recursive", &format!("s3://{BUCKET}/none/")]).asking(&origin);
    nothing.with_keys(ACCESS_KEY, SECRET).run().expect_error(&["nothing in this folder"]);
}

#[test]
fn a_numbered_set_takes_few_requests_in_vain() {
    let set = SyntheticSet { folders: 20, ..SyntheticSet::new(BUCKET, "p/", 100_000, 1) };
    let wanted: Vec<String> = (0..set.count).map(|index| set.key(index)).collect();
    let latency = Duration::from_millis(20);
    let config = Config { synthetic: vec![set], first_byte_latency: latency, ..config(&[]) };
    let origin = start(config);
    assert_listed(&origin, &wanted, "p/", &[]);
    let stats = origin.stats();
    assert!(stats.lists < 300, "{} requests for 100 pages", stats.lists);
    assert!(stats.connections >= 4, "{} connections", stats.connections);
}

#[test]
fn a_server_that_fails_loses_no_key_and_gives_none_twice() {
    let keys = keys();
    let profiles =
        [Profile::Mild, Profile::Mixed, Profile::Overloaded, Profile::Rough, Profile::Bursts];
    for (seed, profile) in (0..).zip(profiles) {
        let faults = FaultPlan::seeded(seed, profile);
        let origin = start(Config { faults, ..config(&keys) });
        for prefix in ["random/", "uneven/"] {
            assert_listed(&origin, &keys, prefix, &[]);
        }
        let stats = origin.stats();
        assert!(stats.faults_total() > 0, "{profile:?}: {} requests", stats.lists);
    }
}
