//! Limits of how many requests are in flight, and how many are sent a second.
//!
//! Names that end with `_US` are in microseconds, with `_PER_MILLE` in thousandths. A value without
//! a measurement was chosen. `tools/check.py mutate` halves and doubles each, or the distance from
//! 1000 of a share above 500 thousandths; the tests that fail then are in `src/engine/pace`.

use super::{CONNECTIONS_START_MAX, SLOT_BYTES_MAX};

/// Interval at which the controller of a run's requests in flight is called, in microseconds.
/// `refusals_bring_a_rate_and_end_the_climb` fails at half and at double.
pub const PACE_TICK_US: u64 = 5_000;

/// Shortest measurement of goodput during a climb, in microseconds: usually a first byte and one
/// piece of a body.
/// `new_connections_have_20_ms_to_bring_something_and_no_longer` fails at half and at double.
pub const PACE_WINDOW_MIN_US: u64 = 50_000;

/// Shortest measurement of goodput while the number of requests holds, and of a look at a number
/// beside it, in microseconds: shorter ones follow noise.
/// `half_a_second_of_30_percent_less_is_no_change_and_a_second_is` fails at half and at double.
pub const PACE_WINDOW_HOLD_MIN_US: u64 = 250_000;

/// A measurement lasts as long as a first byte and this many pieces of a connection. Connections
/// that began together deliver their pieces together, so one more or less is an error of a quarter.
/// `a_measurement_ends_early_after_a_gain_of_70_percent_and_not_of_45` fails at half,
/// `a_disk_that_takes_more_at_once_gets_more` at double.
pub const PACE_WINDOW_PIECES: u64 = 4;

/// Measure in whole rounds of requests only if a request takes at most this many times its time to
/// the first byte: then requests that began together deliver their bytes together.
/// `requests_that_wait_for_a_fifth_of_their_time_are_measured_in_rounds` fails at half and at
/// double.
pub const PACE_ROUND_FIRST_BYTES: u64 = 8;

/// Longest measurement of goodput during a climb, in microseconds; twice as long while the number
/// holds.
/// `a_measurement_ends_early_after_a_gain_of_70_percent_and_not_of_45` fails at half,
/// `a_step_of_a_climb_takes_at_most_800_ms_with_slow_connections` at double.
pub const PACE_WINDOW_MAX_US: u64 = 400_000;

/// Shortest wait between a change of the number of requests and its measurement, in microseconds:
/// new connections need it before their first bytes come, on a local network too.
/// `new_connections_have_20_ms_to_bring_something_and_no_longer` fails at half and at double.
pub const PACE_SETTLE_MIN_US: u64 = 20_000;

/// Longest such wait, and as long again for requests above a lowered number to end, and those below
/// a raised one to begin, in microseconds.
/// `small_objects_that_queue_are_soon_fewer_again` fails at half,
/// `a_step_of_a_climb_takes_at_most_800_ms_with_slow_connections` at double.
pub const PACE_SETTLE_MAX_US: u64 = 400_000;

/// While the number of a stream's requests holds, a measurement lasts as long as this many requests
/// one after the other.
/// `a_look_that_costs_13_percent_ends_after_2_rounds_and_one_of_7_after_6` fails at half and at
/// double.
pub const PACE_ORDERED_ROUNDS: u64 = 6;

/// Shortest measurement of a stream while the number of requests holds, in microseconds.
/// `a_fast_reader_keeps_what_the_network_brings_whatever_its_noise` fails at half,
/// `a_step_up_of_a_stream_is_kept_for_7_percent_and_doubled_for_30` at double.
pub const PACE_ORDERED_WINDOW_MIN_US: u64 = 500_000;

/// End a stream's look at another number of requests early if it brings less than 90 % of the
/// goodput known: each round of it costs the difference.
/// `a_look_that_costs_13_percent_ends_after_2_rounds_and_one_of_7_after_6` fails at half and at
/// double.
pub const PACE_ORDERED_LOST_PER_MILLE: u64 = 900;

/// A look can end early once it has lasted as long as this many requests one after the other.
/// `a_look_that_costs_13_percent_ends_after_2_rounds_and_one_of_7_after_6` fails at half and at
/// double.
pub const PACE_ORDERED_LOST_ROUNDS: u64 = 2;

/// Double the number of requests again only if the last doubling raised goodput by at least 8 %.
/// `a_climb_goes_on_after_a_gain_of_11_percent_and_not_of_6` fails at half and at double.
pub const PACE_CLIMB_PER_MILLE: u64 = 1080;

