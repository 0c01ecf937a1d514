//! When something goes wrong: a plan that is a pure function of request and attempt.
//!
//! Two sources: explicit rules, first match wins, then a profile drawn from a seed. A draw depends
//! on the seed, the request (operation, bucket, key, first byte) and how often this same request
//! came before, and not on the order in which connections happen to be served: the same seed gives
//! every request the same fate on every run, and a retry draws again.
//!
//! Not here: what can go wrong at all (`fault.rs`).

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use crate::fault::{Fault, FaultRequest};
use crate::parse::ParseError;
use crate::request::Operation;
use crate::synthetic::{fingerprint, index, mix};

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
    /// Of all requests that agree with the fields above, only these, in the order they come, from
    /// 1, whichever they are. A rule before this one hides what it takes.
    pub requests: Option<RangeInclusive<u64>>,
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
    /// Of 15 % of all requests the first tries, up to four in a row, are refused as by a server
    /// that has too much to do: 503 SlowDown, 503 ServiceUnavailable, 500.
    Bursts,
    /// Wrong bytes and wrong heads, 6 % of requests: what a client must notice.
    Corrupt,
    /// A little of everything that a client must survive, 10 %; nothing silently wrong.
    Mixed,
    /// What costs time and nothing else, 10 %: a client that is patient needs no retry.
    Mild,
    /// Nothing.
    None,
    /// 503 SlowDown and 500, 20 %.
    Overloaded,
    /// What the mixed one has, and proxies' errors, 1 %: for runs of hours at nearly full speed.
    Rare,
    /// All that a client must survive by trying again, and what is mild, 20 %.
    Rough,
    /// Drips and stalls that end, 10 %.
    Slow,
    /// Stalls that never end, 5 %: half of them before the head, half in the body.
    Stalled,
    /// What HTTP allows and S3 never does, 10 %: chunks, interim answers, long heads.
    Strange,
    /// What only TLS can do wrong, 10 % of requests and 2 % of handshakes, and what only looks
    /// wrong: new keys and tiny records. Without TLS: nothing.
    Tls,
}

impl Profile {
    /// The names of all profiles, as [`FaultPlan`] reads them.
    pub const NAMES: [&str; 12] = [
        "bursts",
        "corrupt",
        "mild",
        "mixed",
        "none",
        "overloaded",
        "rare",
        "rough",
        "slow",
        "stalled",
        "strange",
        "tls",
    ];

