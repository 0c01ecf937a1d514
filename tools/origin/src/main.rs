//! The program `inrush-origin`: arguments in, an origin until a signal, counters out.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use inrush_origin::{
    CertificateKind, ChecksumPolicy, Config, Credentials, DeadAddress, FaultPlan, Neighbor, Origin,
    RequestRate, Stats, SyntheticSet, TlsConfig, TlsVersions, parse_size,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

/// Between two lines of `--samples`.
const SAMPLE_TIME: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  Four objects of 1 GiB that cost no memory, /bench/big/0 to /bench/big/3:
    inrush-origin --listen 127.0.0.1:9000 --synthetic 'bench/big/:4:1GiB:width=1:suffix='
  200,000 small objects in 20 folders, signed requests only:
    inrush-origin --synthetic 'train/p/:200000:39KiB:folders=20' \\
        --access-key AKIDEXAMPLE --secret-key secret --region eu-west-3
  The folders below ./data as buckets, on four addresses, with faults:
    inrush-origin --root ./data --listen 127.0.0.1:9000 --listen 127.0.0.2:9000 \\
        --listen 127.0.0.3:9000 --listen 127.0.0.4:9000 --faults 7:mixed
  With TLS 1.3 alone, and faults that only TLS has: alerts, sessions that end in the middle,
  records that cannot be opened, new keys, tiny records, handshakes that are cut:
    inrush-origin --synthetic 'bench/big/:4:1GiB' --tls --ca-out ca.pem --tls-version 1.3 \
        --faults 7:tls
  S3 as one sees it from afar, a connection at a time: 30 ms, 90 MB/s; a limit of 5,500 GETs a
  second, and somebody who takes half of 1 GB/s from the third second on, for ten:
    inrush-origin --synthetic 'bench/big/:256:1GiB' --first-byte-latency 30:10 \\
        --connection-rate 90MB --requests-per-second 5500 --capacity 1GB \\
        --neighbor 3000:10000:50

On SIGINT or SIGTERM the counters are printed to stderr as JSON.";

