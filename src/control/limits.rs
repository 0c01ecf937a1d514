//! Every bound of the control plane, by name. What S3 itself bounds stands in [`crate::s3`].

use std::time::Duration;

use crate::limits::LIST_REQUESTS_MAX;

/// A profile file has at most this many bytes: what is longer is refused.
pub const PROFILE_FILE_BYTES_MAX: u64 = 4 << 20;
/// Longest wait for one address to accept a connection and to finish a TLS handshake.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How many addresses of one host are waited for in vain in one attempt; being refused is no wait.
pub const CONNECT_WAITS_MAX: usize = 3;
/// Longest wait for a whole answer, its body included.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of an answer that wait to be parsed, and so of its head: about what hyper takes by
/// itself, with a name.
pub const ANSWER_BUFFER_BYTES_MAX: usize = 400 << 10;
/// After so long without an answer a question is asked once more, on another address; twice as
/// long each time.
pub const NEXT_QUESTION_AFTER: Duration = Duration::from_secs(2);
/// How often, while the first one is still waited for.
pub const MORE_QUESTIONS_MAX: u32 = 3;
/// Longest wait for a name's addresses, from name servers and then from getaddrinfo(3) each.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for one answer of a name server before it, or another, is asked again: what
/// resolv.conf(5) has by default would be all of [`RESOLVE_TIMEOUT`].
pub const NAME_SERVER_TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// Longest wait for the addresses of one family when there are some of the other: some name servers
/// never answer for IPv6.
pub const OTHER_FAMILY_WAIT: Duration = Duration::from_millis(500);
/// How often a name is looked up at least while name servers do not answer.
pub const RESOLVE_TRIES_MAX: u32 = 3;
/// How often one question is asked, the first time included; more often while its server does not
/// answer at all.
pub const TRIES_MAX: u32 = 6;
/// For how long a connection waits for the next question.
pub const IDLE_TIME: Duration = Duration::from_secs(1);
/// How many connections wait for the next question.
pub const IDLE_CONNECTIONS_MAX: usize = HEADS_ASKED_MAX;
/// How many pages of listings are asked for ahead of the one that is used, in all sources of a walk
/// together; about 250 KiB each. So far ahead of the first of its requests may the last one be.
pub const LIST_PAGES_AHEAD_MAX: usize = 128;
/// For how many objects a checksum is asked at once.
pub const CHECKSUMS_ASKED_MAX: usize = 32;
/// How often one question follows a bucket to another region.
pub const REGION_MOVES_MAX: u32 = 2;
/// How many addresses of one name are kept; a DNS answer of S3 has 8, and each is another 8.
pub const ADDRESSES_MAX: usize = 64;
/// An address that no answer has had for so long is not used for new connections any more.
pub const ADDRESS_UNSEEN_MAX: Duration = Duration::from_secs(300);
/// Shortest time between two lookups of a name, however short its answers live: S3's live for
/// seconds. Doubled for each lookup in a row that fails.
pub const LOOKUP_PAUSE_MIN: Duration = Duration::from_secs(5);
/// Longest time between two lookups of a name, however long its answers live.
pub const LOOKUP_PAUSE_MAX: Duration = Duration::from_secs(60);
/// The same where nobody says how long an answer lives: hosts(5) and getaddrinfo(3).
pub const LOOKUP_PAUSE_DEFAULT: Duration = Duration::from_secs(30);
/// How often a runtime's helper thread has something to do at least: tokio ends one that has had
/// nothing for 10 s.
pub const HELPER_USED_EVERY: Duration = Duration::from_secs(4);
/// Longest wait for credentials from all of the chain; that for a `credential_process` is added.
pub const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for the command of a `credential_process`: it may ask for a login in a browser or
/// on a phone. Keys that are replaced have [`REFRESH_AHEAD`] left.
pub const PROCESS_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest wait for the end of such a command once it was killed.
pub const PROCESS_END_TIMEOUT: Duration = Duration::from_secs(2);
/// How much of what such a command says on standard error is told, in bytes: errors shorten what is
/// longer than 300 characters at its end, where the reason stands.
pub const PROCESS_STDERR_BYTES_MAX: usize = 280;
/// Shortest time for which a role is assumed, in seconds.
pub const ROLE_SECONDS_MIN: i32 = 900;
/// Longest answer of a server that gives credentials, in bytes: those of STS have a few thousand.
pub const CREDENTIALS_ANSWER_BYTES_MAX: usize = 1 << 20;
/// Longest wait for one answer of the instance's metadata service.
pub const METADATA_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for the metadata service in all: where there is none, it is found out this soon.
pub const METADATA_TIMEOUT: Duration = Duration::from_secs(2);
/// How long before their end credentials are replaced.
pub const REFRESH_AHEAD: Duration = Duration::from_secs(300);
/// Shortest time between two attempts to replace credentials.
pub const REFRESH_PAUSE: Duration = Duration::from_secs(10);
/// How long before its end a directory bucket's session is replaced; it lives for five minutes.
pub const SESSION_REFRESH_AHEAD: Duration = Duration::from_secs(120);
/// How many near matches an error names.
pub const NEAR_MATCHES_MAX: usize = 3;
/// How many entries [`super::walk::Walk::next_batch`] hands out at once.
pub const BATCH_ENTRIES_MAX: usize = 1_000;
/// How many sources one run takes: each single object among them is one HEAD request and about a
/// kilobyte of memory.
pub const SOURCES_MAX: usize = 1_000_000;
/// How many of them may be folders and globs, which are listed: each holds two pages in memory, or
/// its share of [`LIST_PAGES_AHEAD_MAX`].
pub const LISTED_SOURCES_MAX: usize = 1_000;
/// How many keys in the folder of a literal prefix that begin with its name are compared with those
/// beside that folder; each takes about its length and 50 bytes.
pub const NAMESAKES_MAX: usize = 1_000_000;
/// How many objects a manifest may list: each is a source.
pub const MANIFEST_OBJECTS_MAX: usize = SOURCES_MAX;
/// Longest manifest, in bytes: so many objects of 128 bytes each.
pub const MANIFEST_BYTES_MAX: usize = 128 << 20;
/// How many bytes of a manifest one request fetches: each has [`ANSWER_TIMEOUT`] to come.
pub const MANIFEST_PIECE_BYTES: usize = 8 << 20;
/// For how many sources at once it is asked what they are.
pub const SOURCES_ASKED_MAX: usize = 64;
/// About how many objects of a manifest it is asked at once: at 25 ms an answer, 10,000 a second.
pub const HEADS_ASKED_MAX: usize = 256;
/// HEAD requests for the parts of one object at a time: 10,000 parts in 8 s at 25 ms an answer.
pub const PARTS_ASKED_MAX: usize = 32;
/// For how many objects of a manifest at most it is known what they are, ahead of the one that is
/// used: half of what waits in a stream's feed. About 200 bytes each.
pub const FOUND_AHEAD_MAX: usize = 1_024;
/// So many objects of one bucket are worth a listing beside the HEADs that they take else: fewer
/// are asked about in a quarter of a second.
pub const LISTED_WANTED_MIN: u64 = 2_000;
/// So many keys are listed for each object that is wanted, at most: to list 16 is a sixtieth of a
/// LIST request, and about the processor time of a HEAD. Hosts of a job that share a manifest want
/// only their part of it.
pub const LISTED_PER_WANTED_MAX: u64 = 16;
/// What is listed ahead of the lines of a manifest takes so many bytes of memory for each channel,
/// at most: 10 million objects with keys of 60 bytes. The rest is asked about.
pub const LISTED_BYTES_MAX: u64 = 1 << 30;
/// How many folders are listed at once ahead of the lines of a manifest.
pub const FOLDERS_LISTED_AT_ONCE_MAX: usize = 8;
/// What was listed so long ago is not trusted any more: it is listed again where that pays, and
/// asked about else. An object that was replaced since ends its channel.
pub const LISTED_AGE_MAX: Duration = Duration::from_secs(300);
/// Longest line of a file of sources, in bytes: the longest key of S3 with each byte escaped, an
/// ARN before it, and some more.
pub const SOURCE_LINE_BYTES_MAX: usize = 8 << 10;

