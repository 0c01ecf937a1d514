//! What goes wrong, and when: a plan that is a pure function of request and attempt.
//!
//! Two sources: explicit rules, first match wins, then a profile drawn from a seed. A draw depends
//! on the seed, the request (operation, bucket, key, first byte) and how often this same request
//! came before, and not on the order in which connections happen to be served: the same seed gives
//! every request the same fate on every run, and a retry draws again.
//!
//! Not here: how a fault is carried out (`handle.rs` before the body, `body.rs` in it).

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use crate::config::ParseError;
use crate::request::Operation;
use crate::synthetic::{fingerprint, mix};

/// One thing that goes wrong with one request. Positions count bytes of the body that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Another ETag than before, in the answer to GET or HEAD.
    ChangedEtag,
    /// The answer says `Connection: close`, and the connection is closed behind it.
    CloseAfterResponse,
    /// The body comes in small pieces with pauses.
    Drip {
        /// Bytes of each piece.
        bytes: u32,
        /// Pause after each.
        pause: Duration,
    },
    /// One byte of the body is inverted.
    FlipByte {
        /// Which, from 0; beyond the end: the last.
        at: u64,
    },
    /// 500 InternalError.
    InternalError,
    /// The connection is reset after so many bytes of the body.
    ResetAfter {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// The connection is reset instead of an answer.
    ResetBeforeHead,
    /// 503 SlowDown.
    SlowDown,
    /// Nothing more comes after so many bytes of the body, for a time or for ever.
    StallAfter {
        /// Beyond the end: before the last byte.
        bytes: u64,
        /// `None`: for ever.
        duration: Option<Duration>,
    },
    /// No answer, for a time or for ever.
    StallBeforeHead {
        /// `None`: for ever.
        duration: Option<Duration>,
    },
    /// A fatal alert after so many bytes of the body, then the end. All that begin with `Tls` are
    /// for connections with TLS: on others they cannot happen.
    TlsAlert {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// An orderly end of the session after so many bytes of the body. The connection stays open
    /// until the client closes it.
    TlsCloseNotify {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// The connection is closed after so many bytes of the body, without an end of the session.
    TlsCut {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// After so many bytes of the body comes a record that cannot be opened.
    TlsGarbage {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// The connection ends when the ClientHello has come. Of a rule for it, and for
    /// [`Fault::TlsPlaintext`], only `address` and `attempts` are looked at: the connections
    /// through an address, from 1.
    TlsHandshakeCut {
        /// With a reset instead of an orderly end.
        reset: bool,
    },
    /// New keys after so many bytes of the body, and the wish that the client changes its own.
    /// Harmless; TLS 1.3 alone can do it.
    TlsKeyUpdate {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// The ClientHello is answered by HTTP without TLS. See [`Fault::TlsHandshakeCut`].
    TlsPlaintext,
    /// The answer, head and body, comes in records of so many bytes. Harmless.
    TlsTinyRecords {
        /// Plaintext of each; at least 1.
        bytes: u32,
    },
    /// The right Content-Length, but the connection is closed after so many bytes of the body;
    /// with TLS in good order, its session first.
    Truncate {
        /// Beyond the end: before the last byte.
        bytes: u64,
    },
    /// Content-Range names a range one byte further on than the bytes that come.
    WrongContentRange,
}

impl Fault {
    /// The names of all kinds, as they stand in the counters.
    pub const NAMES: [&str; 20] = [
        "changed_etag",
        "close_after_response",
        "drip",
        "flip_byte",
        "internal_error",
        "reset_after",
        "reset_before_head",
        "slow_down",
        "stall_after",
        "stall_before_head",
        "tls_alert",
        "tls_close_notify",
        "tls_cut",
        "tls_garbage",
        "tls_handshake_cut",
        "tls_key_update",
        "tls_plaintext",
        "tls_tiny_records",
        "truncate",
        "wrong_content_range",
    ];

    /// The name of this kind.
    pub fn name(&self) -> &'static str {
        Self::NAMES[self.kind()]
    }

    /// The place of this kind in [`Fault::NAMES`].
    pub(crate) fn kind(&self) -> usize {
        match self {
            Self::ChangedEtag => 0,
            Self::CloseAfterResponse => 1,
            Self::Drip { .. } => 2,
            Self::FlipByte { .. } => 3,
            Self::InternalError => 4,
            Self::ResetAfter { .. } => 5,
            Self::ResetBeforeHead => 6,
            Self::SlowDown => 7,
            Self::StallAfter { .. } => 8,
            Self::StallBeforeHead { .. } => 9,
            Self::TlsAlert { .. } => 10,
            Self::TlsCloseNotify { .. } => 11,
            Self::TlsCut { .. } => 12,
            Self::TlsGarbage { .. } => 13,
            Self::TlsHandshakeCut { .. } => 14,
            Self::TlsKeyUpdate { .. } => 15,
            Self::TlsPlaintext => 16,
            Self::TlsTinyRecords { .. } => 17,
            Self::Truncate { .. } => 18,
            Self::WrongContentRange => 19,
        }
    }

    /// Whether it can happen to this answer at all; one that cannot is neither drawn nor counted.
    fn applies(&self, request: &FaultRequest<'_>) -> bool {
        let object = matches!(request.operation, Operation::GetObject | Operation::HeadObject);
        match self {
            Self::CloseAfterResponse
            | Self::InternalError
            | Self::ResetBeforeHead
            | Self::SlowDown
            | Self::StallBeforeHead { .. } => true,
            Self::ChangedEtag => object,
            Self::WrongContentRange => request.partial,
            Self::Drip { .. }
            | Self::FlipByte { .. }
            | Self::ResetAfter { .. }
            | Self::StallAfter { .. }
            | Self::Truncate { .. } => request.body_bytes > 0,
            Self::TlsAlert { .. }
            | Self::TlsCloseNotify { .. }
            | Self::TlsCut { .. }
            | Self::TlsGarbage { .. }
            | Self::TlsTinyRecords { .. } => request.secured && request.body_bytes > 0,
            Self::TlsKeyUpdate { .. } => request.renewable && request.body_bytes > 0,
            Self::TlsHandshakeCut { .. } | Self::TlsPlaintext => false,
        }
    }

    /// Whether it befalls connections instead of requests.
    fn is_of_handshake(&self) -> bool {
        matches!(self, Self::TlsHandshakeCut { .. } | Self::TlsPlaintext)
    }
}

/// What a plan looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultRequest<'a> {
    pub(crate) operation: Operation,
    pub(crate) bucket: &'a str,
    pub(crate) key: &'a str,
    /// Tells requests of the same name apart: the query of a listing.
    pub(crate) detail: &'a str,
    /// First byte of the object that was asked for.
    pub(crate) offset: u64,
    /// Bytes of the body; 0 for HEAD.
    pub(crate) body_bytes: u64,
    /// Whether the answer has a Content-Range.
    pub(crate) partial: bool,
    /// Through which address the client came.
    pub(crate) address_index: usize,
    /// Whether TLS is spoken.
    pub(crate) secured: bool,
    /// Whether its keys can be renewed.
    pub(crate) renewable: bool,
}

/// Which requests a rule speaks of: those that agree with every field that is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Match {
    /// Only requests through this address, counted from 0 in the order of
    /// [`Config::listen`](crate::Config::listen): one bad server among good ones.
    pub address: Option<usize>,
    /// Only this operation.
    pub operation: Option<Operation>,
    /// Only this bucket.
    pub bucket: Option<String>,
    /// Only this key.
    pub key: Option<String>,
    /// Only keys that begin so.
    pub key_prefix: Option<String>,
    /// Only requests whose first byte lies here.
    pub offsets: Option<Range<u64>>,
    /// Only these attempts of the same request (operation, bucket, key, first byte), from 1.
    pub attempts: Option<RangeInclusive<u32>>,
}

impl Match {
    fn accepts(&self, request: &FaultRequest<'_>, attempt: u32) -> bool {
        self.address.is_none_or(|index| index == request.address_index)
            && self.operation.is_none_or(|operation| operation == request.operation)
            && self.bucket.as_ref().is_none_or(|bucket| bucket == request.bucket)
            && self.key.as_ref().is_none_or(|key| key == request.key)
            && self.key_prefix.as_ref().is_none_or(|prefix| request.key.starts_with(prefix))
            && self.offsets.as_ref().is_none_or(|offsets| offsets.contains(&request.offset))
            && self.attempts.as_ref().is_none_or(|attempts| attempts.contains(&attempt))
    }
}

/// A fault for the requests that match.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    when: Match,
    fault: Fault,
}

/// A mix of faults to draw from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// Wrong bytes and wrong heads, 6 % of requests: what a client must notice.
    Corrupt,
    /// A little of everything that a client must survive, 10 %; nothing silently wrong.
    Mixed,
    /// Nothing.
    None,
    /// 503 SlowDown and 500, 20 %.
    Overloaded,
    /// Drips and stalls that end, 10 %.
    Slow,
    /// What only TLS can do wrong, 10 % of requests and 2 % of handshakes, and what only looks
    /// wrong: new keys and tiny records. Without TLS: nothing.
    Tls,
}

