//! Signing keys, and their replacement by newer ones.
//!
//! Pure. Only [`super`] reads secrets and tokens; they are never shown, and wiped from memory when
//! the last user has newer ones.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::Waker;
use std::time::SystemTime;

use zeroize::Zeroizing;

use crate::error::{Error, ErrorKind, Result};
use crate::limits::CLOCK_CORRECTION_MAX;

/// Longest session token, in bytes; AWS's have up to about 4,000.
pub(super) const SESSION_TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Longest access key and longest secret, in bytes.
const KEY_PAIR_BYTES_MAX: usize = 256;
/// Most publishers whose keys one reader caches: the run's, and one per directory bucket.
const KEPT_MAX: usize = 64;
/// Most tasks that wait for one publisher's keys to be refused: a run has one or two.
const WAKERS_MAX: usize = 4;

/// The header of a session token.
const TOKEN_HEADER: &str = "x-amz-security-token";
/// The header of a directory bucket's session token.
const DIRECTORY_TOKEN_HEADER: &str = "x-amz-s3session-token";

/// Signing keys. The secret and the session token are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKeys {
    pub(super) access_key: String,
    pub(super) secret: Zeroizing<String>,
    pub(super) session_token: Option<Zeroizing<String>>,
    pub(super) expires: Option<SystemTime>,
    /// The header of the session token.
    pub(super) token_header: &'static str,
}

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKeys")
            .field("access_key", &self.access_key)
            .field("secret", &"..")
            .field("session_token", &self.session_token.as_ref().map(|_| ".."))
            .field("expires", &self.expires)
            .finish()
    }
}

impl SigningKeys {
    /// Keys, stripped of white space from pasting.
    ///
    /// An empty session token counts as none. Characters that are not allowed in a header are
    /// refused.
    pub fn new(
        access_key: &str,
        secret: &str,
        session_token: Option<&str>,
        expires: Option<SystemTime>,
    ) -> Result<Self> {
        let clean = |what: &str, text: &str, bytes_max: usize| {
            let text = text.trim();
            let refuse = |why: &str| {
                Err(Error::new(ErrorKind::Access, format!("the {what} {why}"))
                    .advise("check the AWS_ variables, --profile and the credentials file"))
            };
            match text {
                "" => refuse("is empty"),
                _ if text.len() > bytes_max => refuse("is too long"),
                _ if !text.bytes().all(|byte| byte.is_ascii_graphic()) => {
                    refuse("has characters that no key has")
                }
                _ => Ok(text.to_owned()),
            }
        };
        let session_token = session_token.filter(|token| !token.trim().is_empty());
        Ok(Self {
            access_key: clean("access key", access_key, KEY_PAIR_BYTES_MAX)?,
            secret: Zeroizing::new(clean("secret access key", secret, KEY_PAIR_BYTES_MAX)?),
            session_token: session_token
                .map(|token| clean("session token", token, SESSION_TOKEN_BYTES_MAX))
                .transpose()?
                .map(Zeroizing::new),
            expires,
            token_header: TOKEN_HEADER,
        })
    }

    /// Keys of a directory bucket's session, whose token has a header of its own.
    pub fn of_session(
        access_key: &str,
        secret: &str,
        token: &str,
        expires: SystemTime,
    ) -> Result<Self> {
        let keys = Self::new(access_key, secret, Some(token), Some(expires))?;
        Ok(Self { token_header: DIRECTORY_TOKEN_HEADER, ..keys })
    }

    /// The access key ID, which is no secret.
    #[must_use]
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// When the keys expire; `None` for long-lived ones.
    #[must_use]
    pub const fn expires(&self) -> Option<SystemTime> {
        self.expires
    }
}

/// The current keys: one publisher, many readers.
#[derive(Debug)]
pub struct PublishedKeys {
    keys: RwLock<Option<Arc<SigningKeys>>>,
    version: AtomicU64,
    /// Highest version that a server called expired.
    refused: AtomicU64,
    /// Tasks to wake when a server does so.
    wakers: Mutex<Vec<Waker>>,
    /// Highest version that a server has accepted.
    accepted: AtomicU64,
    /// No newer keys will come.
    is_final: AtomicBool,
    /// Where the keys come from, and what is known of newer ones, in words; may be empty.
    outlook: Mutex<String>,
    /// How far the server's clock is ahead of this machine's, in seconds.
    clock_ahead_seconds: AtomicI64,
}

impl PublishedKeys {
    /// The first keys; `None` for unsigned requests.
    #[must_use]
    pub fn new(keys: Option<SigningKeys>) -> Self {
        Self {
            keys: RwLock::new(keys.map(Arc::new)),
            version: AtomicU64::new(1),
            refused: AtomicU64::new(0),
            wakers: Mutex::default(),
            accepted: AtomicU64::new(0),
            is_final: AtomicBool::new(false),
            outlook: Mutex::default(),
            clock_ahead_seconds: AtomicI64::new(0),
        }
    }

