//! What earlier runs left: journals of unfinished files, and marks of complete ones.

use inrush::files::journal::{HEADER_BYTES, Header, RECORD_BYTES, Unfit, WHOLE, record, replay};
use inrush::files::mark::{
    Identity, MARK_BYTES, MOMENT_BYTES, Mark, Moment, index_record, replay_index, sync_record,
};
use inrush::plan::ranges::RangeSet;

/// Length of the ranges in bytes.
const PART_BYTES: u64 = 1 << 20;
/// How many the object has; the last one is short.
const RANGES: u64 = 200;
/// Records that are made of an input, and the bytes that each takes of it.
const RECORDS_MAX: usize = 8;
const TAKEN_BYTES: usize = 3;
/// Places of a journal that is trusted, where it is cut and made wrong.
const PLACES_MAX: usize = 4;

/// A journal and a mark: whatever stands there, nothing is trusted but what was written of this
/// object, and what was written is trusted whole, in part when its end is torn, and not at all
/// when any byte is another.
pub fn journal(data: &[u8]) {
    read(data);
    written(data);
    marks(data);
    index(data);
}

/// The object whose journal it is.
fn header() -> Header {
    Header {
        boot: 77,
        identity: Identity::of(&["bucket", "key", "\"etag\""]),
        size_bytes: (RANGES - 1) * PART_BYTES + 5,
        part_bytes: PART_BYTES,
    }
}

fn indexes(set: &RangeSet) -> Vec<u64> {
    // Beyond the object's end, too: nothing is there.
    (0..RANGES + 1000).filter(|index| set.contains(*index)).collect()
}

/// Bytes of anyone's making.
fn read(data: &[u8]) {
    let Ok(done) = replay(data, &header()) else { return };
    let found = indexes(&done);
    let own = header().encode();
    assert_eq!(data[..HEADER_BYTES], own, "of another object");
    let mut again = own.to_vec();
    let mut recorded = Vec::new();
    for bytes in data[HEADER_BYTES..].chunks_exact(RECORD_BYTES) {
        let index = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
        let prefix_bytes = u64::from_le_bytes(bytes[4..12].try_into().expect("eight bytes"));
        again.extend(record(&own, index, prefix_bytes));
        match prefix_bytes {
            WHOLE => recorded.push(u64::from(index)),
            _ => assert!(done.reached(u64::from(index)) < PART_BYTES, "more than the range has"),
        }
    }
    assert!(data.starts_with(&again), "written anew it is another journal");
    recorded.sort_unstable();
    recorded.dedup();
    assert_eq!(found, recorded, "other ranges than were recorded");
    assert_eq!(done.count(), found.len() as u64);
    assert!(found.iter().all(|index| *index < RANGES), "{found:?} outside of the object");
    cut_and_garbled(data, &done, data);
}

/// A journal that is trusted: any beginning of it claims less, and one wrong byte discredits it.
fn cut_and_garbled(bytes: &[u8], whole: &RangeSet, data: &[u8]) {
    let torn = HEADER_BYTES + (bytes.len() - HEADER_BYTES) / RECORD_BYTES * RECORD_BYTES;
    for pair in data.rchunks_exact(2).take(PLACES_MAX) {
        let end = usize::from(u16::from_le_bytes([pair[0], pair[1]])) % bytes.len();
        match replay(&bytes[..end], &header()) {
            Ok(part) => {
                assert!(part.count() <= ((end - HEADER_BYTES) / RECORD_BYTES) as u64, "{end}");
                assert!(indexes(&part).iter().all(|index| whole.contains(*index)), "{end} bytes");
                let less = |index| part.reached(index) <= whole.reached(index);
                let within = |index| whole.contains(index) || less(index);
                assert!((0..RANGES).all(within), "{end} bytes");
            }
            Err(why) => assert!(end < HEADER_BYTES && why == Unfit::Damaged, "{end}: {why:?}"),
        }
        let mut garbled = bytes.to_vec();
        garbled[end] ^= 1 << (end % 8);
        let said = replay(&garbled, &header());
        assert_eq!(said.ok().as_ref(), (end >= torn).then_some(whole), "byte {end} is wrong");
    }
}

