//! What the commands share: a control plane made of options, its upkeep while it is used, and
//! signals.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::catalog::credentials::CredentialSource;
use crate::catalog::endpoint::AddressingStyle;
use crate::catalog::{Control, ControlOptions, limits};
use crate::cli::{self, ServiceArgs};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::Endpoint;

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
) -> Result<Rc<Control>> {
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
        ..ControlOptions::default()
    };
    Ok(Rc::new(Control::new(options).await?))
}

/// Keeps credentials and addresses fresh, for as long as it is polled.
pub(super) async fn upkeep(control: Rc<Control>, endpoints: Vec<Arc<Endpoint>>) {
    let mut rounds = 0u32;
    loop {
        tokio::time::sleep(Duration::from_secs(limits::UPKEEP_SECONDS)).await;
        // What fails now is tried again next time; requests say what is wrong, if anything is.
        let _ = control.refresh_if_needed(crate::catalog::now()).await;
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(limits::UPKEEP_ROUNDS_PER_LOOKUP) {
            for endpoint in &endpoints {
                let _ = control.refresh_addresses(endpoint).await;
            }
        }
    }
}

/// Ctrl-C and SIGTERM, listened to from here on: until then they end the process at once.
#[derive(Debug)]
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Listens; it must run inside the runtime.
    pub(super) fn listen() -> Result<Self> {
        let listen = |kind| {
            let trouble = |error| format!("cannot listen for signals: {error}");
            signal(kind).map_err(|error| Error::new(ErrorKind::Host, trouble(error)))
        };
        let interrupt = listen(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for one of them; may be dropped and asked again.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Does this, which writes nothing, unless it is interrupted.
    pub(super) async fn unless<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            () = self.next() => Err(Error::new(
                ErrorKind::Interrupted,
                "interrupted before anything was fetched",
            )),
            done = work => done,
        }
    }
}