    /// The current keys. Readers may cache them until [`Self::version`] changes.
    #[must_use]
    pub fn get(&self) -> Option<Arc<SigningKeys>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Grows by one with each publication; cheap enough to check before every request.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Publishes newer keys.
    pub fn publish(&self, keys: Option<SigningKeys>) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.map(Arc::new);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Records that a server called the keys of this version expired; false if no newer ones will
    /// come, so that a retry is useless.
    pub fn refuse(&self, version: u64) -> bool {
        self.refused.fetch_max(version, Ordering::AcqRel);
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.drain(..).for_each(Waker::wake);
        drop(wakers);
        version < self.version() || !self.are_final()
    }

    /// Wakes this task once, when a server next calls keys expired. If more than four tasks wait,
    /// the oldest are dropped.
    pub fn wake_when_refused(&self, waker: &Waker) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if wakers.iter().any(|known| known.will_wake(waker)) {
            return;
        }
        if wakers.len() == WAKERS_MAX {
            wakers.remove(0);
        }
        wakers.push(waker.clone());
    }

    /// True if the current keys were called expired and newer ones may come.
    #[must_use]
    pub fn are_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire) >= self.version() && !self.are_final()
    }

    /// Records that no newer keys will come.
    pub fn set_final(&self) {
        self.is_final.store(true, Ordering::Release);
    }

    /// True if no newer keys will come.
    #[must_use]
    pub fn are_final(&self) -> bool {
        self.is_final.load(Ordering::Acquire)
    }

    /// Records that a server accepted a request signed with this version of the keys.
    pub fn note_accepted(&self, version: u64) {
        // Usually known already: avoid a write, so that the cache line stays shared.
        if self.accepted.load(Ordering::Relaxed) < version {
            self.accepted.fetch_max(version, Ordering::Relaxed);
        }
    }

    /// Highest version that a server has accepted; 0 if there is none.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Records where the keys come from, and what is known of newer ones, for errors.
    pub fn set_outlook(&self, outlook: String) {
        *self.outlook.lock().unwrap_or_else(PoisonError::into_inner) = outlook;
    }

    /// Where the keys come from, and what is known of newer ones, in words; may be empty.
    #[must_use]
    pub fn outlook(&self) -> String {
        self.outlook.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records how far the server's clock is ahead, from its time and ours; false, without effect,
    /// if the difference exceeds [`CLOCK_CORRECTION_MAX`].
    pub fn set_clock(&self, server: SystemTime, own: SystemTime) -> bool {
        let seconds = |ahead: std::time::Duration| i64::try_from(ahead.as_secs()).unwrap_or(0);
        let (distance, ahead) = match server.duration_since(own) {
            Ok(ahead) => (ahead, seconds(ahead)),
            Err(behind) => (behind.duration(), -seconds(behind.duration())),
        };
        let follows = distance <= CLOCK_CORRECTION_MAX;
        if follows {
            self.clock_ahead_seconds.store(ahead, Ordering::Relaxed);
        }
        follows
    }

    /// Seconds that the signing time is ahead of this machine's clock; negative: behind.
    #[must_use]
    pub fn clock_ahead_seconds(&self) -> i64 {
        self.clock_ahead_seconds.load(Ordering::Relaxed)
    }

    /// The server's time, corrected by the known difference from ours.
    #[must_use]
    pub fn server_time(&self, own: SystemTime) -> SystemTime {
        let ahead = self.clock_ahead_seconds.load(Ordering::Relaxed);
        let distance = std::time::Duration::from_secs(ahead.unsigned_abs());
        let moved = if ahead < 0 { own.checked_sub(distance) } else { own.checked_add(distance) };
        moved.unwrap_or(own)
    }
}

/// One reader's cache of several publishers' keys: no lock and no allocation while nothing new is
/// published.
#[derive(Debug, Default)]
pub struct KeptKeys(Vec<CachedKeys>);

#[derive(Debug)]
struct CachedKeys {
    publisher: Arc<PublishedKeys>,
    version: u64,
    keys: Option<Arc<SigningKeys>>,
}

