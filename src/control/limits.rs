//! Limits of the control plane. S3's own limits are in [`crate::s3`].

use std::time::Duration;

use crate::limits::LIST_REQUESTS_MAX;

/// Longest profile file, in bytes; longer ones are refused.
pub const PROFILE_FILE_BYTES_MAX: u64 = 4 << 20;
/// Longest time for one address to accept a connection and complete a TLS handshake.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Most addresses of one host that may time out in one attempt; a refused connection does not
/// count.
pub const CONNECT_WAITS_MAX: usize = 3;
/// Longest time for a whole answer, including its body.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of an answer buffered for parsing, and so of its head: about hyper's default, as a
/// named constant.
pub const ANSWER_BUFFER_BYTES_MAX: usize = 400 << 10;
/// Time without an answer after which a request is sent again, to another address; doubled each
/// time.
pub const NEXT_QUESTION_AFTER: Duration = Duration::from_secs(2);
/// Most such repetitions while the first request is still pending.
pub const MORE_QUESTIONS_MAX: u32 = 3;
/// Longest time for a name's addresses, from name servers and then from getaddrinfo(3) each.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for one answer of a name server before it, or another, is asked again:
/// resolv.conf(5)'s default would take all of [`RESOLVE_TIMEOUT`].
pub const NAME_SERVER_TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// Longest time for the addresses of one family once the other has some: some name servers never
/// answer for IPv6.
pub const OTHER_FAMILY_WAIT: Duration = Duration::from_millis(500);
/// Fewest lookups of a name while name servers do not answer.
pub const RESOLVE_TRIES_MAX: u32 = 3;
/// Tries of one request, including the first; more while its server does not answer at all.
pub const TRIES_MAX: u32 = 6;
/// Time for which a connection stays idle before it is closed.
pub const IDLE_TIME: Duration = Duration::from_secs(1);
/// Most idle connections.
pub const IDLE_CONNECTIONS_MAX: usize = HEADS_ASKED_MAX;
/// Most pages of listings requested ahead of the current one, in all sources of a walk together;
/// about 250 KiB each. The last request in progress may be this many pages after the first.
pub const LIST_PAGES_AHEAD_MAX: usize = 128;
/// Most objects whose checksum is requested at once.
pub const CHECKSUMS_ASKED_MAX: usize = 32;
/// Most times that one request follows a bucket to another region.
pub const REGION_MOVES_MAX: u32 = 2;
/// Most addresses stored for one name; a DNS answer of S3 has 8, and each is another 8.
pub const ADDRESSES_MAX: usize = 64;
/// An address that no answer has had for this long is not used for new connections.
pub const ADDRESS_UNSEEN_MAX: Duration = Duration::from_secs(300);
/// Shortest time between two lookups of a name, whatever its TTL: S3's is a few seconds. Doubled
/// for each consecutive failed lookup.
pub const LOOKUP_PAUSE_MIN: Duration = Duration::from_secs(5);
/// Longest time between two lookups of a name, whatever its TTL.
pub const LOOKUP_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Time between two lookups without a TTL: of hosts(5) and getaddrinfo(3).
pub const LOOKUP_PAUSE_DEFAULT: Duration = Duration::from_secs(30);
/// Longest time between two uses of a runtime's helper thread: tokio ends one that was idle for 10
/// s.
pub const HELPER_USED_EVERY: Duration = Duration::from_secs(6);
/// Longest time for credentials from the whole chain; a `credential_process` gets its own time
/// besides.
pub const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for the command of a `credential_process`: it may open a login in a browser or on a
/// phone. Credentials to be replaced are valid for another [`REFRESH_AHEAD`].
pub const PROCESS_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest time until such a command ends after it was killed.
pub const PROCESS_END_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes of such a command's standard error in an error: longer messages than 300 characters
/// are cut at their end, where the reason is.
pub const PROCESS_STDERR_BYTES_MAX: usize = 280;
/// Shortest duration of an assumed role, in seconds.
pub const ROLE_SECONDS_MIN: i32 = 900;
/// Longest answer of a server of credentials, in bytes: those of STS have a few thousand.
pub const CREDENTIALS_ANSWER_BYTES_MAX: usize = 1 << 20;
/// Longest wait for AWS's sign-in service while the keys of a session are still valid.
pub const RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Most requests to a container's agent, and to AWS's sign-in service, for one set of keys.
pub const KEYS_ATTEMPTS_MAX: u32 = 3;
/// Longest pause before the second of these attempts; before the third it is twice as long.
pub const KEYS_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for one answer of the instance's metadata service.
pub const METADATA_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time for the metadata service in all: this soon its absence is known.
pub const METADATA_TIMEOUT: Duration = Duration::from_secs(2);
/// Time before their expiry at which credentials are replaced.
pub const REFRESH_AHEAD: Duration = Duration::from_secs(300);
/// Shortest time between two attempts to replace credentials: doubled each time that they follow
/// one another, up to [`REFRESH_PAUSE_MAX`].
pub const REFRESH_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause between two such attempts while a server refuses the credentials.
pub const REFRESH_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Time before its expiry at which a directory bucket's session is replaced, which is valid for
/// five minutes, and the keys of an access grant, which are valid for an hour.
pub const SESSION_REFRESH_AHEAD: Duration = Duration::from_secs(120);
/// Most access grants whose keys a run has: readers keep the keys of as many.
pub const GRANTS_MAX: usize = 64;
/// Most prefixes and objects that are remembered to have no access grant; about 100 bytes each.
pub const GRANT_REFUSALS_MAX: usize = 1_024;
/// Most near matches in an error.
pub const NEAR_MATCHES_MAX: usize = 3;
/// Most entries that [`super::list::walk::Walk::next_batch`] returns at once.
pub const BATCH_ENTRIES_MAX: usize = 1_000;
/// Most sources of a run: each single object among them is one HEAD request and about 1 KB of
/// memory.
pub const SOURCES_MAX: usize = 1_000_000;
/// Most folders and globs among them, which are listed: each holds two pages in memory, or its
/// share of [`LIST_PAGES_AHEAD_MAX`].
pub const LISTED_SOURCES_MAX: usize = 1_000;
/// Most keys in the folder of a literal prefix that begin with its name and are compared with those
/// beside the folder; each takes about its length and 50 bytes.
pub const NAMESAKES_MAX: usize = 1_000_000;
/// Most objects of a manifest: each is a source.
pub const MANIFEST_OBJECTS_MAX: usize = SOURCES_MAX;
/// Longest manifest, in bytes: [`MANIFEST_OBJECTS_MAX`] objects of 128 bytes each.
pub const MANIFEST_BYTES_MAX: usize = 128 << 20;
/// Longest index of a model, in bytes, as for a header of safetensors.
pub const MODEL_INDEX_BYTES_MAX: u64 = 100_000_000;
/// Most weights and indexes of a model.
pub const MODEL_FILES_MAX: usize = 100_000;
/// Bytes of a manifest or an index per request: each request has [`ANSWER_TIMEOUT`].
pub const MANIFEST_PIECE_BYTES: usize = 8 << 20;
/// Most sources that are resolved at once.
pub const SOURCES_ASKED_MAX: usize = 64;
/// Most URLs that are looked up, or known, ahead of the first that is not: as many others wait for
/// none that is slow. About 1 KB each.
pub const URLS_AHEAD_MAX: usize = 4_096;
/// Most names that are looked up again at once.
pub const NAMES_ASKED_MAX: usize = 16;
/// Most objects of a manifest that are requested at once: at 25 ms per answer, 10,000 per second.
pub const HEADS_ASKED_MAX: usize = 256;
/// Most answers to HEADs that are kept for the checksums in them; about 2 KB each.
pub const HEADS_KEPT_MAX: usize = 1_024;
/// Most HEAD requests at once for the parts of one object: 10,000 parts in 31 s at 25 ms an answer.
/// `verify` requests those of [`CHECKSUMS_ASKED_MAX`] objects at once.
pub const PARTS_ASKED_MAX: usize = 8;
/// Most objects of a manifest that are resolved ahead of their use: half of those in a stream's
/// feed. About 200 bytes each.
pub const FOUND_AHEAD_MAX: usize = 1_024;
/// Fewest objects of one bucket that are worth a listing instead of HEADs: fewer take a quarter of
/// a second by HEAD.
pub const LISTED_WANTED_MIN: u64 = 2_000;
/// Most keys listed per wanted object: listing 16 takes a sixtieth of a LIST request, and about the
/// CPU time of a HEAD. Hosts of a job that share a manifest want only their part of it.
pub const LISTED_PER_WANTED_MAX: u64 = 16;
/// Most memory per channel for listings ahead of the lines of a manifest, in bytes: 10 million
/// objects with keys of 60 bytes. Other objects are requested by HEAD.
pub const LISTED_BYTES_MAX: u64 = 1 << 30;
/// Most folders listed at once ahead of the lines of a manifest.
pub const FOLDERS_LISTED_AT_ONCE_MAX: usize = 8;
/// Age after which a listing is not used any more: it is repeated if that pays, else HEADs are
/// sent. An object that was replaced meanwhile ends its channel.
pub const LISTED_AGE_MAX: Duration = Duration::from_secs(300);
/// Longest line of a file of sources, in bytes: the longest key of S3 with each byte escaped, an
/// ARN before it, and a margin.
pub const SOURCE_LINE_BYTES_MAX: usize = 8 << 10;

