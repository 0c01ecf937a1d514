//! What must happen in the simulations: each fault that they can inject, and each branch of
//! recovery that the engine shows in its counters.
//!
//! Whatever is counted has a row, and its row names the tests in whose seeds it must happen
//! ([`super::seeds`]). They are those where it happens often: in a release build in at least ten
//! of them, or in each.

use inrush::link::failure::RetryReason;

/// Tests in which an event must happen, and in how many of 100 of their seeds; 0: in one.
#[derive(Debug)]
pub(crate) struct In(&'static [&'static str], u64);

/// Something that must happen.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    /// The file below `tests/sim` that counts it.
    counted_in: &'static str,
    /// What would go untested without it.
    why: &'static str,
    places: &'static [In],
}

impl Event {
    /// In how many of 100 seeds of a test it must happen; `None` if it need not.
    pub(crate) fn percent_in(&self, test: &str) -> Option<u64> {
        let place = self.places.iter().find(|In(tests, _)| tests.contains(&test));
        place.map(|In(_, percent)| *percent)
    }

    /// The tests in which it must happen.
    pub(crate) fn tests(&self) -> impl Iterator<Item = &'static str> {
        self.places.iter().flat_map(|In(tests, _)| tests.iter().copied())
    }
}

macro_rules! events {
    ($($name:literal in $file:literal: $why:literal => $($place:expr),+;)*) => {
        /// All of them.
        pub(crate) const EVENTS: &[Event] = &[$(Event {
            name: $name,
            counted_in: $file,
            why: $why,
            places: &[$($place),+],
        },)*];
    };
}

/// Files over a network with faults.
const FILES: In = In(
    &[
        "faults_that_a_retry_heals_lose_nothing",
        "a_hostile_network_gives_right_bytes_or_a_named_error",
        "faults_of_tls_lose_nothing",
        "a_hostile_network_under_tls_gives_right_bytes_or_a_named_error",
    ],
    0,
);
/// Streams over such a network.
const STREAMS: In = In(
    &[
        "each_fault_of_a_stream_is_one_retry",
        "a_hostile_network_gives_a_right_stream_or_a_named_error",
        "faults_of_a_stream_under_tls_lose_nothing",
        "a_hostile_network_under_tls_gives_a_right_stream_or_a_named_error",
    ],
    0,
);
/// Those of both over TLS.
const TLS: In = In(
    &[
        "faults_of_tls_lose_nothing",
        "a_hostile_network_under_tls_gives_right_bytes_or_a_named_error",
        "faults_of_a_stream_under_tls_lose_nothing",
        "a_hostile_network_under_tls_gives_a_right_stream_or_a_named_error",
    ],
    0,
);
/// Those of both with answers that no retry heals.
const HOSTILE: In = In(
    &[
        "a_hostile_network_gives_right_bytes_or_a_named_error",
        "a_hostile_network_under_tls_gives_right_bytes_or_a_named_error",
        "a_hostile_network_gives_a_right_stream_or_a_named_error",
        "a_hostile_network_under_tls_gives_a_right_stream_or_a_named_error",
    ],
    0,
);
const HOSTILE_FILES: In = In(
    &[
        "a_hostile_network_gives_right_bytes_or_a_named_error",
        "a_hostile_network_under_tls_gives_right_bytes_or_a_named_error",
    ],
    0,
);
const STREAMS_ON_DISK: In = In(&["a_hostile_network_gives_a_right_stream_or_a_named_error"], 0);
const DISK: In = In(&["objects_on_a_disk_that_fails_have_its_error"], 0);
/// Too seldom to be demanded of any test.
const RARE: In = In(&[], 0);

