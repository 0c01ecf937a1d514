//! What the commands share: a control plane made of options, and its upkeep while it is used.

use std::num::NonZeroU64;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};

use super::aside::aside;
use super::interrupts;
pub(super) use super::interrupts::Interrupts;
use crate::cli::{self, ServiceArgs};
use crate::control::credentials::CredentialSource;
use crate::control::customer_key::customer_key;
use crate::control::endpoint::AddressingStyle;
use crate::control::interfaces::named;
use crate::control::tls::Trust;
pub(super) use crate::control::upkeep::upkeep;
use crate::control::{Control, ControlOptions, Settings};
use crate::engine::pace::{Bandwidth, part_bytes};
use crate::error::Result;
use crate::limits::{RETRY_FOR_US, WAIT_LOOK_US, WAIT_REST_LOOK_US};
use crate::link::attempt::{RetryPolicy, Timeouts};
use crate::link::waiting::Board;
use crate::report::progress::{Progress, Teller};
use crate::s3::headers::CustomerKey;
use crate::s3::proxy::Proxies;
use crate::s3::uri::S3Uri;

/// How often it is looked at what is waited for.
const WAIT_LOOK: Duration = Duration::from_micros(WAIT_LOOK_US);
const WAIT_REST_LOOK: Duration = Duration::from_micros(WAIT_REST_LOOK_US);

/// Where these options say that keys come from.
pub(super) fn credentials(args: &ServiceArgs) -> CredentialSource {
    match args.no_sign_request {
        true => CredentialSource::Anonymous,
        false => CredentialSource::Chain,
    }
}

/// The control plane that these options ask for.
pub(super) async fn control(
    args: &ServiceArgs,
    credentials: CredentialSource,
    progress: &Progress,
) -> Result<Rc<Control>> {
    control_with(args, credentials, progress, None).await
}

/// The same, with what environment and profile say where that was read before.
pub(super) async fn control_with(
    args: &ServiceArgs,
    credentials: CredentialSource,
    progress: &Progress,
    settings: Option<Result<Arc<Settings>>>,
) -> Result<Rc<Control>> {
    // Who brings keys brings all: the demo asks neither environment nor profile.
    let alone = matches!(credentials, CredentialSource::Fixed(_)).then_some(false);
    let (mut waits, retries) = (Waits::of(progress), retries(args, 1));
    let key = async {
        match alone {
            Some(_) => Ok(None),
            None => key_of(args).await,
        }
    };
    let customer_key = waits.during(key).await?;
    let options = ControlOptions {
        endpoint_url: args.endpoint_url.clone(),
        region: args.region.clone(),
        profile: args.profile.clone(),
        addressing: match args.addressing_style {
            cli::AddressingStyle::Auto => AddressingStyle::Auto,
            cli::AddressingStyle::Path => AddressingStyle::Path,
            cli::AddressingStyle::Virtual => AddressingStyle::Virtual,
        },
        credentials,
        trust: trust(args),
        dualstack: args.use_dualstack_endpoint.then_some(true).or(alone),
        fips: args.use_fips_endpoint.then_some(true).or(alone),
        sessions: alone,
        retry_for_us: retries.retry_for_us,
        timeouts: retries.timeouts,
        board: Arc::clone(&waits.board),
        list_requests: args.list_requests,
        requester_pays: args.request_payer.is_some(),
        customer_key,
        interfaces: named(&args.interface)?,
        settings,
        proxies: match alone {
            Some(_) => Proxies::default(),
            None => Proxies::from_variables(|name| std::env::var_os(name)),
        },
    };
    // Credentials are waited for here already.
    let control = Rc::new(waits.during(Control::new(options)).await?);
    if args.no_verify_ssl && control.is_tls() {
        progress.warn(
            "certificates are not verified (--no-verify-ssl): anyone on the network path can \
             read and change the data",
        );
    }
    control.hint().into_iter().for_each(|hint| progress.note(hint));
    tell_waits(&control, waits);
    Ok(control)
}