/// End the measurement of a doubling early if goodput has grown by at least 60 %. 20,000 objects of
/// 39 KB with 20 ms to the first byte: 0.87 of the best number set by hand instead of 0.63.
/// `a_measurement_ends_early_after_a_gain_of_70_percent_and_not_of_45` fails at half and at double.
pub const PACE_CLEAR_PER_MILLE: u64 = 1600;

/// Try a number between at once if the last doubling raised goodput by less than 40 %: it may bring
/// nearly as much.
/// `a_number_between_is_tried_at_once_after_a_gain_of_30_percent` fails at half and at double.
pub const PACE_KNEE_PER_MILLE: u64 = 1400;

/// Quadruple the number of requests instead of doubling it while they wait for their first byte for
/// at least 75 % of their time. 5,000 objects of 39 KB with 30 ms to the first byte: 0.69 s instead
/// of 0.97 s.
/// `requests_that_wait_for_80_percent_of_their_time_leap_and_those_of_67_do_not` fails at half and
/// at double.
pub const PACE_LEAP_WAIT_PER_MILLE: u64 = 750;

/// Quadruple only if the first byte takes at least this long, in microseconds: without latency the
/// limit is near from the start.
/// `small_objects_that_wait_are_many_before_the_first_answer` fails at half and at double.
pub const PACE_LEAP_FIRST_BYTE_US: u64 = 10_000;

/// Quadruple only if requests are at most this long: a few large ones too many fill the line for
/// long.
/// `requests_of_700_kb_leap_and_those_of_1500_kb_do_not` fails at half and at double.
pub const PACE_LEAP_BYTES_MAX: u64 = 1 << 20;

/// Most small objects to request before the first answer: their number is quadrupled each
/// [`PACE_LEAP_FIRST_BYTE_US`] without one. Machines with many cores begin with it. Objects of 39
/// KB with 20 ms to the first byte: 27,053 a second instead of 22,771.
/// `a_leap_is_taken_back_where_requests_take_3_times_as_long` fails at half and at double.
#[expect(clippy::cast_possible_truncation, reason = "256")]
pub const PACE_UNANSWERED_MAX: u32 = CONNECTIONS_START_MAX as u32;

/// Take that back if requests then last at least this many times as long as the first ones waited
/// for their first byte: they queue.
/// `a_leap_is_taken_back_where_requests_take_3_times_as_long` fails at half and at double.
pub const PACE_LEAP_QUEUE_FACTOR: u64 = 2;

/// After its first request a worker wakes each tick for this long until there is an answer, in
/// microseconds.
/// `a_worker_looks_often_until_the_first_answer_and_not_for_long` fails at half and at double.
pub const PACE_FIRST_LOOKS_US: u64 = 100_000;

/// This machine's disk or CPU is the limit while at least 6 % of the requests in flight find no
/// free slot.
/// `the_disk_is_the_limit_where_3_of_32_requests_have_no_slot_not_where_1` fails at half and at
/// double.
pub const PACE_HELD_UP_PER_MILLE: u64 = 60;

/// While this machine is the limit, keep one step up, or double again, only if goodput grows by at
/// least 15 %: the throughput of disks varies by less.
/// `with_the_disk_as_the_limit_a_step_up_is_kept_for_20_percent_not_for_11` fails at half and at
/// double.
pub const PACE_FULL_UP_PER_MILLE: u64 = 1150;

/// The reader of a stream is the limit while it waits for less than 6 % of the time: more requests
/// could bring at most that much more. On loopback a reader of 500 MB/s waits for 2.4 % of the
/// time, one of 1,000 MB/s for 5.1 %, one as fast as the network for 54 %.
/// `a_reader_that_waits_for_4_percent_of_the_time_is_the_limit_not_for_9` fails at half and at
/// double.
pub const PACE_READER_WAITED_PER_MILLE: u64 = 60;

/// Interval over which the reader's waiting time is measured, in microseconds.
/// `a_step_too_many_is_taken_back_and_not_tried_again_for_half_a_minute` fails at half and at
/// double.
pub const PACE_READER_WINDOW_US: u64 = 250_000;

/// Take one step down after this many such intervals in a row with the reader as the limit.
/// `a_step_too_many_is_taken_back_and_not_tried_again_for_half_a_minute` fails at half and at
/// double.
pub const PACE_READER_WINDOWS: u32 = 2;