impl Profile {
    /// The names of all profiles, as [`FaultPlan`] reads them.
    pub const NAMES: [&str; 6] = ["corrupt", "mixed", "none", "overloaded", "slow", "tls"];

    /// Faults and how many of a thousand requests meet them.
    fn weights(self) -> &'static [(Kind, u64)] {
        match self {
            Self::Corrupt => &[
                (Kind::FlipByte, 20),
                (Kind::Truncate, 20),
                (Kind::ChangedEtag, 10),
                (Kind::WrongContentRange, 10),
            ],
            Self::Mixed => &[
                (Kind::SlowDown, 20),
                (Kind::InternalError, 10),
                (Kind::ResetBeforeHead, 10),
                (Kind::ResetAfter, 15),
                (Kind::Truncate, 15),
                (Kind::CloseAfterResponse, 15),
                (Kind::StallAfter, 5),
                (Kind::StallBeforeHead, 5),
                (Kind::Drip, 5),
            ],
            Self::None => &[],
            Self::Overloaded => &[(Kind::SlowDown, 150), (Kind::InternalError, 50)],
            Self::Slow => &[(Kind::Drip, 40), (Kind::StallAfter, 30), (Kind::StallBeforeHead, 30)],
            Self::Tls => &[
                (Kind::TlsAlert, 15),
                (Kind::TlsCloseNotify, 15),
                (Kind::TlsCut, 15),
                (Kind::TlsGarbage, 15),
                (Kind::TlsKeyUpdate, 30),
                (Kind::TlsTinyRecords, 10),
            ],
        }
    }

    /// How many of a thousand handshakes are cut.
    fn handshakes_cut(self) -> u64 {
        if self == Self::Tls { 20 } else { 0 }
    }
}