events! {
    // What goes wrong with connections.
    "no socket" in "host.rs": "descriptors run out, which says nothing of the server"
        => FILES, STREAMS;
    "refused" in "world.rs": "a connection is refused, and another address may take it"
        => FILES, STREAMS;
    "hang" in "ring.rs": "a connect that only its end by us completes" => FILES, STREAMS;
    "dead address" in "world.rs": "an address where nobody listens is avoided by all workers"
        => In(&["an_address_that_one_worker_found_dead_is_avoided_by_all"], 0);
    "send on a broken connection" in "world.rs": "a request that was never read is sent again"
        => In(&[
            "an_outage_shorter_than_it_is_retried_for_ends_no_stream",
            "an_outage_shorter_than_it_is_retried_for_loses_nothing",
        ], 0);
    "short send" in "world.rs": "the rest of a request follows" => FILES, STREAMS;
    "short receive" in "world.rs": "a slot that is not filled is received into again" => FILES;
    "stale" in "origin.rs": "a kept connection was closed: the request is repeated at once"
        => FILES, STREAMS;
    "close after" in "origin.rs": "the answer counts, and its connection is not kept"
        => FILES, STREAMS;
    "reset" in "origin.rs": "the rest is requested from the byte reached" => FILES, STREAMS;
    "end" in "origin.rs": "an answer that ends early is not taken for a whole one"
        => FILES, STREAMS;
    "stall" in "origin.rs": "no byte and no end: only time ends it" => FILES, STREAMS;
    "bytes lost with a reset" in "arrivals.rs": "bytes that came and were not read come again"
        => STREAMS;
    "answer cut" in "world.rs": "each try brings some bytes, and none twice"
        => In(&["a_range_whose_every_answer_is_cut_is_fetched_to_its_end"], 0);
    "silent address" in "world.rs": "a server that takes requests and answers none is left"
        => In(&["a_silent_address_is_left_long_before_its_timeout"], 12);
    "silent answer" in "world.rs": "requests that hang do not pass for a slow server"
        => In(&["requests_that_hang_do_not_pass_for_a_slow_server"], 0);
    "request that waits for others to go" in "world.rs": "a server that serves few at a time"
        => In(&["no_more_connections_are_opened_than_are_served"], 0);
    "capacity taken by others" in "network.rs": "the pace gives way, and wins back what is left"
        => In(&["a_neighbour_is_given_way_and_what_it_leaves_is_won_back"], 0);

    // What goes wrong with answers.
    "server error" in "origin.rs": "500 is tried again" => FILES, STREAMS;
    "slow down" in "origin.rs": "503 is tried again, and later" => FILES, STREAMS;
    "slow down in chunks" in "origin.rs": "so does one without a length, as S3 sends it"
        => FILES, STREAMS;
    "too many requests" in "origin.rs": "503 because of the rate: the pace finds that rate"
        => In(&[
            "one_that_refuses_slows_no_other",
            "a_rate_of_requests_is_found_and_nearly_used_up",
        ], 0);
    "wrong range" in "origin.rs": "bytes of another range are not written" => FILES, STREAMS;
    "wrong length" in "origin.rs": "an answer that is too long is not taken" => FILES, STREAMS;
    "garbage" in "origin.rs": "what is not HTTP is named, and tried again" => FILES, STREAMS;
    "answer in chunks" in "origin.rs": "a body without a length is taken piece by piece"
        => FILES, STREAMS;
    "denied" in "origin.rs": "403 ends its object alone, or its stream" => HOSTILE;
    "other etag" in "origin.rs": "no two versions are mixed" => HOSTILE;
    "wrong bit in a body" in "origin.rs": "only a checksum sees it"
        => In(&[
            "a_verified_stream_has_no_whole_object_that_differs",
            "wrong_bytes_are_never_taken_for_right_ones",
        ], 0);
    "expired keys" in "origin.rs": "the next try has newer keys"
        => In(&[
            "redirects_and_keys_that_expire_end_no_stream",
            "redirects_and_keys_that_expire_lose_nothing",
        ], 0);
    "clock skew" in "origin.rs": "the next try is signed with another time"
        => In(&[
            "redirects_and_keys_that_expire_end_no_stream",
            "redirects_and_keys_that_expire_lose_nothing",
        ], 0);
    "redirect" in "origin.rs": "the range goes where it leads, and others of its object, too"
        => In(&[
            "redirects_and_keys_that_expire_lose_nothing",
            "redirects_that_lead_nowhere_are_named",
        ], 0);
    "node without the object" in "origin.rs": "the next try is at the object's own server"
        => In(&[
            "redirects_and_keys_that_expire_end_no_stream",
            "redirects_and_keys_that_expire_lose_nothing",
        ], 0);
    "node without an address" in "detours.rs": "its objects fail and name it"
        => In(&["redirects_that_lead_nowhere_are_named"], 0);
    "wrong bytes of an address" in "world.rs": "the next try is at another address"
        => In(&[
            "the_same_wrong_bytes_of_an_only_address_are_asked_for_twice",
            "wrong_bytes_of_one_address_are_asked_of_another",
        ], 0);

    // What goes wrong with TLS.
    "cut handshake" in "cipher.rs": "an end or a reset before there is a session" => TLS;
    "garbled handshake" in "cipher.rs": "one wrong bit before there is a session"
        => In(&[
            "a_hostile_network_under_tls_gives_right_bytes_or_a_named_error",
            "faults_of_a_stream_under_tls_lose_nothing",
        ], 0);
    "alert in a handshake" in "cipher.rs": "some say that there never will be a session"
        => In(&["a_hostile_network_under_tls_gives_right_bytes_or_a_named_error"], 0);
    "alert" in "cipher.rs": "a session that ends in the middle of an answer" => TLS;
    "handshake_failure" in "cipher.rs": "in a handshake it ends the run"
        => In(&[
            "a_hostile_network_under_tls_gives_right_bytes_or_a_named_error",
            "faults_of_a_stream_under_tls_lose_nothing",
        ], 0);
    "internal_error" in "cipher.rs": "it is tried again"
        => In(&[
            "a_hostile_network_under_tls_gives_right_bytes_or_a_named_error",
            "faults_of_a_stream_under_tls_lose_nothing",
        ], 0);
    "bad_record_mac" in "cipher.rs": "it is tried again"
        => In(&[
            "a_hostile_network_under_tls_gives_right_bytes_or_a_named_error",
            "faults_of_a_stream_under_tls_lose_nothing",
        ], 0);
    "close_notify" in "cipher.rs": "an end in good order, at a wrong place"
        => In(&[
            "a_hostile_network_under_tls_gives_right_bytes_or_a_named_error",
            "faults_of_tls_lose_nothing",
        ], 0);
    "early close_notify" in "cipher.rs": "an answer that is cut and ends in good order" => TLS;
    "wrong bit" in "cipher.rs": "a record that is not authentic brings no byte" => TLS;
    "new keys" in "secure.rs": "TLS 1.3 changes keys in the middle of an answer"
        => In(&[
            "faults_of_tls_lose_nothing",
            "a_hostile_network_under_tls_gives_right_bytes_or_a_named_error",
        ], 0);

    // What goes wrong with a ring and a process.
    "ring full" in "ring.rs": "what cannot be submitted fails one connection" => FILES, STREAMS;
    "ring full for a watch" in "ring.rs": "a feeder that cannot watch its reader looks" => STREAMS;
    "slow operation" in "ring.rs": "completions come in another order than submissions"
        => FILES, STREAMS;
    "spurious" in "ring.rs": "a poll that completes for nothing" => FILES, STREAMS;
    "cancelled" in "ring.rs": "an operation ends with ECANCELED and gives its slot back"
        => FILES, STREAMS;
    "cancel too late" in "ring.rs": "an operation completes although it was cancelled"
        => FILES, STREAMS;
    "cancel lost" in "ring.rs": "a worker cancels again" => FILES, STREAMS;
    "lost cancel" in "ring.rs": "a feeder cancels again"
        => In(&["lost_cancels_and_wake_ups_keep_nobody_waiting"], 10);
    "wake-up lost" in "ring.rs": "a worker looks by itself" => FILES, STREAMS;
    "lost wake-up" in "ring.rs": "a feeder looks by itself"
        => In(&["lost_cancels_and_wake_ups_keep_nobody_waiting"], 10);
    "stopped" in "host.rs": "between two turns: no connection is blamed"
        => In(&[
            "a_worker_that_pauses_does_not_blame_the_network",
            "a_feeder_that_pauses_does_not_blame_the_network",
        ], 0);
    "stopped in the ring" in "ring.rs": "the process is stopped while it waits"
        => In(&[
            "a_worker_that_pauses_does_not_blame_the_network",
            "a_feeder_that_pauses_does_not_blame_the_network",
        ], 0);

    // What goes wrong with files.
    "mkdir" in "files.rs": "a folder of an empty key cannot be made" => DISK;
    "write whole" in "files.rs": "a small object cannot be written" => DISK;
    "create" in "files.rs": "a large object's file cannot be created" => DISK;
    "publish" in "files.rs": "a complete file gets no name" => DISK;
    "write error" in "files.rs": "a write of a slot fails, and its object with it"
        => In(&["a_hostile_network_gives_right_bytes_or_a_named_error"], 0);
    "write again" in "files.rs": "EINTR and EAGAIN: the write is begun again" => FILES;
    "short write" in "files.rs": "the rest follows, at an aligned place" => FILES;
    "disk full" in "files.rs": "ENOSPC" => DISK;
    "disk broken" in "files.rs": "EIO" => DISK;
    "no descriptor" in "files.rs": "EMFILE" => DISK;
    "no permission" in "files.rs": "EACCES" => DISK;
    "slow call" in "jobs.rs": "calls of seconds are not the network's fault"
        => In(&[
            "a_worker_that_pauses_does_not_blame_the_network",
            "empty_objects_do_not_keep_a_worker_from_its_connections",
        ], 0);
    "slow disk" in "network.rs": "writes queue: more requests would bring nothing"
        => In(&[
            "a_slow_disk_is_a_limit_like_another",
            "a_network_with_faults_and_pauses_brings_every_byte_once",
        ], 0);
    "wake-up of a job lost" in "jobs.rs": "a worker finds what a helper thread did" => FILES;

    // What goes wrong with pipes and their readers.
    "no pipe" in "shore.rs": "a range without a pipe of its own" => STREAMS_ON_DISK;
    "no place" in "shore.rs": "a named pipe is made later, or its stream ends" => STREAMS_ON_DISK;
    "no marker" in "shore.rs": "an epoch that cannot be marked ends the stream"
        => In(&["an_epoch_is_marked_when_its_reader_has_all_of_it"], 0);
    "full pipe" in "plumbing.rs": "a reader that is slower than the network" => STREAMS;
    "short call" in "plumbing.rs": "splice, read and write move a part" => STREAMS;
    "interrupted call" in "plumbing.rs": "EINTR and EAGAIN move nothing, and are no end" => STREAMS;
    "pipe that nobody reads" in "plumbing.rs": "EPIPE is the end of an epoch, not of the run"
        => In(&[
            "readers_that_leave_get_what_they_read",
            "an_epoch_is_marked_when_its_reader_has_all_of_it",
        ], 0);
    "reader left" in "places.rs": "at any byte: the next epoch's reader gets all of its own"
        => In(&[
            "a_reader_may_leave_at_every_byte",
            "an_epoch_is_marked_though_its_reader_closes_after_the_last_byte",
        ], 0);
    "reader left before a byte" in "places.rs": "what was requested for it is given up"
        => In(&["a_reader_may_leave_at_every_byte", "readers_that_leave_get_what_they_read"], 0);
    "reader paused" in "places.rs": "for seconds, and costs no turns" => STREAMS;
    "reader never came" in "places.rs": "the last place is taken back" => STREAMS;

    // What users and programs do meanwhile.
    "run stopped" in "main.rs": "as by Ctrl-C" => HOSTILE_FILES;
    "request cancelled" in "leases.rs": "it completes once, and its memory is written no more"
        => In(&[
            "leases_that_are_cancelled_or_stopped_complete_once",
            "memory_is_filled_by_one_at_a_time_and_by_none_after_its_end",
        ], 0);

    // Retries, by their reasons.
    "retry after bad_head" in "tally.rs": "garbage" => FILES, STREAMS;
    "retry after broken" in "tally.rs": "resets" => FILES, STREAMS;
    "retry after checksum" in "tally.rs": "wrong bytes of small objects"
        => In(&[
            "the_same_wrong_bytes_of_an_only_address_are_asked_for_twice",
            "wrong_bytes_of_one_address_are_asked_of_another",
        ], 0);
    "retry after wrong_etag" in "tally.rs": "another version, met by one of two connections"
        => RARE;
    "retry after connect" in "tally.rs": "refused connections, no sockets" => FILES, STREAMS;
    "retry after connect_timeout" in "tally.rs": "connects that hang" => FILES, STREAMS;
    "retry after first_byte_timeout" in "tally.rs": "answers that do not begin" => HOSTILE_FILES;
    "retry after refused" in "tally.rs": "redirects that are looked up"
        => In(&[
            "redirects_and_keys_that_expire_lose_nothing",
            "redirects_that_lead_nowhere_are_named",
        ], 0);
    "retry after expired_token" in "tally.rs": "keys that have expired"
        => In(&[
            "redirects_and_keys_that_expire_end_no_stream",
            "redirects_and_keys_that_expire_lose_nothing",
        ], 0);
    "retry after clock_skew" in "tally.rs": "clocks that differ"
        => In(&[
            "redirects_and_keys_that_expire_end_no_stream",
            "redirects_and_keys_that_expire_lose_nothing",
        ], 0);
    "retry after server_error" in "tally.rs": "500" => FILES, STREAMS;
    "retry after slow_down" in "tally.rs": "503" => FILES, STREAMS;
    "retry after stale" in "tally.rs": "closed connections" => FILES, STREAMS;
    "retry after stall" in "tally.rs": "bodies that stop" => FILES, STREAMS;
    "retry after tls" in "tally.rs": "what goes wrong with TLS" => TLS;
    "retry after truncated" in "tally.rs": "answers that end early" => FILES, STREAMS;
    "retry after wrong_length" in "tally.rs": "answers that are too long" => FILES, STREAMS;
    "retry after wrong_range" in "tally.rs": "answers with another range" => FILES, STREAMS;

    // Other branches of recovery.
    "hedge" in "tally.rs": "a late range is requested twice" => HOSTILE_FILES, STREAMS;
    "second won" in "tally.rs": "the second answer is used, and the first one ended" => STREAMS;
    "hedge in vain" in "tally.rs": "the first answer is used, and the second one ended"
        => HOSTILE_FILES;
    "move" in "tally.rs": "a late range moves to another connection" => HOSTILE_FILES, STREAMS;
    "address blamed" in "tally.rs": "an address that fails or is slow is used less"
        => FILES, STREAMS;
    "address asks for less" in "tally.rs": "a 503 counts for its address" => FILES, STREAMS;
    "two workers share addresses" in "addresses.rs": "connections are spread over the addresses"
        => In(&["connections_are_spread_over_all_workers"], 10);
    "dead address avoided by two workers" in "addresses.rs": "one worker's find is the other's"
        => In(&["an_address_that_one_worker_found_dead_is_avoided_by_all"], 20);
    "outage survived" in "addresses.rs": "more tries than a fault alone may have"
        => In(&[
            "an_outage_shorter_than_it_is_retried_for_loses_nothing",
            "an_outage_shorter_than_it_is_retried_for_ends_no_stream",
        ], 67);
    "request to a node" in "detours.rs": "a redirect is followed, without a signature"
        => In(&[
            "redirects_and_keys_that_expire_end_no_stream",
            "redirects_and_keys_that_expire_lose_nothing",
        ], 0);
    "begun anew" in "main.rs": "a large object with another checksum is requested again"
        => HOSTILE_FILES;
    "kept within a slot" in "files.rs": "a stopped run keeps the beginning of a range"
        => In(&["a_stopped_run_leaves_only_whole_files"], 4), HOSTILE_FILES;
    "write continued" in "tally.rs": "a short write is no failure" => FILES;
    "created by another worker" in "files.rs": "two workers have ranges of one object at once"
        => In(&[
            "a_worker_that_pauses_does_not_blame_the_network",
            "connections_are_spread_over_all_workers",
        ], 0);
    "job on a helper thread" in "jobs.rs": "slow calls keep no worker from its connections"
        => FILES;
    "job taken back" in "jobs.rs": "a stopped run does not write what waits" => RARE;
    "wait for a slot" in "tally.rs": "all memory is in use: connections wait in turn" => FILES;
    "wait for a retry" in "tally.rs": "nothing else is to be done" => FILES, STREAMS;
    "wait for an endpoint's rate" in "tally.rs": "after 503 requests are sent as the rate allows"
        => FILES, STREAMS;
    "wait for memory" in "tally.rs": "writes are behind, or clients have all leases" => FILES;
    "wait for writes" in "tally.rs": "the last bytes are being written" => FILES;
    "wait for file calls" in "tally.rs": "the last files are being named" => FILES;
    "lease" in "leases.rs": "a slot is a client's for a while"
        => In(&[
            "a_lease_that_comes_back_wakes_its_worker",
            "leases_have_the_right_bytes_whatever_the_network_does",
        ], 0);
    "lease waited for" in "leases.rs": "a lease that comes back goes to the next request"
        => In(&[
            "a_lease_that_comes_back_wakes_its_worker",
            "leases_have_the_right_bytes_whatever_the_network_does",
        ], 0);
    "one retry for each fault" in "pipes.rs": "no fault is counted twice, or overlooked"
        => In(&["each_fault_of_a_stream_is_one_retry"], 10);
    "late range left soon" in "pipes.rs": "a range that hangs ends long before its timeout"
        => In(&["what_is_late_beside_its_peers_is_not_waited_for"], 20);
    "late range waited for" in "pipes.rs": "nobody knows yet what is usual"
        => In(&["what_is_late_beside_its_peers_is_not_waited_for"], 0);
    "verified object" in "tally.rs": "a stream's bytes are compared with checksums" => STREAMS;
    "epoch complete" in "tally.rs": "its reader got all of it" => STREAMS;
    "epoch left early" in "tally.rs": "its reader had enough"
        => In(&["a_reader_may_leave_at_every_byte", "readers_that_leave_get_what_they_read"], 0);
    "epoch failed" in "tally.rs": "its reader got a part, and sees that"
        => In(&[
            "a_verified_stream_has_no_whole_object_that_differs",
            "a_stopped_channel_leaves_no_place",
        ], 0);
    "epoch marked" in "pipes/ends.rs": "a whole epoch has its marker"
        => In(&["an_epoch_is_marked_when_its_reader_has_all_of_it"], 50);
    "epoch not marked" in "pipes/ends.rs": "and no other has"
        => In(&["an_epoch_is_marked_when_its_reader_has_all_of_it"], 10);
    "reader kept the feeder" in "tally.rs": "the reader is the limit" => STREAMS;
    "reader held" in "pipes/ends.rs": "after a failure it sees no end of file"
        => In(&["a_failed_stream_that_is_held_does_not_end"], 10);
    "reader held to the end" in "pipes/ends.rs": "not before the user ends the run"
        => In(&["a_failed_stream_that_is_held_does_not_end"], 10);
    "place retired" in "places.rs": "who waits for the next epoch sees no end either"
        => In(&["a_failed_stream_that_is_held_does_not_end"], 0);
    "reader slept while another read" in "pipes.rs": "one channel does not hold up another"
        => In(&["a_reader_that_sleeps_holds_up_no_other_stream"], 50);

    // Why the number of requests in flight was changed.
    "pace: the start" in "tally.rs": "the first choice" => STREAMS;
    "pace: more requests brought more" in "tally.rs": "it grows" => STREAMS;
    "pace: fewer requests bring as much" in "tally.rs": "and shrinks"
        => In(&["each_fault_of_a_stream_is_one_retry"], 0);
    "pace: more requests brought no more" in "tally.rs": "a step is taken back"
        => In(&["each_fault_of_a_stream_is_one_retry"], 0);
    "pace: the throughput has changed" in "tally.rs": "it is looked for again"
        => In(&[
            "a_neighbour_is_given_way_and_what_it_leaves_is_won_back",
            "a_slow_first_byte_is_waited_for",
        ], 0);
    "pace: the server asked for less" in "tally.rs": "a rate is found"
        => In(&[
            "one_that_refuses_slows_no_other",
            "a_rate_of_requests_is_found_and_nearly_used_up",
        ], 0);
    "pace: the reader is slower than the network" in "tally.rs": "fewer do for it" => STREAMS;
    "pace: no room for the bytes of more" in "tally.rs": "the budget of streams is the limit"
        => In(&["each_fault_of_a_stream_is_one_retry"], 0);

    // How objects and streams fail.
    "failed: changed" in "tally.rs": "another version"
        => In(&[
            "a_failed_stream_that_is_held_does_not_end",
            "an_epoch_is_marked_when_its_reader_has_all_of_it",
        ], 0);
    "failed: integrity" in "tally.rs": "wrong bytes at each try"
        => In(&[
            "the_same_wrong_bytes_of_an_only_address_are_asked_for_twice",
            "a_verified_stream_has_no_whole_object_that_differs",
        ], 0);
    "failed: permission_denied" in "tally.rs": "403" => HOSTILE;
    "failed: local_io" in "tally.rs": "EIO, EACCES" => DISK;
    "failed: no_space" in "tally.rs": "ENOSPC" => DISK;
    "failed: host" in "tally.rs": "EMFILE" => DISK;
    "failed: network" in "tally.rs": "nothing answers for too long"
        => In(&["redirects_that_lead_nowhere_are_named"], 0);
    "failed: credentials" in "tally.rs": "a node says twice that keys have expired" => RARE;
    "failed: not_found" in "tally.rs": "a node says twice that it has no such object" => RARE;
    "failed: throttled" in "tally.rs": "503 for too long" => RARE;
    "failed: server" in "tally.rs": "wrong in the same way each time" => RARE;
    "failed: interrupted" in "tally.rs": "stopped" => HOSTILE_FILES;
}