/// An S3-compatible, read-only origin for tests, demos and benchmarks.
#[derive(Parser, Debug)]
#[command(version, after_help = EXAMPLES)]
struct Arguments {
    /// Address to listen on; repeatable, and port 0 takes a free one, shared by all addresses
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: Vec<SocketAddr>,
    /// Folder whose first-level folders are buckets; nobody may change its files meanwhile
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Computed objects; repeatable. Options: :folders=N :width=N :suffix=TEXT
    #[arg(long, value_name = "BUCKET/PREFIX:COUNT:SIZE")]
    synthetic: Vec<SyntheticSet>,
    /// Accept only requests signed with this key; without it everybody may read
    #[arg(long, value_name = "KEY", requires = "secret_key")]
    access_key: Option<String>,
    /// The secret of the access key
    #[arg(long, value_name = "SECRET", requires = "access_key")]
    secret_key: Option<String>,
    /// The session token that requests must carry as well
    #[arg(long, value_name = "TOKEN", requires = "access_key")]
    session_token: Option<String>,
    /// Requests after which the session token has expired
    #[arg(long, value_name = "REQUESTS", requires = "session_token")]
    token_lasts: Option<u64>,
    /// The region that signatures must name
    #[arg(long, value_name = "REGION", default_value = "us-east-1")]
    region: String,
    /// BUCKET.DOMAIN in the Host header names a bucket, as BUCKET.localhost always does
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// At this address, counted from 0 as given, connections are refused, or accepted in silence;
    /// repeatable
    #[arg(long, value_name = "INDEX:refuses|silent", value_parser = parse_dead)]
    dead: Vec<(usize, DeadAddress)>,
    /// Set the origin's clock so far ahead of this machine's, or behind
    #[arg(long, value_name = "SECONDS", default_value = "0", allow_negative_numbers = true)]
    clock_offset: i64,
    /// Threads, each with its own ring
    #[arg(long, value_name = "N", default_value = "1")]
    workers: NonZeroUsize,
    /// Wait for this time before each answer, give or take a random time up to JITTER_MS
    #[arg(long, value_name = "MS[:JITTER_MS]", default_value = "0", value_parser = parse_latency)]
    first_byte_latency: (Duration, Duration),
    /// Send at this rate on each connection, e.g. 90MB
    #[arg(long, value_name = "BYTES/S", value_parser = parse_rate)]
    connection_rate: Option<NonZeroU64>,
    /// Send at this rate on all connections together, in equal shares, e.g. 1GB
    #[arg(long, value_name = "BYTES/S", value_parser = parse_rate)]
    capacity: Option<NonZeroU64>,
    /// Serve N requests a second on all connections together, of LIST too, and after a pause BURST
    /// at once (a tenth of N); answer those beyond with 503 SlowDown
    #[arg(long, value_name = "N[:BURST]")]
    requests_per_second: Option<RequestRate>,
    /// From START_MS after the first GET of an object, for LENGTH_MS, a neighbor takes PERCENT of
    /// --capacity and --requests-per-second
    #[arg(long, value_name = "START_MS:LENGTH_MS:PERCENT")]
    neighbor: Option<Neighbor>,
    /// Store a checksum with each object, of crc64nvme, crc32c, crc32, sha1, sha256, sha512, md5,
    /// xxhash64, xxhash3 or xxhash128, as if uploaded at once; or in parts: crc64nvme:8MiB of the
    /// whole, sha256:composite:8MiB
    #[arg(long, value_name = "ALGORITHM[:composite][:PARTSIZE]")]
    checksum: Option<ChecksumPolicy>,
    /// Make ETags of the MD5 of the content, as S3 does; each object is read once for it
    #[arg(long)]
    md5_etags: bool,
    /// Inject faults; profiles: bursts, corrupt, mild, mixed, none, overloaded, rare, rough, slow,
    /// stalled, strange, and tls with --tls
    #[arg(long, value_name = "SEED:PROFILE", default_value = "0:none")]
    faults: FaultPlan,
    /// Speak TLS, with a certificate for localhost, 127.0.0.1 and ::1
    #[arg(long, requires = "ca_out")]
    tls: bool,
    /// Write the authority of the certificate, made again at each start, into this file
    #[arg(long, value_name = "FILE", requires = "tls")]
    ca_out: Option<PathBuf>,
    /// Speak this version alone, 1.2 or 1.3; without it both
    #[arg(long, value_name = "VERSION", requires = "tls")]
    tls_version: Option<TlsVersions>,
    /// Show one that is good, expired, not-yet-valid, wrong-name, self-signed, a
    /// self-signed-authority or of an unknown-authority
    #[arg(long, value_name = "KIND", requires = "tls", default_value = "good")]
    tls_certificate: CertificateKind,
    /// Write the address into this file as soon as requests are answered
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Write into this file every 100 ms, and at the end, a line of numbers: milliseconds since the
    /// start, bytes sent, requests, and requests that were throttled
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
}

impl Arguments {
    fn config(self) -> Config {
        let credentials = self.access_key.zip(self.secret_key).map(|(access_key, secret_key)| {
            let credentials = Credentials::new(access_key, secret_key);
            match self.session_token {
                Some(token) => credentials.with_session_token(token),
                None => credentials,
            }
        });
        let credentials = credentials.map(|credentials| match self.token_lasts {
            Some(requests) => credentials.with_request_limit(requests),
            None => credentials,
        });
        Config {
            listen: self.listen,
            dead: self.dead.into_iter().collect(),
            clock_offset_seconds: self.clock_offset,
            workers: self.workers,
            root: self.root,
            synthetic: self.synthetic,
            credentials: credentials.into_iter().collect(),
            region: self.region,
            domain: self.domain,
            first_byte_latency: self.first_byte_latency.0,
            first_byte_jitter: self.first_byte_latency.1,
            connection_rate: self.connection_rate,
            capacity: self.capacity,
            request_rate: self.requests_per_second,
            neighbor: self.neighbor,
            checksum: self.checksum,
            md5_etags: self.md5_etags,
            faults: self.faults,
            tls: self.tls.then(|| TlsConfig {
                versions: self.tls_version.unwrap_or_default(),
                certificate: self.tls_certificate,
                ..TlsConfig::default()
            }),
            ..Config::default()
        }
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("inrush-origin: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let ready_file = arguments.ready_file.take();
    let ca_out = arguments.ca_out.take();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    // Before anybody can know the address, so that no signal is missed.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut samples = arguments.samples.take().map(|path| Samples::new(&path)).transpose()?;
    let origin = Origin::start(arguments.config())?;
    let scheme = if origin.ca_pem().is_some() { "https" } else { "http" };
    for address in origin.addresses() {
        eprintln!("listening on {scheme}://{address}");
    }
    // Before the address: who knows that knows whom to believe.
    if let Some((path, pem)) = ca_out.zip(origin.ca_pem()) {
        std::fs::write(path, pem)?;
    }
    if let Some(path) = &ready_file {
        // Whoever waits for the file must not see half of it.
        let partial = path.with_extension("partial");
        std::fs::write(&partial, format!("{}\n", origin.address()))?;
        std::fs::rename(&partial, path)?;
    }
    runtime.block_on(async {
        let sampling = async {
            match &mut samples {
                Some(samples) => samples.take_until_failed(&origin).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
            error = sampling => Err(error),
        }
    })?;
    let stats = origin.stop();
    if let Some(samples) = &mut samples {
        samples.write(&stats)?;
    }
    writeln!(io::stderr(), "{}", serde_json::to_string(&stats)?)?;
    Ok(())
}

/// What was sent by when.
struct Samples {
    file: File,
    started: Instant,
}

impl Samples {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::create(path)?, started: Instant::now() })
    }