/// A fault without its numbers, which are drawn for each request.
#[derive(Debug, Clone, Copy)]
enum Kind {
    ChangedEtag,
    CloseAfterResponse,
    Drip,
    FlipByte,
    InternalError,
    ResetAfter,
    ResetBeforeHead,
    SlowDown,
    StallAfter,
    StallBeforeHead,
    TlsAlert,
    TlsCloseNotify,
    TlsCut,
    TlsGarbage,
    TlsKeyUpdate,
    TlsTinyRecords,
    Truncate,
    WrongContentRange,
}

impl Kind {
    fn with_numbers(self, random: u64, body_bytes: u64) -> Fault {
        let position = random % body_bytes.max(1);
        // Long enough to be noticed, short enough for a test to wait for.
        let duration = Some(Duration::from_millis(200 + (random >> 32) % 1800));
        match self {
            Self::ChangedEtag => Fault::ChangedEtag,
            Self::CloseAfterResponse => Fault::CloseAfterResponse,
            Self::Drip => Fault::Drip { bytes: 64 << 10, pause: Duration::from_millis(5) },
            Self::FlipByte => Fault::FlipByte { at: position },
            Self::InternalError => Fault::InternalError,
            Self::ResetAfter => Fault::ResetAfter { bytes: position },
            Self::ResetBeforeHead => Fault::ResetBeforeHead,
            Self::SlowDown => Fault::SlowDown,
            Self::StallAfter => Fault::StallAfter { bytes: position, duration },
            Self::StallBeforeHead => Fault::StallBeforeHead { duration },
            Self::TlsAlert => Fault::TlsAlert { bytes: position },
            Self::TlsCloseNotify => Fault::TlsCloseNotify { bytes: position },
            Self::TlsCut => Fault::TlsCut { bytes: position },
            Self::TlsGarbage => Fault::TlsGarbage { bytes: position },
            Self::TlsKeyUpdate => Fault::TlsKeyUpdate { bytes: position },
            // From 64 bytes: fewer would be ten times the work of all other answers.
            Self::TlsTinyRecords => Fault::TlsTinyRecords { bytes: 64 << ((random >> 32) % 5) },
            Self::Truncate => Fault::Truncate { bytes: position },
            Self::WrongContentRange => Fault::WrongContentRange,
        }
    }
}