const _: () = assert!(METADATA_ATTEMPT_TIMEOUT.as_millis() < METADATA_TIMEOUT.as_millis());
const _: () = assert!(METADATA_TIMEOUT.as_millis() <= CREDENTIALS_TIMEOUT.as_millis());
const _: () = assert!(PROCESS_END_TIMEOUT.as_secs() < CREDENTIALS_TIMEOUT.as_secs());
const _: () =
    assert!(PROCESS_TIMEOUT.as_secs() + CREDENTIALS_TIMEOUT.as_secs() <= REFRESH_AHEAD.as_secs());
const _: () = assert!(LIST_REQUESTS_MAX <= IDLE_CONNECTIONS_MAX);
const _: () = assert!(CHECKSUMS_ASKED_MAX <= IDLE_CONNECTIONS_MAX);
const _: () = assert!(PARTS_ASKED_MAX * CHECKSUMS_ASKED_MAX <= IDLE_CONNECTIONS_MAX);
const _: () = assert!(SOURCES_ASKED_MAX <= IDLE_CONNECTIONS_MAX);
const _: () = assert!(LISTED_SOURCES_MAX <= SOURCES_MAX);
const _: () = assert!(HEADS_ASKED_MAX <= FOUND_AHEAD_MAX);
const _: () = assert!(FOLDERS_LISTED_AT_ONCE_MAX <= LIST_PAGES_AHEAD_MAX);
const _: () = assert!(TRIES_MAX > 0 && RESOLVE_TRIES_MAX > 0);
const _: () = assert!(2 * NAME_SERVER_TIMEOUT_MAX.as_millis() < RESOLVE_TIMEOUT.as_millis());
const _: () = assert!(LOOKUP_PAUSE_MIN.as_millis() <= LOOKUP_PAUSE_DEFAULT.as_millis());
const _: () = assert!(LOOKUP_PAUSE_DEFAULT.as_millis() <= LOOKUP_PAUSE_MAX.as_millis());

/// Longest time for looking up a URL again, with its redirects.
pub const URL_RENEWAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which no other URL of a server is looked up that one was looked up at in vain, in
/// microseconds.
pub const URL_SERVER_GONE_US: u64 = 60_000_000;
/// Pause between two rounds of looking up URLs again: a server may repeat a redirect that it keeps
/// for some seconds.
pub const URL_RENEWAL_PAUSE: Duration = Duration::from_secs(2);
/// Pause before credentials that servers refuse are checked again.
pub const REFUSED_PAUSE: Duration = Duration::from_millis(250);

/// Pause between two checks of the expiry of credentials and sessions. Not one timer until then: it
/// would stand still while the machine is suspended.
pub const EXPIRY_CHECK_PAUSE: Duration = Duration::from_secs(5);

/// Shortest pause between two checks for names that are due for a lookup.
pub const LOOKUPS_LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Time for finding the buckets or keys that complete a word; later none is offered.
pub const COMPLETION_TIME: Duration = Duration::from_secs(2);

/// Most pages of buckets read for one word: 10,000 buckets, the default quota of an account.
pub const COMPLETION_BUCKET_PAGES_MAX: usize = 10;
