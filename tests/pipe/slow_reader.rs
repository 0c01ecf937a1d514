//! A reader that is slower than the server: what is in flight stays what the reader needs.
//!
//! Nothing here depends on time but the reader: counts are compared, not rates.

use inrush_origin::SyntheticSet;
use serde_json::Value;

use crate::matrix::Objects;
use crate::reader::Reader;
use crate::served::{BUCKET, config, start};
use crate::{MIB, Stage, epochs_of, pipe};

/// Most requests in flight, and most connections of a run, to a server on loopback whose reader
/// takes 100 MB/s: one connection alone is faster.
const CONNECTIONS_MAX: u64 = 40;
/// Bytes a second of the reader.
const RATE: usize = 100_000_000;
/// Bytes of each of the two epochs: 2.7 s of the reader.
const EPOCH_BYTES: usize = 256 * MIB;

/// The most requests in flight that the pace chose.
fn in_flight_max(channel: &Value) -> u64 {
    let moments = channel["pace"]["timeline"].as_array().expect("a timeline");
    let in_flight = moments.iter().map(|moment| moment["requests_in_flight"].as_u64());
    in_flight.map(|count| count.expect("a number")).max().expect("a start")
}

/// Fails unless the epochs came whole, with few connections and without a late range.
#[track_caller]
fn assert_few_requests(options: &[&str]) {
    let mut config = config(&Objects::new());
    config.synthetic = vec![SyntheticSet::new(BUCKET, "s/", 2, EPOCH_BYTES as u64 / 2)];
    let origin = start(config);
    let stage = Stage::new();
    let program = pipe(&origin, ["s3://lab/s/"]).with([stage.channel("train")]);
    let running = stage.start(program.with(["--epochs", "2"]).with(options));
    let manner = format!("rate:{RATE}");
    let epochs = Reader::start(&stage.channel("train"), &[&manner, &manner]).finish();
    let run = stage.end(running, 0);
    assert!(epochs.iter().all(|epoch| epoch.bytes == EPOCH_BYTES as u64), "{epochs:?}");
    assert_eq!(epochs_of(&run, 0).len(), 2);
    let channel = &run.json()["channels"][0];
    let in_flight = in_flight_max(channel);
    let connects = channel["connects"].as_u64().expect("a number");
    run.check(in_flight <= CONNECTIONS_MAX, &format!("{in_flight} requests in flight"));
    run.check(connects <= CONNECTIONS_MAX, &format!("{connects} connections"));
    // On a busy machine one may be late all the same.
    let (hedges, requests) = (channel["hedges"].as_u64(), channel["requests"].as_u64());
    run.check(hedges.expect("a number") * 10 <= requests.expect("a number"), "few are late");
    let retries = channel["retries"].as_object().expect("reasons");
    run.check(retries.values().all(|count| *count == 0), "nothing stalls or is tried again");
}

#[test]
fn a_slow_reader_has_few_requests_in_flight() {
    assert_few_requests(&[]);
}