/// Rules, and a profile with its seed. Written as `SEED:PROFILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultPlan {
    rules: Vec<Rule>,
    seed: u64,
    profile: Profile,
}

impl FaultPlan {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self::seeded(0, Profile::None)
    }

    /// Faults drawn from a profile.
    pub fn seeded(seed: u64, profile: Profile) -> Self {
        Self { rules: Vec::new(), seed, profile }
    }

    /// Adds a rule behind the others; rules come before the profile.
    #[must_use]
    pub fn with_rule(mut self, when: Match, fault: Fault) -> Self {
        self.rules.push(Rule { when, fault });
        self
    }

    /// Whether nothing can ever go wrong.
    pub(crate) fn is_none(&self) -> bool {
        self.rules.is_empty() && self.profile.weights().is_empty()
    }

    /// The fate of one request; `attempt` counts from 1.
    pub(crate) fn decide(&self, request: &FaultRequest<'_>, attempt: u32) -> Option<Fault> {
        let rule = self
            .rules
            .iter()
            .filter(|rule| !rule.fault.is_of_handshake())
            .find(|rule| rule.when.accepts(request, attempt));
        if let Some(rule) = rule {
            return Some(rule.fault).filter(|fault| fault.applies(request));
        }
        let random = mix(self.seed ^ mix(identity(request) ^ u64::from(attempt)));
        let mut draw = random % 1000;
        for (kind, weight) in self.profile.weights() {
            if draw < *weight {
                let fault = kind.with_numbers(mix(random), request.body_bytes);
                return Some(fault).filter(|fault| fault.applies(request));
            }
            draw -= weight;
        }
        None
    }

    /// The fate of one handshake; the connections through an address count from 1.
    pub(crate) fn decide_handshake(&self, address_index: usize, connection: u32) -> Option<Fault> {
        let rule = self.rules.iter().find(|rule| {
            rule.fault.is_of_handshake()
                && rule.when.address.is_none_or(|index| index == address_index)
                && rule.when.attempts.as_ref().is_none_or(|range| range.contains(&connection))
        });
        if let Some(rule) = rule {
            return Some(rule.fault);
        }
        let random = mix(self.seed ^ mix(u64::from(connection) ^ mix(address_index as u64)));
        (random % 1000 < self.profile.handshakes_cut())
            .then_some(Fault::TlsHandshakeCut { reset: random & (1 << 32) != 0 })
    }
}

