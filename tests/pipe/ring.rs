//! Streams over either ring.

use crate::reader::Reader;
use crate::served::serve;
use crate::{Stage, assert_read, epochs_of, mixture, stream};

#[test]
fn every_byte_over_either_ring() {
    let all = mixture();
    let origin = serve(&all);
    let expected = stream(&all);
    for ring in ["epoll", "io_uring"] {
        let stage = Stage::new();
        let running = stage.serve(&origin, &["--ring", ring, "--epochs", "2"]);
        let epochs = Reader::start(&stage.channel("train"), &["all", "all"]).finish();
        epochs.iter().for_each(|epoch| assert_read(epoch, &expected));
        let run = stage.end(running, 0);
        assert_eq!(epochs_of(&run, 0).len(), 2);
        run.check(run.json()["ring"]["kind"] == ring, "the ring");
    }
}
