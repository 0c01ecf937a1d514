//! Limits of how many requests are in flight, and how many are sent a second.

use super::{CONNECTIONS_START_MAX, SLOT_BYTES_MAX};

/// The controller of a run's pace looks so often, in microseconds.
pub const PACE_TICK_US: u64 = 5_000;

/// Shortest measurement of goodput, in microseconds: usually a first byte and a piece of a body.
pub const PACE_WINDOW_MIN_US: u64 = 50_000;

/// The same where nothing is new, and noise would only be followed.
pub const PACE_WINDOW_HOLD_MIN_US: u64 = 250_000;

/// A measurement lasts so many pieces of a connection, and a first byte.
pub const PACE_WINDOW_PIECES: u64 = 4;

/// Requests that take longer than so many times to their first byte do not bring their bytes in
/// waves that matter.
pub const PACE_ROUND_FIRST_BYTES: u64 = 8;

/// Longest such measurement, in microseconds; twice as long where nothing is new.
pub const PACE_WINDOW_MAX_US: u64 = 400_000;

/// Before a measurement what was chosen must take effect: at least so long, in microseconds.
pub const PACE_SETTLE_MIN_US: u64 = 20_000;

/// At most so long, and again as long for requests that are to end or to begin, in microseconds.
pub const PACE_SETTLE_MAX_US: u64 = 400_000;

/// But no longer, in microseconds: where few end, bytes alone are counted.
pub const PACE_ORDERED_SETTLE_MAX_US: u64 = 1_200_000;

/// After a climb a measurement of it lasts for this many times that a request takes.
pub const PACE_ORDERED_ROUNDS: u64 = 6;

/// And at least this long, in microseconds.
pub const PACE_ORDERED_WINDOW_MIN_US: u64 = 500_000;

/// A look at a level beside that brings less than this many thousandths of what was known is over
/// after [`PACE_ORDERED_LOST_ROUNDS`]: it costs what is missing.
pub const PACE_ORDERED_LOST_PER_MILLE: u64 = 900;

/// The time of this many requests.
pub const PACE_ORDERED_LOST_ROUNDS: u64 = 2;

/// Twice as many requests pay when they bring so many thousandths of what half of them brought.
pub const PACE_CLIMB_PER_MILLE: u64 = 1080;

/// Twice as many that bring so many thousandths already are not measured to the end of a window.
pub const PACE_CLEAR_PER_MILLE: u64 = 1600;

/// Where twice as many requests brought less than so many thousandths of what half of them brought,
/// a number between may bring nearly as much.
pub const PACE_KNEE_PER_MILLE: u64 = 1400;

/// Requests that wait for their first byte for so many thousandths of their time are far from the
/// limit of anything: four times as many are measured next.
pub const PACE_LEAP_WAIT_PER_MILLE: u64 = 750;

/// And at least so long, in microseconds: without latency the limit is near from the start.
pub const PACE_LEAP_FIRST_BYTE_US: u64 = 10_000;

/// And bring so many bytes at most: of large ones a few too many fill the line for long.
pub const PACE_LEAP_BYTES_MAX: u64 = 1 << 20;

/// Small objects that are not answered within [`PACE_LEAP_FIRST_BYTE_US`] are far from the limit as
/// well: four times as many are asked for, up to so many, before anything is measured. It is what
/// machines with many cores begin with.
#[expect(clippy::cast_possible_truncation, reason = "256")]
pub const PACE_UNANSWERED_MAX: u32 = CONNECTIONS_START_MAX as u32;

/// It was too far where a request takes so many times as long as the first ones waited.
pub const PACE_LEAP_QUEUE_FACTOR: u64 = 2;

/// So long after its first request a worker looks after each tick whether there was an answer.
pub const PACE_FIRST_LOOKS_US: u64 = 100_000;

/// This machine is the limit while so many thousandths of the requests in flight find no slot.
pub const PACE_HELD_UP_PER_MILLE: u64 = 60;

/// There a step more, or twice as many, are kept when they bring this many thousandths: disks go up
/// and down by less.
pub const PACE_FULL_UP_PER_MILLE: u64 = 1150;

/// The reader of a stream is the limit while it waits for less than so many thousandths of the
/// time: more requests could bring at most that much more. A reader of 500 MB/s from loopback waits
/// for 24, one of 1,000 MB/s for 51, one that is as fast as the network for 540.
pub const PACE_READER_WAITED_PER_MILLE: u64 = 60;

/// How long that is looked at, in microseconds.
pub const PACE_READER_WINDOW_US: u64 = 250_000;

/// So many such windows in a row make the requests fewer, by one step.
pub const PACE_READER_WINDOWS: u32 = 2;

/// A reader that takes nothing for so long rests, in microseconds.
pub const PACE_READER_REST_US: u64 = 100_000;

/// A step was one too many for a reader that waits for so many thousandths of the time more than
/// before it.
pub const PACE_READER_MISSED_PER_MILLE: u64 = 15;

/// The number that was too small is not tried again for so long, in microseconds: it costs what is
/// missing there.
pub const PACE_READER_FLOOR_US: u64 = 30_000_000;

/// A step more is kept when it brings so many thousandths.
pub const PACE_UP_PER_MILLE: u64 = 1030;

/// A step more of a stream's requests is kept when it brings this many thousandths: its windows go
/// up and down by more than others.
pub const PACE_ORDERED_UP_PER_MILLE: u64 = 1050;

/// And it is doubled at once when it brings this many: the best number is far above.
pub const PACE_ORDERED_CLIMB_PER_MILLE: u64 = 1200;