impl FromStr for FaultPlan {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse = || {
            let profiles = Profile::NAMES.join(", ");
            ParseError(format!("invalid faults '{text}', expected SEED:PROFILE with {profiles}"))
        };
        let (seed, profile) = text.split_once(':').ok_or_else(refuse)?;
        let profile = match profile {
            "corrupt" => Profile::Corrupt,
            "mixed" => Profile::Mixed,
            "none" => Profile::None,
            "overloaded" => Profile::Overloaded,
            "slow" => Profile::Slow,
            "tls" => Profile::Tls,
            _ => return Err(refuse()),
        };
        Ok(Self::seeded(seed.parse().map_err(|_| refuse())?, profile))
    }
}

/// A plan and its memory: how often each request came.
#[derive(Debug)]
pub(crate) struct Injector {
    plan: FaultPlan,
    attempts: Mutex<HashMap<u64, u32>>,
    /// Handshakes by address.
    handshakes: Mutex<HashMap<usize, u32>>,
}

/// So many different requests are remembered (about 24 MiB); after that all count from 1 again.
const REMEMBERED_MAX: usize = 1 << 20;

impl Injector {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        Self { plan, attempts: Mutex::default(), handshakes: Mutex::default() }
    }

    pub(crate) fn decide(&self, request: &FaultRequest<'_>) -> Option<Fault> {
        if self.plan.is_none() {
            return None;
        }
        let mut attempts = self.attempts.lock().unwrap_or_else(|broken| broken.into_inner());
        if attempts.len() >= REMEMBERED_MAX {
            attempts.clear();
        }
        let attempt = attempts.entry(identity(request)).or_default();
        *attempt = attempt.saturating_add(1);
        self.plan.decide(request, *attempt)
    }

    pub(crate) fn decide_handshake(&self, address_index: usize) -> Option<Fault> {
        if self.plan.is_none() {
            return None;
        }
        let mut handshakes = self.handshakes.lock().unwrap_or_else(|broken| broken.into_inner());
        let number = handshakes.entry(address_index).or_default();
        *number = number.saturating_add(1);
        self.plan.decide_handshake(address_index, *number)
    }
}