    /// Faults and how many of a thousand requests meet them.
    fn weights(self) -> &'static [(Kind, u64)] {
        match self {
            Self::Corrupt => &[
                (Kind::FlipByte, 20),
                (Kind::Truncate, 20),
                (Kind::ChangedEtag, 10),
                (Kind::WrongContentRange, 10),
            ],
            Self::Mild => &[
                (Kind::CloseAfterResponse, 30),
                (Kind::Drip, 25),
                (Kind::SlowHead, 25),
                (Kind::StallAfter, 10),
                (Kind::StallBeforeHead, 10),
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
            // See [`burst`].
            Self::Bursts | Self::None => &[],
            Self::Overloaded => &[(Kind::SlowDown, 150), (Kind::InternalError, 50)],
            Self::Rare => &[
                (Kind::CloseAfterResponse, 1),
                (Kind::Drip, 1),
                (Kind::HtmlError, 1),
                (Kind::InternalError, 1),
                (Kind::ResetAfter, 1),
                (Kind::ResetBeforeHead, 1),
                (Kind::SlowDown, 1),
                (Kind::StallAfter, 1),
                (Kind::StallBeforeHead, 1),
                (Kind::Truncate, 1),
            ],
            Self::Rough => &[
                (Kind::CloseAfterResponse, 15),
                (Kind::Drip, 10),
                (Kind::HtmlError, 15),
                (Kind::InternalError, 20),
                (Kind::ResetAfter, 25),
                (Kind::ResetBeforeHead, 20),
                (Kind::SlowDown, 40),
                (Kind::SlowHead, 10),
                (Kind::StallAfter, 10),
                (Kind::StallBeforeHead, 10),
                (Kind::Truncate, 25),
            ],
            Self::Stalled => &[(Kind::HangAfter, 25), (Kind::HangBeforeHead, 25)],
            Self::Strange => &[
                (Kind::Chunked, 25),
                (Kind::Interim, 25),
                (Kind::LargeHead, 25),
                (Kind::ManyHeaders, 25),
            ],
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
    Chunked,
    CloseAfterResponse,
    Drip,
    FlipByte,
    HangAfter,
    HangBeforeHead,
    HtmlError,
    Interim,
    InternalError,
    LargeHead,
    ManyHeaders,
    ResetAfter,
    ResetBeforeHead,
    SlowDown,
    SlowHead,
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
            Self::Chunked => Fault::Chunked,
            Self::CloseAfterResponse => Fault::CloseAfterResponse,
            Self::Drip => Fault::Drip { bytes: 64 << 10, pause: Duration::from_millis(5) },
            Self::FlipByte => Fault::FlipByte { at: position },
            Self::HangAfter => Fault::StallAfter { bytes: position, duration: None },
            Self::HangBeforeHead => Fault::StallBeforeHead { duration: None },
            Self::HtmlError => Fault::HtmlError { status: 502 },
            Self::Interim => {
                let status = if random & (1 << 32) == 0 { 100 } else { 103 };
                Fault::Interim { status, count: 1 }
            }
            Self::InternalError => Fault::InternalError,
            // More than the client keeps at a time; S3's own metadata is below 2 KiB.
            Self::LargeHead => Fault::LargeHead { bytes: 20 << 10 },
            // More than S3 ever sends, and no more than a client has to take.
            Self::ManyHeaders => Fault::ManyHeaders { count: 200 },
            Self::ResetAfter => Fault::ResetAfter { bytes: position },
            Self::ResetBeforeHead => Fault::ResetBeforeHead,
            Self::SlowDown => Fault::SlowDown,
            Self::SlowHead => Fault::SlowHead { bytes: 32, pause: Duration::from_millis(5) },
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

/// What a burst does with this attempt; the number is the same for all attempts of a request.
fn burst(random: u64, attempt: u32) -> Option<Fault> {
    const REFUSALS: [Fault; 3] = [Fault::InternalError, Fault::ServiceUnavailable, Fault::SlowDown];
    let met = random % 1000 < 150;
    let attempts = 1 + (random >> 16) % 4;
    let fault = REFUSALS[index(random >> 32) % REFUSALS.len()];
    (met && u64::from(attempt) <= attempts).then_some(fault)
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
        self.rules.is_empty() && self.profile == Profile::None
    }

    /// The fate of one request; `attempt` counts from 1. `agreed` has for each rule how many
    /// requests agreed with it so far.
    fn decide(
        &self,
        request: &FaultRequest<'_>,
        attempt: u32,
        agreed: &mut [u64],
    ) -> Option<Fault> {
        for (rule, agreed) in self.rules.iter().zip(agreed) {
            if rule.fault.is_of_handshake() || !rule.when.accepts(request, attempt) {
                continue;
            }
            *agreed += 1;
            if rule.when.requests.as_ref().is_none_or(|requests| requests.contains(agreed)) {
                return Some(rule.fault).filter(|fault| fault.applies(request));
            }
        }
        if self.profile == Profile::Bursts {
            return burst(mix(self.seed ^ mix(identity(request))), attempt);
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
            "bursts" => Profile::Bursts,
            "corrupt" => Profile::Corrupt,
            "mild" => Profile::Mild,
            "mixed" => Profile::Mixed,
            "none" => Profile::None,
            "overloaded" => Profile::Overloaded,
            "rare" => Profile::Rare,
            "rough" => Profile::Rough,
            "slow" => Profile::Slow,
            "stalled" => Profile::Stalled,
            "strange" => Profile::Strange,
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
    requests: Mutex<Requests>,
    /// Handshakes by address.
    handshakes: Mutex<HashMap<usize, u32>>,
}

/// What came so far.
#[derive(Debug)]
struct Requests {
    attempts: HashMap<u64, u32>,
    /// For each rule, how many requests agreed with it.
    agreed: Vec<u64>,
}

/// Most different requests that are remembered (about 24 MiB); then all count from 1 again.
const REMEMBERED_MAX: usize = 1 << 20;

impl Injector {
    pub(crate) fn new(plan: FaultPlan) -> Self {
        let requests = Requests { attempts: HashMap::new(), agreed: vec![0; plan.rules.len()] };
        Self { plan, requests: Mutex::new(requests), handshakes: Mutex::default() }
    }

    pub(crate) fn decide(&self, request: &FaultRequest<'_>) -> Option<Fault> {
        if self.plan.is_none() {
            return None;
        }
        let mut requests = self.requests.lock().unwrap_or_else(|broken| broken.into_inner());
        let Requests { attempts, agreed } = &mut *requests;
        if attempts.len() >= REMEMBERED_MAX {
            attempts.clear();
        }
        let attempt = attempts.entry(identity(request)).or_default();
        *attempt = attempt.saturating_add(1);
        self.plan.decide(request, *attempt, agreed)
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
            ranged: true,
            checksummed: false,
            address_index: 0,
            secured: false,
            renewable: false,
        }
    }

    fn decide(plan: &FaultPlan, request: &FaultRequest<'_>, attempt: u32) -> Option<Fault> {
        plan.decide(request, attempt, &mut vec![0; plan.rules.len()])
    }

    #[test]
    fn a_seed_decides_every_request_alike_and_retries_anew() {
        let plan: FaultPlan = "7:mixed".parse().unwrap();
        let keys: Vec<String> = (0..20_000).map(|index| format!("k{index}")).collect();
        let fates = |seed: &FaultPlan, attempt| -> Vec<_> {
            keys.iter().map(|key| decide(seed, &request(key), attempt)).collect()
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
    fn a_burst_takes_its_requests_in_a_row() {
        let when =
            Match { key_prefix: Some("a".into()), requests: Some(2..=3), ..Match::default() };
        let injector = Injector::new(FaultPlan::none().with_rule(when, Fault::SlowDown));
        let met = |key| injector.decide(&request(key)).is_some();
        let fates = ["a1", "b", "a2", "b", "a1", "a3"].map(met);
        assert_eq!(fates, [false, false, true, false, true, false]);
    }

    #[test]
    fn profiles_hold_what_they_say() {
        let sum = |profile: Profile| profile.weights().iter().map(|(_, weight)| weight).sum();
        let expected = [0, 60, 100, 100, 0, 200, 10, 200, 100, 50, 100, 100];
        for (name, expected) in Profile::NAMES.into_iter().zip(expected) {
            let plan: FaultPlan = format!("1:{name}").parse().unwrap();
            let total: u64 = sum(plan.profile);
            assert_eq!(total, expected, "{name}");
        }
    }

    #[test]
    fn bursts_refuse_the_first_tries_in_a_row() {
        let plan: FaultPlan = "7:bursts".parse().unwrap();
        assert!(!plan.is_none());
        let mut of_length = [0; 6];
        let mut names = std::collections::BTreeSet::new();
        for number in 0..10_000 {
            let key = format!("k{number}");
            let fates: Vec<_> =
                (1..=6).map(|attempt| decide(&plan, &request(&key), attempt)).collect();
            let length = fates.iter().take_while(|fate| fate.is_some()).count();
            assert!(fates[..length].iter().all(|fate| *fate == fates[0]), "{fates:?}");
            assert!(fates[length..].iter().all(Option::is_none), "{fates:?}");
            of_length[length] += 1;
            names.extend(fates[0].map(|fault| fault.name()));
        }
        assert!((1400..1600).contains(&of_length[1..].iter().sum::<u32>()), "{of_length:?}");
        assert!(of_length[1..=4].iter().all(|count| *count > 300), "{of_length:?}");
        assert_eq!(names.len(), 3, "{names:?}");
    }

    #[test]
    fn a_byte_of_an_object_is_in_one_range() {
        let when = Match::default();
        let plan = FaultPlan::none().with_rule(when, Fault::FlipObjectByte { at: 8 << 20 });
        assert_eq!(decide(&plan, &request("a"), 1), None);
        for offset in [1, 8 << 20] {
            let has_it = FaultRequest { offset, ..request("a") };
            assert!(decide(&plan, &has_it, 1).is_some(), "{offset}");
        }
        let behind = FaultRequest { offset: (8 << 20) + 1, ..request("a") };
        assert_eq!(decide(&plan, &behind, 1), None);
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
            assert_eq!(decide(&plan, &head, 1), None);
            assert_eq!(decide(&plan, &request("a"), 1), Some(fault));
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
            assert_eq!(decide(&plan, &request("a"), 1), None);
            let least = FaultRequest { secured, renewable, ..request("a") };
            assert_eq!(decide(&plan, &least, 1), Some(fault));
            let without_new_keys = FaultRequest { renewable: false, ..least };
            assert_eq!(decide(&plan, &without_new_keys, 1).is_some(), !renewable);
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
            decide(&plan, &FaultRequest { address_index: 1, ..request("a") }, 2),
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