/// Reasons of retries that nothing here causes, and where they are tested.
const ELSEWHERE: [(&str, &str); 1] = [("proxy", "tests/proxy")];

#[test]
fn rows_name_tests_and_files_that_exist() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sim");
    let read = |path: &str| {
        std::fs::read_to_string(format!("{folder}/{path}"))
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let rooms = ["main", "addresses", "detours", "endpoints", "files", "leases", "pace", "pipes"];
    let rooms = rooms.map(|room| read(&format!("{room}.rs"))).concat();
    let tests = rooms + &read("pipes/ends.rs") + &read("pipes/slow.rs");
    for (at, Event { name, counted_in, why, places }) in EVENTS.iter().enumerate() {
        assert!(EVENTS[..at].iter().all(|other| other.name != *name), "{name} has two rows");
        assert!(!why.is_empty(), "{name}");
        // What the engine names has its name from there.
        let prefix =
            ["failed: ", "retry after ", "pace: "].into_iter().find(|it| name.starts_with(it));
        let own = prefix.unwrap_or(name);
        assert!(read(counted_in).contains(own), "{name} is not counted in {counted_in}");
        for test in places.iter().flat_map(|In(tests, _)| *tests) {
            let head = format!(
                "#[test]
fn {test}()"
            );
            assert!(tests.contains(&head), "{name}: no test {test}");
        }
    }
}

#[test]
fn each_reason_of_a_retry_happens_or_is_tested_elsewhere() {
    for reason in RetryReason::ALL {
        let name = format!("retry after {}", reason.name());
        let is_here = EVENTS.iter().any(|event| event.name == name);
        let is_there = ELSEWHERE.iter().any(|(other, _)| *other == reason.name());
        assert!(is_here != is_there, "{name}");
    }
}