/// A reader that takes nothing for this long rests, in microseconds: the measurement of its stream
/// begins anew.
/// `a_measurement_goes_on_after_a_rest_of_70_ms_and_not_of_150` fails at half and at double.
pub const PACE_READER_REST_US: u64 = 100_000;

/// Take a step down back if the reader then waits for at least 1.5 % more of the time.
/// `a_step_too_many_is_taken_back_and_not_tried_again_for_half_a_minute` fails at half and at
/// double.
pub const PACE_READER_MISSED_PER_MILLE: u64 = 15;

/// Do not try that smaller number again for this long, in microseconds: it costs what the reader
/// misses.
/// `a_step_too_many_is_taken_back_and_not_tried_again_for_half_a_minute` fails at half and at
/// double.
pub const PACE_READER_FLOOR_US: u64 = 30_000_000;

/// Keep one step up only if goodput grows by at least 3 %.
/// `a_step_up_is_kept_for_4_percent_and_not_for_2` fails at half and at double.
pub const PACE_UP_PER_MILLE: u64 = 1030;

/// Keep one step up of a stream only if goodput grows by at least 5 %: its measurements vary more.
/// `a_step_up_of_a_stream_is_kept_for_7_percent_and_doubled_for_30` fails at half and at double.
pub const PACE_ORDERED_UP_PER_MILLE: u64 = 1050;

/// Double a stream's requests after a step up that raised goodput by at least 20 %: the best number
/// is far above.
/// `a_step_up_of_a_stream_is_kept_for_7_percent_and_doubled_for_30` fails at half and at double.
pub const PACE_ORDERED_CLIMB_PER_MILLE: u64 = 1200;

/// Keep one step down only if goodput falls by at most 1.5 %.
/// `a_step_down_is_kept_where_it_costs_1_percent_and_not_2` fails at half and at double.
pub const PACE_DOWN_PER_MILLE: u64 = 985;

/// Choose the fewest requests that brought at least 97.5 % of the best goodput known.
/// `what_another_number_brought_20_seconds_ago_binds_no_more` fails at half and at double.
pub const PACE_NEARLY_BEST_PER_MILLE: u64 = 975;

/// Forget the goodput of a number of requests after this time, in microseconds.
/// `what_another_number_brought_20_seconds_ago_binds_no_more` fails at half and at double.
pub const PACE_KNOWN_FOR_US: u64 = 20_000_000;

/// Pause before a step up is tried, at first, and before another step down after one that was kept,
/// in microseconds.
/// `a_fast_reader_keeps_what_the_network_brings_whatever_its_noise` fails at half,
/// `looks_above_come_each_second_and_looks_below_each_8_seconds` at double.
pub const PACE_PAUSE_MIN_US: u64 = 200_000;

/// Longest such pause, in microseconds; it doubles each time that a step up was in vain. Goodput
/// that a neighbour leaves is to be found within 3 s.
/// `looks_above_come_each_second_and_looks_below_each_8_seconds` fails at half and at double.
pub const PACE_UP_PAUSE_MAX_US: u64 = 1_200_000;

/// Pause before a step down is tried, at first, in microseconds: the try costs the difference.
/// `looks_above_come_each_second_and_looks_below_each_8_seconds` fails at half and at double.
pub const PACE_DOWN_PAUSE_US: u64 = 2_000_000;

/// Longest such pause, in microseconds; it doubles each time that a step down was in vain. Also the
/// longest pause before a step up of a stream.
/// `looks_above_come_each_second_and_looks_below_each_8_seconds` fails at half and at double.
pub const PACE_DOWN_PAUSE_MAX_US: u64 = 8_000_000;

/// A measurement that differs by more than 25 % from the goodput known does not fit.
/// `half_a_second_of_30_percent_less_is_no_change_and_a_second_is` fails at half and at double.
pub const PACE_CHANGED_PER_MILLE: u64 = 250;

/// After this many such measurements in a row the network has changed: the goodput known is
/// forgotten, and the number of requests climbs again.
/// `half_a_second_of_30_percent_less_is_no_change_and_a_second_is` fails at half and at double.
pub const PACE_CHANGED_WINDOWS: u32 = 3;

/// Bodies are measured in pieces of this length, in bytes: what a slot delivers.
/// `a_measurement_ends_early_after_a_gain_of_70_percent_and_not_of_45` fails at half and at double.
pub const PACE_PIECE_BYTES: u64 = SLOT_BYTES_MAX as u64;