    async fn take_until_failed(&mut self, origin: &Origin) -> io::Error {
        let mut ticks = tokio::time::interval(SAMPLE_TIME);
        // A line has its own time, so one that comes late is as true as another.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.write(&origin.stats()) {
                return error;
            }
        }
    }

    fn write(&mut self, stats: &Stats) -> io::Result<()> {
        let milliseconds = self.started.elapsed().as_millis();
        let Stats { bytes_sent, requests, throttled, .. } = stats;
        // One call for one line: whoever reads meanwhile sees whole lines.
        let line = format!("{milliseconds} {bytes_sent} {requests} {throttled}\n");
        self.file.write_all(line.as_bytes())
    }
}

fn parse_latency(text: &str) -> Result<(Duration, Duration), String> {
    let (usual, jitter) = text.split_once(':').unwrap_or((text, "0"));
    let time = |text: &str| match text.parse() {
        Ok(milliseconds) => Ok(Duration::from_millis(milliseconds)),
        Err(_) => Err(format!("'{text}' is not a number of milliseconds")),
    };
    match (time(usual)?, time(jitter)?) {
        (usual, jitter) if jitter > usual => Err("more jitter than latency".to_owned()),
        times => Ok(times),
    }
}

fn parse_dead(text: &str) -> Result<(usize, DeadAddress), String> {
    let (index, kind) = text.split_once(':').ok_or("expected INDEX:refuses or INDEX:silent")?;
    let index = index.parse().map_err(|_| format!("'{index}' is not a number"))?;
    match kind {
        "refuses" => Ok((index, DeadAddress::Refuses)),
        "silent" => Ok((index, DeadAddress::Silent)),
        _ => Err(format!("'{kind}' is neither refuses nor silent")),
    }
}

fn parse_rate(text: &str) -> Result<NonZeroU64, String> {
    let rate = parse_size(text).map_err(|error| error.to_string())?;
    NonZeroU64::new(rate).ok_or_else(|| "a rate of 0 would never send anything".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn arguments_are_sound() {
        Arguments::command().debug_assert();
        let arguments = Arguments::parse_from(["inrush-origin", "--connection-rate", "90MB"]);
        assert_eq!(arguments.config().connection_rate, NonZeroU64::new(90_000_000));
        let arguments = ["inrush-origin", "--dead", "1:silent", "--clock-offset", "-900"];
        let config = Arguments::parse_from(arguments).config();
        assert_eq!(config.dead.get(&1), Some(&DeadAddress::Silent));
        assert_eq!(config.clock_offset_seconds, -900);
        let words = ["inrush-origin", "--first-byte-latency", "30:10", "--capacity", "1GB"];
        let words = [&words[..], &["--requests-per-second", "20", "--neighbor", "1:2:3"]].concat();
        let config = Arguments::parse_from(words).config();
        let milliseconds = |time: Duration| time.as_millis();
        assert_eq!(milliseconds(config.first_byte_latency), 30);
        assert_eq!(milliseconds(config.first_byte_jitter), 10);
        assert_eq!(config.capacity, NonZeroU64::new(1_000_000_000));
        assert_eq!(config.request_rate.map(|rate| rate.burst.get()), Some(2));
        assert_eq!(config.neighbor.map(|neighbor| neighbor.percent), Some(3));
        for wrong in ["x", "1:", "1:2", ""] {
            assert!(parse_latency(wrong).is_err(), "{wrong}");
        }
        for wrong in ["1", "x:silent", "1:gone"] {
            assert!(parse_dead(wrong).is_err(), "{wrong}");
        }
    }
}