fn identity(request: &FaultRequest<'_>) -> u64 {
    let bucket = fingerprint(request.bucket.as_bytes(), request.operation as u64);
    let key = fingerprint(request.key.as_bytes(), bucket);
    fingerprint(request.detail.as_bytes(), key ^ mix(request.offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: &str) -> FaultRequest<'_> {
        FaultRequest {
            operation: Operation::GetObject,
            bucket: "b",
            key,
            detail: "",
            offset: 0,
            body_bytes: 8 << 20,
            partial: true,
            address_index: 0,
            secured: false,
            renewable: false,
        }
    }

    #[test]
    fn a_seed_decides_every_request_alike_and_retries_anew() {
        let plan: FaultPlan = "7:mixed".parse().unwrap();
        let keys: Vec<String> = (0..20_000).map(|index| format!("k{index}")).collect();
        let fates = |seed: &FaultPlan, attempt| -> Vec<_> {
            keys.iter().map(|key| seed.decide(&request(key), attempt)).collect()
        };
        let first = fates(&plan, 1);
        assert_eq!(first, fates(&plan, 1));
        assert_ne!(first, fates(&plan, 2));
        assert_ne!(first, fates(&FaultPlan::seeded(8, Profile::Mixed), 1));
        let faults = first.iter().flatten().count();
        assert!((1800..2200).contains(&faults), "{faults} of 20000, expected 10 %");
        let kinds: std::collections::HashSet<_> = first.iter().flatten().map(Fault::name).collect();
        assert_eq!(kinds.len(), Profile::Mixed.weights().len());
    }

    #[test]
    fn rules_come_first_and_count_attempts() {
        let when = Match {
            key: Some("a".to_owned()),
            offsets: Some(0..1),
            attempts: Some(1..=2),
            ..Match::default()
        };
        let plan = FaultPlan::none().with_rule(when, Fault::SlowDown);
        let injector = Injector::new(plan);
        assert_eq!(injector.decide(&request("b")), None);
        let later = FaultRequest { offset: 5, ..request("a") };
        assert_eq!(injector.decide(&later), None);
        let fates: Vec<_> = (0..4).map(|_| injector.decide(&request("a"))).collect();
        assert_eq!(fates, [Some(Fault::SlowDown), Some(Fault::SlowDown), None, None]);
    }

    #[test]
    fn what_cannot_happen_is_not_decided() {
        let head = FaultRequest {
            operation: Operation::HeadObject,
            body_bytes: 0,
            partial: false,
            ..request("a")
        };
        for fault in [Fault::Truncate { bytes: 0 }, Fault::WrongContentRange] {
            let plan = FaultPlan::none().with_rule(Match::default(), fault);
            assert_eq!(plan.decide(&head, 1), None);
            assert_eq!(plan.decide(&request("a"), 1), Some(fault));
        }
    }

    #[test]
    fn faults_of_tls_need_tls() {
        for (fault, secured, renewable) in [
            (Fault::TlsAlert { bytes: 1 }, true, false),
            (Fault::TlsTinyRecords { bytes: 1 }, true, false),
            (Fault::TlsKeyUpdate { bytes: 1 }, true, true),
        ] {
            let plan = FaultPlan::none().with_rule(Match::default(), fault);
            assert_eq!(plan.decide(&request("a"), 1), None);
            let least = FaultRequest { secured, renewable, ..request("a") };
            assert_eq!(plan.decide(&least, 1), Some(fault));
            let without_new_keys = FaultRequest { renewable: false, ..least };
            assert_eq!(plan.decide(&without_new_keys, 1).is_some(), !renewable);
            assert_eq!(plan.decide_handshake(0, 1), None);
        }
    }

    #[test]
    fn handshakes_have_fates_of_their_own() {
        let cut = Fault::TlsHandshakeCut { reset: true };
        let when = Match { address: Some(1), attempts: Some(2..=3), ..Match::default() };
        let plan = FaultPlan::none().with_rule(when, cut);
        let injector = Injector::new(plan.clone());
        let fates =
            |address| (0..4).map(|_| injector.decide_handshake(address)).collect::<Vec<_>>();
        assert_eq!(fates(0), [None; 4]);
        assert_eq!(fates(1), [None, Some(cut), Some(cut), None]);
        // No request meets it, and it stands in no other rule's way.
        let plan = plan.with_rule(Match::default(), Fault::SlowDown);
        assert_eq!(
            plan.decide(&FaultRequest { address_index: 1, ..request("a") }, 2),
            Some(Fault::SlowDown)
        );

        let drawn = FaultPlan::seeded(7, Profile::Tls);
        let cuts = (1..=10_000).filter_map(|number| drawn.decide_handshake(0, number)).count();
        assert!((150..250).contains(&cuts), "{cuts} of 10000, expected 2 %");
        let mixed = FaultPlan::seeded(7, Profile::Mixed);
        assert!((1..=1000).all(|number| mixed.decide_handshake(0, number).is_none()));
    }

    #[test]
    fn plans_are_parsed() {
        assert!("0:none".parse::<FaultPlan>().unwrap().is_none());
        for name in Profile::NAMES {
            assert!(format!("18446744073709551615:{name}").parse::<FaultPlan>().is_ok());
        }
        for text in ["", "7", "x:mixed", "7:other", "-1:mixed"] {
            assert!(text.parse::<FaultPlan>().unwrap_err().to_string().contains("mixed"));
        }
    }

    #[test]
    fn names_belong_to_kinds() {
        assert_eq!(Fault::Drip { bytes: 1, pause: Duration::ZERO }.name(), "drip");
        assert_eq!(Fault::WrongContentRange.name(), "wrong_content_range");
        assert!(Fault::NAMES.is_sorted());
    }
}