/// Work of a request besides its bytes, in bytes: small objects are paced by their number.
/// `more_small_objects_count_as_more_work_than_their_bytes` fails at half,
/// `large_objects_after_small_ones_are_not_compared_with_them` at double.
pub const PACE_REQUEST_BYTES: u64 = 64 << 10;

/// Do not compare a stream's goodput before and after a doubling if requests, of at least
/// [`PACE_REQUEST_BYTES`], became more than this many times as long or as short: a climb over small
/// objects said nothing of large ones, and went to 512 requests where 64 were best.
/// `requests_of_a_stream_that_bring_5_times_as_much_are_not_compared` fails at half and at double.
pub const PACE_UNLIKE_FACTOR: u64 = 4;

/// Shortest interval over which an endpoint's answers and refusals (503, 429) are judged, in
/// microseconds.
/// `refusals_of_50_ms_make_no_rate_and_those_of_100_do` fails at half and at double.
pub const RATE_SLICE_MIN_US: u64 = 50_000;

/// Fewest requests over which they are judged, unless it takes [`RATE_SLICE_MAX_US`].
/// `a_rate_needs_40_requests_of_which_many_are_refused` fails at half and at double.
pub const RATE_SLICE_REQUESTS: u64 = 20;

/// Longest interval over which they are judged, however few they are, in microseconds.
/// `a_rate_of_few_requests_needs_2_seconds` fails at half and at double.
pub const RATE_SLICE_MAX_US: u64 = 1_000_000;

/// Ignore fewer refusals in such an interval. One that has fewer, but not none, lasts for 100
/// requests: refusals that belong together must not fall into several intervals.
/// `a_refusal_alone_says_nothing_and_two_among_70_requests_do` fails at half and at double.
pub const RATE_REFUSED_MIN: u64 = 2;

/// Ignore refusals of up to 2 % of the requests.
/// `a_rate_is_cut_for_3_percent_of_refusals_and_not_for_1_and_a_half` fails at half and at double.
pub const RATE_TOLERATED_PER_MILLE: u64 = 20;

/// Let a rate grow past the one that was refused only while at least 85 % of it are used (as a
/// congestion window, RFC 7661).
/// `a_rate_grows_where_90_percent_of_it_are_used_and_not_where_it_is_80` fails at half and at
/// double.
pub const RATE_USED_PER_MILLE: u64 = 850;

/// Take refusals that a lower rate does not reduce for faults only if they are at most 50 % of the
/// requests.
/// `two_of_three_refusals_are_not_taken_for_faults_and_two_of_five_are` fails at half and at
/// double.
pub const RATE_FAULTS_PER_MILLE: u64 = 500;

/// Lift the rate for this long while refusals are taken for faults, in microseconds; then it is
/// tried again.
/// `after_30_seconds_of_faults_the_rate_is_tried_again` fails at half and at double.
pub const RATE_FAULTS_US: u64 = 30_000_000;

/// While refusals are taken for faults, ignore at least 15 % of the requests: intervals of few
/// requests vary.
/// `with_faults_12_percent_are_tolerated_and_20_are_not` fails at half and at double.
pub const RATE_FAULTS_TOLERATED_PER_MILLE: u64 = 150;

/// Take refusals for faults after this many intervals with them, the first cut of the rate
/// included. A server that refused 15 to 20 % at random brought the rate down to 15 a second when
/// two intervals were compared.
/// `a_server_that_still_refuses_some_after_the_first_cut_keeps_its_rate` fails at half,
/// `what_is_refused_at_random_does_not_bring_the_rate_down` at double.
pub const RATE_FAULTS_SLICES: u32 = 4;

/// Without a rate, judge intervals with refusals together if at most this much time lies between
/// two of them, in microseconds.
/// `refusals_2_seconds_apart_are_in_a_row_and_4_seconds_apart_are_not` fails at half and at double.
pub const RATE_ROW_US: u64 = 3_000_000;

/// Cut the rate to 5 % below what the endpoint served.
/// `a_rate_begins_5_percent_below_what_was_served` fails at half and at double.
pub const RATE_CUT_PER_MILLE: u64 = 50;

/// A cut rate is back at what was served after this time, in microseconds.
/// `a_rate_grows_where_90_percent_of_it_are_used_and_not_where_it_is_80` fails at half and at
/// double.
pub const RATE_PLATEAU_US: u64 = 700_000;

/// And after at least the time of this many requests: fewer say nothing.
/// `few_requests_need_longer_to_come_back_but_no_longer_than_3_seconds` fails at half and at
/// double.
pub const RATE_PLATEAU_REQUESTS: u64 = 100;

