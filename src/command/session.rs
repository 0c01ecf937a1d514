//! The commands' common part: a control plane from options, and its background tasks.

use std::future::poll_fn;
use std::num::NonZeroU64;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};

use super::context::Context;
pub(super) use super::interrupts::{Hangups, Interrupts};
use crate::cli::{self, ServiceArgs};
use crate::control::auth::credentials::CredentialSource;
use crate::control::auth::customer_key::customer_key;
use crate::control::auth::grants::AccessGrants;
use crate::control::blocking::blocking;
use crate::control::dns::interfaces::named;
use crate::control::endpoint::AddressingStyle;
pub(super) use crate::control::refresh::refresh;
use crate::control::tls::Trust;
use crate::control::{Control, ControlOptions, Settings};
use crate::download::sources::note_read;
use crate::engine::pace::part_bytes;
use crate::error::Result;
use crate::limits::{RETRY_FOR_US, WAIT_LOOK_US};
use crate::link::attempt::{RetryPolicy, Timeouts};
use crate::link::waiting::Board;
use crate::report::progress::{Progress, WaitReporter};
use crate::s3::headers::CustomerKey;
use crate::s3::proxy::Proxies;
use crate::s3::uri::S3Uri;

/// Interval of the checks for waits.
const WAIT_LOOK: Duration = Duration::from_micros(WAIT_LOOK_US);

/// The source of credentials by these options.
pub(super) fn credentials(args: &ServiceArgs) -> CredentialSource {
    match args.no_sign_request {
        true => CredentialSource::Anonymous,
        false => CredentialSource::Chain,
    }
}

/// None are looked for if all sources are URLs, whose requests are not signed; otherwise the given
/// ones.
pub(super) fn credentials_for(
    sources: &[S3Uri],
    args: &mut ServiceArgs,
    given: CredentialSource,
) -> CredentialSource {
    if sources.is_empty() || sources.iter().any(|source| source.url.is_none()) {
        return given;
    }
    args.access_grants = None;
    CredentialSource::OfUrls
}

/// The control plane by these options.
pub(super) async fn control(
    args: &ServiceArgs,
    credentials: CredentialSource,
    (context, progress): (&Arc<Context>, &Progress),
) -> Result<Rc<Control>> {
    control_with(args, credentials, (context, progress), None).await
}

/// The control plane by these options, with settings that were read earlier.
pub(super) async fn control_with(
    args: &ServiceArgs,
    credentials: CredentialSource,
    (context, progress): (&Arc<Context>, &Progress),
    settings: Option<Result<Arc<Settings>>>,
) -> Result<Rc<Control>> {
    // Given credentials exclude everything else: the demo reads neither environment nor profile.
    let alone = matches!(credentials, CredentialSource::Fixed(_)).then_some(false);
    let (mut waits, retries) = (WaitWatch::of(context, progress), retries(args, 1));
    let key = async {
        match alone {
            Some(_) => Ok(None),
            None => key_of(args, &context.board).await,
        }
    };
    let customer_key = waits.during(key).await?;
    let options = ControlOptions {
        endpoint_url: args.endpoint_url.clone(),
        region: args.region.clone(),
        profile: args.profile.clone(),
        addressing: args.addressing_style.map(|style| match style {
            cli::AddressingStyle::Auto => AddressingStyle::Auto,
            cli::AddressingStyle::Path => AddressingStyle::Path,
            cli::AddressingStyle::Virtual => AddressingStyle::Virtual,
        }),
        credentials,
        trust: trust(args),
        dualstack: args.use_dualstack_endpoint.then_some(true).or(alone),
        fips: args.use_fips_endpoint.then_some(true).or(alone),
        sessions: alone,
        access_grants: args.access_grants.filter(|_| alone.is_none()).map(|mode| match mode {
            cli::AccessGrantsMode::Only => AccessGrants::Only,
            cli::AccessGrantsMode::Fallback => AccessGrants::Fallback,
        }),
        retry_for_us: retries.retry_for_us,
        timeouts: retries.timeouts,
        board: Arc::clone(&context.board),
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
    // This already waits for credentials.
    let control = Rc::new(waits.during(Control::new(options)).await?);
    if args.no_verify_ssl && control.is_tls() {
        progress.warn(
            "certificates are not verified (--no-verify-ssl): anyone on the network path can \
             read and change the data",
        );
    }
    control.hint().into_iter().for_each(|hint| progress.note(hint));
    report_waits(&control, waits);
    Ok(control)
}

/// The settings of environment and profile.
pub(super) async fn settings(
    args: &ServiceArgs,
    (context, progress): (&Arc<Context>, &Progress),
) -> Result<Arc<Settings>> {
    let mut waits = WaitWatch::of(context, progress);
    let load = Settings::load(args.profile.clone(), Arc::clone(&context.board));
    waits.during(load).await.map(Arc::new)
}

/// The customer's key of SSE-C, whose file may be a pipe without a writer.
async fn key_of(args: &ServiceArgs, board: &Arc<Board>) -> Result<Option<CustomerKey>> {
    let path = args.sse_c_key_file.clone();
    let _noted = path.as_deref().map(|path| note_read(path, board));
    blocking(move || customer_key(path.as_deref())).await
}

/// Reports waits.
struct WaitWatch {
    wait_reporter: WaitReporter,
    /// Time at which the control plane began, the zero of the board's clock.
    begun: Instant,
    context: Arc<Context>,
}

impl WaitWatch {
    fn of(context: &Arc<Context>, progress: &Progress) -> Self {
        let (wait_reporter, context) = (progress.wait_reporter(), Arc::clone(context));
        Self { wait_reporter, begun: Instant::now(), context }
    }

    /// Runs `work`, and checks its waits every [`WAIT_LOOK`].
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
        self.wait_reporter.look(now_us, self.context.board.longest(now_us));
    }
}

/// Reports waits from here on, while the control plane exists.
fn report_waits(control: &Rc<Control>, mut waits: WaitWatch) {
    let control = Rc::downgrade(control);
    spawn_local(async move {
        loop {
            // After the last wait has ended it looks once more, and takes back what it has shown.
            poll_fn(|task| waits.context.board.poll_wait(task)).await;
            tokio::time::sleep(WAIT_LOOK).await;
            let Some(control) = control.upgrade() else { return };
            waits.look();
            waits.context.exported.show_control_retries(control.retries().iter().sum());
        }
    });
}

/// The retry policy and timeouts of a range.
pub(super) fn retries(args: &ServiceArgs, attempts_max: u32) -> RetryPolicy {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let connect_us = args.connect_timeout.map(micros);
    let timeouts = Timeouts { connect_us, read_us: args.read_timeout.map(micros) };
    let retry_for_us = args.retry_for.map_or(RETRY_FOR_US, micros);
    RetryPolicy { attempts_max, retry_for_us, timeouts }
}

/// The part size: the user's, else a short one within a bandwidth limit.
pub(super) fn part_size(given: Option<u64>, limit: Option<NonZeroU64>) -> Option<u64> {
    given.or(limit.map(part_bytes))
}

/// The trusted certificates by these options. A warning about disabled verification is printed by
/// every run with TLS, also by quiet ones.
fn trust(args: &ServiceArgs) -> Trust {
    if args.no_verify_ssl {
        return Trust::Anyone;
    }
    args.ca_bundle.clone().map_or(Trust::System, Trust::Bundle)
}
