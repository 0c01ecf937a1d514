//! What a seed stands for: a mode, a profile, a server, and how the program is asked.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use bytes::Bytes;
use inrush_origin::Operation::{GetObject, HeadObject, ListObjects};
use inrush_origin::{
    ChecksumAlgorithm, ChecksumPolicy, Config, Credentials, Fault, FaultPlan, Match, ObjectContent,
    ObjectSpec, Origin, Profile, TlsConfig, TlsVersions,
};

use crate::matrix::bytes_of;
use crate::program::Program;
use crate::served::{ACCESS_KEY, BUCKET, SECRET, start};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const PROFILES: [Profile; 9] = [
    Profile::Bursts,
    Profile::Corrupt,
    Profile::Mild,
    Profile::Mixed,
    Profile::Overloaded,
    Profile::Rough,
    Profile::Slow,
    Profile::Strange,
    Profile::Tls,
];

/// How the bytes leave the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `get`
    Files,
    /// `pipe`
    Pipe,
    /// `cat`
    Cat,
}

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    seed: u64,
    pub(crate) mode: Mode,
    profile: Profile,
    tls: Option<TlsVersions>,
    /// Listings and HEADs meet the faults too, which are then counted by nobody.
    pub(crate) everywhere: bool,
    checksum: Option<ChecksumPolicy>,
    options: Vec<&'static str>,
    /// Of a pipe.
    pub(crate) epochs: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, mode, profile, tls, everywhere, options, .. } = self;
        let reach = if *everywhere { "of all requests" } else { "of GETs" };
        let options = options.join(" ");
        write!(f, "seed {seed}: {mode:?}, {profile:?} {reach}, TLS {tls:?}, {options}; ")?;
        write!(f, "repeat with: INRUSH_FAULTS_SEED={seed} cargo test --test faults")
    }
}

impl Case {
    /// Modes and profiles take turns, so that any 72 seeds in a row have all of them.
    pub(crate) fn new(seed: u64) -> Self {
        let mode = [Mode::Files, Mode::Pipe, Mode::Files, Mode::Cat][(seed % 4) as usize];
        let profile = PROFILES[(seed / 4 % 9) as usize];
        let mut chance = fastrand::Rng::with_seed(seed);
        let versions = [TlsVersions::Only13, TlsVersions::Only12][chance.usize(..2)];
        let secured = seed / 36 % 2 == 1 || profile == Profile::Tls;
        let checksum = match chance.u8(..4) {
            0 if profile != Profile::Corrupt => None,
            1 => Some(ChecksumAlgorithm::Crc32c),
            _ => Some(ChecksumAlgorithm::Crc64Nvme),
        };
        let mut options = vec!["--part-size", "1MiB"];
        let more: &[&str] = match chance.u8(..4) {
            // One alone cannot be far behind its peers: after a close_notify and nothing more it
            // waits for the whole of its 30 s.
            0 if profile != Profile::Tls => &["--connections", "1"],
            1 => &["--connections", "6"],
            _ => &[],
        };
        options.extend(more);
        if mode == Mode::Files {
            let workers: &[&str] = if chance.bool() { &["--workers", "1"] } else { &[] };
            options.extend(workers);
            // Wrong bytes are seen where there is something to compare them with.
            let strict = profile == Profile::Corrupt;
            options.extend(["--verify", if strict { "strict" } else { "auto" }]);
        }
        Self {
            seed,
            mode,
            profile,
            tls: secured.then_some(versions),
            everywhere: chance.u8(..4) == 0,
            checksum: checksum.map(ChecksumPolicy::full_object),
            options,
            epochs: chance.usize(1..=2),
        }
    }

    /// The name of its profile.
    pub(crate) fn profile_name(&self) -> String {
        format!("{:?}", self.profile)
    }

    /// Whether there may be faults that no client survives: an object that becomes another.
    pub(crate) fn may_fail(&self) -> bool {
        self.profile == Profile::Corrupt
    }