/// A journal of our own making, with records that the input chooses.
fn written(data: &[u8]) {
    let own = header().encode();
    let (mut bytes, mut expected) = (own.to_vec(), Ok(RangeSet::none(RANGES)));
    for taken in data.chunks_exact(TAKEN_BYTES).take(RECORDS_MAX) {
        // Most are of the object, a few behind its end.
        let index = u32::from(taken[0]) % 202 + 50 * u32::from(taken[1] == 0xff);
        let blocks = u64::from(taken[2]);
        let prefix_bytes = if blocks < 128 { WHOLE } else { (blocks - 128) * 4096 };
        bytes.extend(record(&own, index, prefix_bytes));
        let index = u64::from(index);
        // The last range is shorter than any beginning that could be noted.
        match &mut expected {
            Ok(done) if index < RANGES && prefix_bytes == WHOLE => done.insert(index),
            Ok(done) if index < RANGES - 1 && prefix_bytes > 0 => done.reach(index, prefix_bytes),
            _ => expected = Err(Unfit::Damaged),
        }
    }
    let torn = data.len() % TAKEN_BYTES;
    bytes.extend(&data[data.len() - torn..]);
    assert_eq!(replay(&bytes, &header()), expected);
    if let Ok(done) = expected {
        cut_and_garbled(&bytes, &done, data);
    }
    let other = |change: fn(&mut Header)| {
        let mut other = header();
        change(&mut other);
        replay(&bytes, &other)
    };
    assert_eq!(other(|header| header.boot += 1), Err(Unfit::Rebooted));
    assert_eq!(other(|header| header.size_bytes += 1), Err(Unfit::Changed));
    assert_eq!(other(|header| header.identity.0[15] ^= 1), Err(Unfit::Changed));
    assert_eq!(other(|header| header.part_bytes *= 2), Err(Unfit::Cut));
}

/// A mark says exactly what its bytes say: there are no two ways to write one.
fn marks(data: &[u8]) {
    if let Some(mark) = Mark::decode(data) {
        assert_eq!(mark.encode()[..], *data);
    }
    if let Some(moment) = Moment::decode(data) {
        assert_eq!(moment.encode()[..], *data);
    }
    let mark = mark_of(data);
    assert_eq!(Mark::decode(&mark.encode()), Some(mark));
    assert_eq!(Moment::decode(&mark.moment.encode()), Some(mark.moment));
    // Written before the machine started again, and never synced.
    let boot = mark.moment.boot.wrapping_add(1);
    assert_eq!(mark.is_believed(boot, &[]), mark.durable);
    let sync = Moment { boot: mark.moment.boot, since_ms: mark.moment.since_ms };
    assert_eq!(mark.is_believed(boot, &[sync]), mark.durable, "not surely before the sync");
}

/// A mark whose every field the input chooses; what it lacks is zero.
fn mark_of(data: &[u8]) -> Mark {
    let mut bytes = [0; MARK_BYTES];
    bytes.iter_mut().zip(data).for_each(|(byte, given)| *byte = *given);
    let word = |at: usize| bytes[at..at + 8].try_into().expect("eight bytes");
    let moment = &bytes[MARK_BYTES - MOMENT_BYTES..];
    Mark {
        size_bytes: u64::from_le_bytes(word(2)),
        identity: Identity(bytes[10..26].try_into().expect("sixteen bytes")),
        changed_ns: i64::from_le_bytes(word(26)),
        moment: Moment::decode(moment).expect("as long as a moment"),
        durable: bytes[1] & 1 != 0,
        verdict: bytes[1] >> 1,
    }
}

/// An index: its records are found whatever stands between them, and nothing is found that is not
/// there.
fn index(data: &[u8]) {
    let read = |bytes: &[u8]| {
        let mut seen = Vec::new();
        replay_index(bytes, |path, mark| seen.push((path, mark)));
        seen
    };
    let found = read(data);
    for (_, mark) in &found {
        let bytes = mark.encode();
        assert!(data.windows(MARK_BYTES).any(|window| window == bytes), "{mark:?} is not there");
    }
    let path = String::from_utf8_lossy(data);
    let mark = mark_of(data);
    let file = index_record(Some(&path), &mark);
    let sync = sync_record(mark.moment);
    assert!(found.len() * file.len() <= data.len(), "more records than have room");
    // Without its last byte a record that stands there is none, so that nothing hides the next.
    let between = &data[..data.len().saturating_sub(1)];
    let seen = read(&[&file[..], between, &sync].concat());
    assert_eq!(seen.first(), Some(&(Some(Identity::of(&[&path])), mark)));
    let (path, mark) = *seen.last().expect("a sync");
    assert_eq!((path, mark.moment, mark.durable), (None, mark_of(data).moment, true));
    assert_eq!(seen.len(), 2 + read(between).len(), "a record was hidden, or made up");
}