impl KeptKeys {
    /// The publisher's current keys.
    pub fn get(&mut self, publisher: &Arc<PublishedKeys>) -> Option<&SigningKeys> {
        let known = self.0.iter().position(|kept| Arc::ptr_eq(&kept.publisher, publisher));
        let at = known.unwrap_or_else(|| {
            if self.0.len() == KEPT_MAX {
                self.0.clear();
            }
            self.0.push(CachedKeys { publisher: Arc::clone(publisher), version: 0, keys: None });
            self.0.len() - 1
        });
        let kept = &mut self.0[at];
        let version = publisher.version();
        if version != kept.version {
            kept.keys = publisher.get();
            kept.version = version;
        }
        kept.keys.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_cleaned() {
        let keys = SigningKeys::new(" A\n", "S\r\n", Some(" \n"), None).expect("clean enough");
        assert_eq!((keys.access_key(), keys.session_token.is_none()), ("A", true));
        for (access, secret, token) in [("", "s", None), ("a", "", None), ("a", "s", Some("t\nu"))]
        {
            assert!(SigningKeys::new(access, secret, token, None).is_err());
        }
    }

    #[test]
    fn secrets_are_wiped_when_they_are_dropped() {
        fn wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
        let keys = SigningKeys::new("A", "S", Some("T"), None).expect("good keys");
        wiped(&keys.secret);
        wiped(keys.session_token.as_ref().expect("a token"));
    }

    #[test]
    fn publication_is_seen() {
        let keys = SigningKeys::new("A", "S", None, None).expect("good keys");
        let published = PublishedKeys::new(None);
        let before = published.version();
        assert!(published.get().is_none());
        published.publish(Some(keys));
        assert!(published.version() > before);
        assert_eq!(published.get().expect("published").access_key(), "A");
    }

    #[test]
    fn refused_keys_are_wanted_anew_until_there_are_none() {
        let published = PublishedKeys::new(None);
        let first = published.version();
        assert!(!published.are_refused());
        assert!(published.refuse(first) && published.are_refused());
        published.publish(None);
        assert!(!published.are_refused(), "newer ones are in force");
        assert!(published.refuse(first) && !published.are_refused(), "an old request's answer");
        let second = published.version();
        assert!(published.refuse(second) && published.are_refused());
        published.set_final();
        assert!(!published.refuse(second) && !published.are_refused());
        assert!(published.refuse(first), "an old request's answer");
    }

    #[test]
    fn everybody_who_waits_for_refused_keys_is_woken_once() {
        #[derive(Default)]
        struct Woken(AtomicU64);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let published = PublishedKeys::new(None);
        let tasks: [Arc<Woken>; WAKERS_MAX + 1] = Default::default();
        let wakers = tasks.each_ref().map(|task| Waker::from(Arc::clone(task)));
        let counts = || tasks.each_ref().map(|task| task.0.load(Ordering::Relaxed));
        for waker in [&wakers[0], &wakers[1], &wakers[0]] {
            published.wake_when_refused(waker);
        }
        published.refuse(1);
        published.refuse(1);
        assert_eq!(counts(), [1, 1, 0, 0, 0]);
        wakers.iter().for_each(|waker| published.wake_when_refused(waker));
        published.refuse(1);
        assert_eq!(counts(), [1, 2, 1, 1, 1], "it is bounded");
    }

    #[test]
    fn the_servers_clock_is_kept() {
        let own = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        let published = PublishedKeys::new(None);
        assert_eq!(published.server_time(own), own);
        for seconds in [3600, 0, 7200] {
            let distance = std::time::Duration::from_secs(seconds);
            for server in [own + distance, own - distance] {
                assert!(published.set_clock(server, own));
                assert_eq!(published.server_time(own), server);
            }
        }
        assert_eq!(published.clock_ahead_seconds(), -7200);
        // A server whose signatures are for another day gets none.
        let beyond = CLOCK_CORRECTION_MAX + std::time::Duration::from_nanos(1);
        for server in [own + beyond, own - beyond, SystemTime::UNIX_EPOCH] {
            assert!(!published.set_clock(server, own));
            assert_eq!(published.clock_ahead_seconds(), -7200, "what was known stays");
        }
        assert!(published.set_clock(own + CLOCK_CORRECTION_MAX, own));
    }

    #[test]
    fn each_publisher_is_heard() {
        let keys = |name| Some(SigningKeys::new(name, "S", None, None).expect("good keys"));
        let run = Arc::new(PublishedKeys::new(None));
        let bucket = Arc::new(PublishedKeys::new(keys("B1")));
        let mut kept = KeptKeys::default();
        for round in 0..3 {
            assert!(kept.get(&run).is_none(), "{round}");
            assert_eq!(kept.get(&bucket).map(SigningKeys::access_key), Some("B1"));
        }
        bucket.publish(keys("B2"));
        assert_eq!(kept.get(&bucket).map(SigningKeys::access_key), Some("B2"));
        run.publish(keys("R"));
        assert_eq!(kept.get(&run).map(SigningKeys::access_key), Some("R"));
        for _ in 0..2 * KEPT_MAX {
            let other = Arc::new(PublishedKeys::new(keys("O")));
            assert_eq!(kept.get(&other).map(SigningKeys::access_key), Some("O"));
        }
        assert!(kept.0.len() <= KEPT_MAX);
        assert_eq!(kept.get(&bucket).map(SigningKeys::access_key), Some("B2"));
    }
}