    /// Starts its server.
    pub(crate) fn serve(&self) -> Origin {
        start(Config {
            objects: SPECS.clone(),
            credentials: vec![Credentials::new(ACCESS_KEY, SECRET)],
            checksum: self.checksum,
            faults: self.faults(),
            tls: self.tls.map(|versions| TlsConfig { versions, ..TlsConfig::default() }),
            ..Config::default()
        })
    }

    fn faults(&self) -> FaultPlan {
        let mut plan = match (self.profile, self.mode) {
            // A stream has left before all of an object was seen: it cannot be verified.
            (Profile::Corrupt, Mode::Pipe | Mode::Cat) => self.wrong_heads(),
            _ => FaultPlan::seeded(self.seed, self.profile),
        };
        if !self.everywhere {
            // What cannot happen to a request keeps all else from it.
            for (operation, never) in
                [(ListObjects, Fault::ChangedEtag), (HeadObject, Fault::WrongContentRange)]
            {
                let when = Match { operation: Some(operation), ..Match::default() };
                plan = plan.with_rule(when, never);
            }
        }
        plan
    }

    /// The faults of [`Profile::Corrupt`] that a head or a length gives away; one in three such
    /// runs has an object that becomes another.
    fn wrong_heads(&self) -> FaultPlan {
        let mut chance = fastrand::Rng::with_seed(self.seed);
        let mut plan = FaultPlan::none();
        let changed = chance.u8(..3) == 0;
        for number in 0..8 {
            let (key, bytes) = &OBJECTS[chance.usize(..OBJECTS.len())];
            let fault = match number {
                0 if changed => Fault::ChangedEtag,
                0..=4 => Fault::Truncate { bytes: chance.u64(..bytes.len().max(1) as u64) },
                _ => Fault::WrongContentRange,
            };
            let when = Match {
                operation: Some(GetObject),
                key: Some(key.clone()),
                attempts: Some(1..=2),
                ..Match::default()
            };
            plan = plan.with_rule(when, fault);
        }
        plan
    }

    /// The program in this mode, with everything but the place where bytes go.
    pub(crate) fn program(&self, origin: &Origin, folder: &Path) -> Program {
        let command = match self.mode {
            Mode::Files => "get",
            Mode::Pipe => "pipe",
            Mode::Cat => "cat",
        };
        let program = Program::new([command, "--quiet", "--json", "s3://lab/"]);
        let program = program.with(&self.options).asking(origin).with_keys(ACCESS_KEY, SECRET);
        let Some(authority) = origin.ca_pem() else { return program };
        let bundle = folder.join("ca.pem");
        fs::write(&bundle, authority).expect("room");
        program.with(["--ca-bundle".as_ref(), bundle.as_os_str()])
    }
}

/// Every object, in the order of the keys.
pub(crate) static OBJECTS: LazyLock<Vec<(String, Bytes)>> = LazyLock::new(|| {
    let mut chance = fastrand::Rng::with_seed(7);
    let mut lengths = vec![0, 1, 511, 512, 4095, 4096, MIB - 1, MIB, MIB + 1, 3 * MIB];
    lengths.extend((0..20).map(|_| chance.usize(1..64 * KIB)));
    lengths.extend((0..4).map(|_| chance.usize(200 * KIB..MIB)));
    lengths.extend((0..2).map(|_| chance.usize(MIB..2 * MIB)));
    chance.shuffle(&mut lengths);
    let objects = lengths.into_iter().enumerate().map(|(number, length)| {
        let key = format!("{}/{number:03}", number % 5);
        let bytes = Bytes::from(bytes_of(&key, length));
        (key, bytes)
    });
    let sorted: BTreeMap<String, Bytes> = objects.collect();
    sorted.into_iter().collect()
});

static SPECS: LazyLock<Vec<ObjectSpec>> = LazyLock::new(|| {
    let spec = |(key, bytes): &(String, Bytes)| {
        ObjectSpec::new(BUCKET, key.as_str(), ObjectContent::Bytes(bytes.clone()))
    };
    OBJECTS.iter().map(spec).collect()
});