const _: () = assert!(METADATA_ATTEMPT_TIMEOUT.as_millis() < METADATA_TIMEOUT.as_millis());
const _: () = assert!(METADATA_TIMEOUT.as_millis() <= CREDENTIALS_TIMEOUT.as_millis());
const _: () = assert!(PROCESS_END_TIMEOUT.as_secs() < CREDENTIALS_TIMEOUT.as_secs());
const _: () =
    assert!(PROCESS_TIMEOUT.as_secs() + CREDENTIALS_TIMEOUT.as_secs() <= REFRESH_AHEAD.as_secs());
const _: () = assert!(LIST_REQUESTS_MAX <= IDLE_CONNECTIONS_MAX);
const _: () = assert!(CHECKSUMS_ASKED_MAX <= IDLE_CONNECTIONS_MAX);
const _: () = assert!(PARTS_ASKED_MAX <= IDLE_CONNECTIONS_MAX);
const _: () = assert!(SOURCES_ASKED_MAX <= IDLE_CONNECTIONS_MAX);
const _: () = assert!(LISTED_SOURCES_MAX <= SOURCES_MAX);
const _: () = assert!(HEADS_ASKED_MAX <= FOUND_AHEAD_MAX);
const _: () = assert!(FOLDERS_LISTED_AT_ONCE_MAX <= LIST_PAGES_AHEAD_MAX);
const _: () = assert!(TRIES_MAX > 0 && RESOLVE_TRIES_MAX > 0);
const _: () = assert!(2 * NAME_SERVER_TIMEOUT_MAX.as_millis() < RESOLVE_TIMEOUT.as_millis());
const _: () = assert!(LOOKUP_PAUSE_MIN.as_millis() <= LOOKUP_PAUSE_DEFAULT.as_millis());
const _: () = assert!(LOOKUP_PAUSE_DEFAULT.as_millis() <= LOOKUP_PAUSE_MAX.as_millis());

/// Pause before credentials that servers refuse are looked at again.
pub const REFUSED_PAUSE: Duration = Duration::from_millis(250);

/// Pause between two looks at which sessions there are that servers may refuse.
pub const UPKEEP_PAUSE: Duration = Duration::from_secs(1);

/// The credentials' expiry is looked at once in so many pauses: every 5 s.
pub const UPKEEP_ROUNDS_PER_EXPIRY: u32 = 5;

/// Pause between two looks at whether a name is to be looked up again.
pub const LOOKUPS_LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Time in which the buckets or keys that complete a word must be found; later none is offered.
pub const COMPLETION_TIME: Duration = Duration::from_secs(2);

/// How many pages of buckets are read for one word: 10,000 buckets, as many as an account has
/// unless more were asked for.
pub const COMPLETION_BUCKET_PAGES_MAX: usize = 10;
