//! The channels in File mode: complete before the command starts.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use rustls::ClientConfig;

use super::super::get::{self, Ended, Intake, Shown};
use super::super::session::Interrupts;
use super::super::target::Target;
use super::input::{self, Sources};
use super::layout::Layout;
use crate::cli::{Destination, FailureArgs, GetArgs, SelectionArgs, TrainArgs};
use crate::control::Control;
use crate::control::channel::ChannelSource;
use crate::engine::config::{Config, HostFacts};
use crate::error::Result;
use crate::plan::epoch::Shard;
use crate::report::document::Summary;
use crate::report::progress::Progress;
use crate::train::{Channel, TrainingInput};

/// What the downloads need of the run.
pub(super) struct Downloads<'a> {
    pub(super) args: &'a TrainArgs,
    pub(super) input: &'a TrainingInput,
    pub(super) layout: &'a Layout,
    pub(super) sources: Sources,
    pub(super) control: Rc<Control>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) begun: Instant,
    /// Nothing but errors is told: the command runs already.
    pub(super) is_quiet: bool,
}

impl Downloads<'_> {
    /// Downloads the channels in File mode, one after the other; adds what each came to.
    ///
    /// # Errors
    /// Of the first channel that is not complete; it is on standard error already where `is_told`
    /// was set.
    pub(super) async fn run(
        &self,
        interrupts: &mut Interrupts,
        summaries: &mut Vec<(String, Summary)>,
    ) -> Result<(), (crate::error::Error, bool)> {
        for (channel, source) in input::of_objects(self.input, &self.sources, false) {
            let label = format!("channel {}", channel.name);
            let ended = self.download((channel, source), label.clone(), interrupts).await;
            let ended = ended.map_err(|error| (error.within(&label), false))?;
            let Ended { summary, error, .. } = ended;
            summaries.extend(summary.map(|summary| (channel.name.clone(), summary)));
            if let Some(error) = error {
                return Err((error.within(&label), true));
            }
        }
        Ok(())
    }

    async fn download(
        &self,
        (channel, source): (&Channel, &ChannelSource),
        label: String,
        interrupts: &mut Interrupts,
    ) -> Result<Ended> {
        let Self { args, control, .. } = self;
        let target = Target::Folder(self.layout.channel(channel));
        let config = Config::resolve(get::options(&args.tuning)?, HostFacts::read())?;
        let found = async {
            let walk = control.walk_channels(std::slice::from_ref(source)).await?;
            let present = target.present().await;
            Ok((walk, present))
        };
        let (walk, present) = interrupts.unless(found).await?;
        let (control, tls) = (Rc::clone(control), self.tls.clone());
        let found = Intake { control, tls, target, present, walk, mirror: None };
        let progress = Progress::new(!args.output.quiet && !self.is_quiet);
        let shown = Shown { progress, label: Some(label) };
        // The times of a channel are its own.
        let begun = self.begun + self.begun.elapsed();
        get::fetch(found, &self.as_get(channel), config, shown, interrupts, begun).await
    }

    /// What one would have typed after `get`.
    fn as_get(&self, channel: &Channel) -> GetArgs {
        let args = self.args;
        GetArgs {
            sync: None,
            // The walk is of this host's part alone.
            shard: Shard::WHOLE,
            sources: Vec::new(),
            destination: Destination::Local(self.layout.channel(channel)),
            dry_run: false,
            verify: args.verify,
            report: None,
            stats: args.stats,
            keep: args.keep,
            selection: SelectionArgs::default(),
            service: args.service.clone(),
            tuning: args.tuning.clone(),
            failures: FailureArgs::default(),
            output: args.output,
        }
    }
}