/// What environment and profile say.
pub(super) async fn settings(args: &ServiceArgs, progress: &Progress) -> Result<Arc<Settings>> {
    let mut waits = Waits::of(progress);
    let load = Settings::load(args.profile.clone(), Arc::clone(&waits.board));
    waits.during(load).await.map(Arc::new)
}

/// The customer's key of SSE-C, whose file may be a pipe that nobody writes to.
async fn key_of(args: &ServiceArgs) -> Result<Option<CustomerKey>> {
    let path = args.sse_c_key_file.clone();
    let _noted = path.as_deref().map(interrupts::reads);
    aside(move || customer_key(path.as_deref())).await
}

/// Reports what is waited for.
struct Waits {
    teller: Teller,
    /// When the control plane began, by whose clock the board goes.
    begun: Instant,
    board: Arc<Board>,
}

impl Waits {
    /// Makes this board the one from which an interrupt or a deadline names what was waited for.
    fn of(progress: &Progress) -> Self {
        let board = Arc::<Board>::default();
        interrupts::waits_for(Arc::clone(&board));
        Self { teller: progress.teller(), begun: Instant::now(), board }
    }

    /// Runs `work`, and reports every [`WAIT_LOOK`] what it waits for.
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            match timeout(WAIT_LOOK, &mut work).await {
                Ok(done) => return done,
                Err(_) => self.look(),
            }
        }
    }

    fn look(&mut self) {
        let now_us = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.teller.look(now_us, self.board.longest(now_us));
    }
}

/// Tells what is waited for from here on, as long as the control plane is there.
fn tell_waits(control: &Rc<Control>, mut waits: Waits) {
    let control = Rc::downgrade(control);
    spawn_local(async move {
        loop {
            let pause = if waits.board.is_empty() { WAIT_REST_LOOK } else { WAIT_LOOK };
            tokio::time::sleep(pause).await;
            let Some(control) = control.upgrade() else { return };
            waits.look();
            super::exporter::show_control_retries(control.retries().iter().sum());
        }
    });
}

/// How long a range is tried again, and waited for.
pub(super) fn retries(args: &ServiceArgs, attempts_max: u32) -> RetryPolicy {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let connect_us = args.connect_timeout.map(micros);
    let timeouts = Timeouts { connect_us, read_us: args.read_timeout.map(micros) };
    let retry_for_us = args.retry_for.map_or(RETRY_FOR_US, micros);
    RetryPolicy { attempts_max, retry_for_us, timeouts }
}

/// What the user bounds of the bytes a second.
pub(super) fn bandwidth(limit: Option<NonZeroU64>) -> Option<Arc<Bandwidth>> {
    limit.map(|bytes_per_second| Arc::new(Bandwidth::new(bytes_per_second)))
}

/// How long parts are: as the user says, else short ones within a bound.
pub(super) fn part_size(given: Option<u64>, limit: Option<NonZeroU64>) -> Option<u64> {
    given.or(limit.map(part_bytes))
}

/// The configuration of TLS for the data plane, where one of these buckets is served over it.
pub(super) async fn tls(
    control: &Control,
    sources: impl IntoIterator<Item = &S3Uri>,
) -> Result<Option<Arc<ClientConfig>>> {
    for uri in sources {
        if control.endpoint(&uri.bucket).await?.tls {
            return control.tls_config().map(Some);
        }
    }
    Ok(None)
}

/// Whose certificates are trusted, as the options say. Believing everyone is said on every run
/// that uses TLS, whatever is quiet.
fn trust(args: &ServiceArgs) -> Trust {
    if args.no_verify_ssl {
        return Trust::Anyone;
    }
    args.ca_bundle.clone().map_or(Trust::System, Trust::Bundle)
}

/// As many descriptors as this process may have: small ones suffice, many small files need more.
pub(super) fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused the limit stays; running out of descriptors is a named error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