/// But after this time at the latest, in microseconds.
/// `few_requests_need_longer_to_come_back_but_no_longer_than_3_seconds` fails at half and at
/// double.
pub const RATE_PLATEAU_MAX_US: u64 = 3_000_000;

/// Up to this many requests per second are few: an interval is conclusive by the number of its
/// requests. The rate of a server that serves nothing at first is this one.
/// `who_serves_nothing_at_first_is_sent_32_requests_a_second` fails at half and at double.
pub const RATE_FEW: u64 = 32;

/// A rate goes below half of [`RATE_FEW`] only where at least 80 % of an interval's requests were
/// refused: of 20 requests to a server that refuses 40 % at random, one time in 3,000.
/// `only_who_refuses_four_of_five_gets_less_than_16_requests_a_second` fails at half and at double.
pub const RATE_FEW_REFUSED_PER_MILLE: u64 = 800;

/// No rate goes below one request in 4 seconds.
/// `no_rate_is_below_one_request_in_4_seconds` fails at half and at double.
pub const RATE_LEAST_PER_1000_SECONDS: u64 = 250;

/// A rate of few requests is far too high after this many refusals if they are most of an
/// interval's requests, and right after this many requests of which none was refused.
/// `four_refusals_of_seven_show_that_a_rate_is_far_too_high_and_three_do_not` fails at half and at
/// double.
pub const RATE_FEW_REQUESTS: u64 = 4;

/// A rate of few requests is back at what was served after at least the time of this many.
/// `one_request_a_second_is_one_again_after_6_and_is_doubled_after_12` fails at half and at double.
pub const RATE_FEW_PLATEAU_REQUESTS: u64 = 6;

/// Lift a rate of few requests to [`RATE_FEW`] for [`RATE_FAULTS_US`] after this many cuts in a row
/// to less than was served before that left more than a quarter refused: a lower rate is no help.
/// `a_rate_of_few_is_lifted_after_two_cuts_in_vain` fails at half and at double.
pub const RATE_FEW_IN_VAIN: u32 = 2;

/// Ignore refusals for this long after a cut, in microseconds: those requests were sent before it.
/// `a_server_that_still_refuses_some_after_the_first_cut_keeps_its_rate` fails at half,
/// `what_is_refused_at_random_does_not_bring_the_rate_down` at double.
pub const RATE_GRACE_US: u64 = 200_000;

/// Requests of a limited rate that were not sent can be sent later within this time, in
/// microseconds.
/// `a_limited_rate_is_kept_by_all_together` fails at half and at double.
pub const RATE_BURST_US: u64 = 10_000;

/// Most changes of the number of requests in a report.
pub const TIMELINE_MOMENTS_MAX: usize = 64;

/// Least bandwidth limit, in bytes a second: fewer are a unit that was forgotten, such as `10` for
/// `10MB`, and a run that takes years.
pub const BANDWIDTH_MIN: u64 = 1_000;

/// Most clients that share a bandwidth limit: the channels of a training job, and the runs that
/// download its files one after the other.
pub const BANDWIDTH_CLIENTS_MAX: usize = 64;

/// Longest request within a bandwidth limit, as the time, in microseconds, in which the limit
/// allows its bytes, but at least the shortest part: its bytes come as fast as the network delivers
/// them.
pub const BANDWIDTH_PART_US: u64 = 250_000;

/// How far one client can be ahead of another, as the time, in microseconds, in which the limit
/// allows that many bytes.
pub const BANDWIDTH_AHEAD_US: u64 = 20_000;

/// Time that a waiting client has to take its turn, in microseconds: longer than a thread takes to
/// wake. Then another goes first.
pub const BANDWIDTH_CLAIM_US: u64 = 20_000;

/// Pause of a client that lets another go first, in microseconds.
pub const BANDWIDTH_YIELD_US: u64 = 1_000;

/// Number of durations stored per kind of operation: the duration of nine in ten of them is usual.
/// `sixteen_are_enough_and_the_last_64_count` fails at half and at double.
pub const PACE_SAMPLES: usize = 64;

/// Fewest durations to derive the usual one from: of operations, to call one late, and of a
/// stream's requests, to measure a climb.
/// `sixteen_are_enough_and_the_last_64_count` fails at half and at double.
pub const PACE_SAMPLES_MIN: usize = 16;

const _: () = assert!(PACE_SAMPLES.is_multiple_of(PACE_SAMPLES_MIN));