/// A step fewer is kept when it brings so many thousandths.
pub const PACE_DOWN_PER_MILLE: u64 = 985;

/// So many thousandths of the best are nearly the best: the fewest requests that bring them do.
pub const PACE_NEARLY_BEST_PER_MILLE: u64 = 975;

/// What one level was seen to bring is trusted for so long, in microseconds.
pub const PACE_KNOWN_FOR_US: u64 = 20_000_000;

/// Time between two looks at a level beside, at first, in microseconds.
pub const PACE_PAUSE_MIN_US: u64 = 200_000;

/// Doubled each time that nothing was found; above, where what a neighbour leaves is to be found
/// within 3 seconds, at most so long.
pub const PACE_UP_PAUSE_MAX_US: u64 = 1_200_000;

/// Below, where it costs what is missing there, so long at first.
pub const PACE_DOWN_PAUSE_US: u64 = 2_000_000;

/// And at most so long.
pub const PACE_DOWN_PAUSE_MAX_US: u64 = 8_000_000;

/// A window so many thousandths off what is known is strange.
pub const PACE_CHANGED_PER_MILLE: u64 = 250;

/// So many strange windows in a row mean that the network has changed.
pub const PACE_CHANGED_WINDOWS: u32 = 3;

/// A body is measured in pieces of so many bytes, as slots deliver it.
pub const PACE_PIECE_BYTES: u64 = SLOT_BYTES_MAX as u64;

/// A request counts as so many bytes of work: small objects are paced by their number.
pub const PACE_REQUEST_BYTES: u64 = 64 << 10;

/// Requests that bring so many times as much each, beside [`PACE_REQUEST_BYTES`], are of another
/// kind: what so many of them bring is not compared with what the others brought.
pub const PACE_UNLIKE_FACTOR: u64 = 4;

/// A server that asks for less is judged by slices of at least so long, in microseconds.
pub const RATE_SLICE_MIN_US: u64 = 50_000;

/// And of at least so many requests, or this time.
pub const RATE_SLICE_REQUESTS: u64 = 20;

/// See [`RATE_SLICE_REQUESTS`].
pub const RATE_SLICE_MAX_US: u64 = 1_000_000;

/// Fewer refusals in a slice say nothing.
pub const RATE_REFUSED_MIN: u64 = 2;

/// So many thousandths of a slice's requests may be refused without a word about the rate.
pub const RATE_TOLERATED_PER_MILLE: u64 = 20;

/// A rate grows past what was refused only while so many thousandths of it are used.
pub const RATE_USED_PER_MILLE: u64 = 850;

/// Refusals that no rate changes are taken for faults up to so many thousandths of the requests.
pub const RATE_FAULTS_PER_MILLE: u64 = 500;

/// For so long, in microseconds; then the rate is tried again.
pub const RATE_FAULTS_US: u64 = 30_000_000;

/// So many thousandths are taken for faults at least, once any are: a slice of few is noisy.
pub const RATE_FAULTS_TOLERATED_PER_MILLE: u64 = 150;

/// After so many slices in a row with refusals, below the rate that was served, they are faults.
pub const RATE_FAULTS_SLICES: u32 = 4;

/// Such slices are in a row while no more time than this goes between two of them, in microseconds,
/// where there is no rate yet.
pub const RATE_ROW_US: u64 = 3_000_000;

/// The rate goes so many thousandths below what was served.
pub const RATE_CUT_PER_MILLE: u64 = 50;

/// And is there again after this time, in microseconds.
pub const RATE_PLATEAU_US: u64 = 700_000;

/// And not before the time of so many requests.
pub const RATE_PLATEAU_REQUESTS: u64 = 100;

/// It is there after this time at the latest, however few requests that is, in microseconds.
pub const RATE_PLATEAU_MAX_US: u64 = 3_000_000;

/// No rate goes below so many requests a second: less is for the pauses between tries, and would
/// starve a stream.
pub const RATE_LEAST: u64 = 32;

/// Requests that were sent before the rate was lowered may still be refused for so long, in
/// microseconds.
pub const RATE_GRACE_US: u64 = 200_000;

/// Requests of so much time may be sent at once, in microseconds.
pub const RATE_BURST_US: u64 = 10_000;

/// Choices of the controller that a report tells.
pub const TIMELINE_MOMENTS_MAX: usize = 64;

/// Those who share a bandwidth that the user bounds, each with a part of its own: the channels of a
/// training job, and the runs that download its files one after the other.
pub const BANDWIDTH_CLIENTS_MAX: usize = 64;

/// A request within a bandwidth that the user bounds is for what may be asked for in so much time,
/// in microseconds, but not less than the smallest part: its bytes come as fast as the network
/// brings them.
pub const BANDWIDTH_PART_US: u64 = 250_000;

/// How far one of them may be ahead of another, as the time in which that many bytes may be asked
/// for, in microseconds.
pub const BANDWIDTH_AHEAD_US: u64 = 20_000;

/// How long one that waits has to come when it is its turn, in microseconds: longer than a thread
/// takes to wake. Then another goes first.
pub const BANDWIDTH_CLAIM_US: u64 = 20_000;

/// Pause of one that lets another go first, in microseconds.
pub const BANDWIDTH_YIELD_US: u64 = 1_000;

/// Durations that are remembered of each kind of operation.
pub const PACE_SAMPLES: usize = 64;

/// So many must be known before one is called late.
pub const PACE_SAMPLES_MIN: usize = 16;

const _: () = assert!(PACE_SAMPLES.is_multiple_of(PACE_SAMPLES_MIN));
