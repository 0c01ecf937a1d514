//! Serves the channels of a command: starts all of them or none, and feeds each until its end.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::{JoinHandle, spawn_local};

use super::channel::{self, ChannelPlan, Running};
use super::report::StreamReport;
use super::supply::{EpochOrder, supply};
use crate::command::context::Context;
use crate::command::session::{self, Interrupts};
use crate::control::Control;
use crate::download::cancel::until;
use crate::engine::threads::Workers;
use crate::error::{Error, ErrorKind, Result};
use crate::report::progress::Progress;

/// Starts channels, or none of them: then returns the name of the failed one, and the error.
pub(in crate::command) fn start_channels(
    plans: impl Iterator<Item = ChannelPlan>,
    (context, engine): (&Arc<Context>, &Workers),
    begun: Instant,
) -> Result<Vec<Running>, (String, Error)> {
    let (mut channels, events) = (Vec::new(), Arc::default());
    for plan in plans {
        let name = plan.name.clone();
        match Running::start(plan, &events, (context, engine), begun) {
            Ok(running) => channels.push(running),
            Err(error) => {
                abandon(&mut channels);
                return Err((name, error));
            }
        }
    }
    Ok(channels)
}

/// Begins to feed a channel with its objects.
pub(in crate::command) fn spawn_supply(
    control: &Rc<Control>,
    channel: &mut Running,
    order: EpochOrder,
) -> JoinHandle<()> {
    let (control, feed) = (Rc::clone(control), Arc::clone(&channel.feed));
    let (wanted, opening) = (channel.wanted.clone(), channel.opening.take());
    spawn_local(async move {
        if let Err(error) = supply(&control, &wanted, &feed, order, opening).await {
            feed.stop(error);
        }
    })
}

/// Asks all channels to end.
pub(in crate::command) fn stop_all(channels: &[Running]) {
    for channel in channels {
        channel.feed.stop(Error::new(ErrorKind::Interrupted, "stopped"));
    }
}

/// Stops all channels and waits until all their pipes are removed.
pub(super) fn abandon(channels: &mut [Running]) {
    stop_all(channels);
    for channel in channels {
        // The cause was already printed.
        let _ = channel.join();
    }
}

/// Feeds all channels until each has ended, or a signal comes. The last failure is printed and
/// returned.
pub(super) async fn serve(
    control: &Rc<Control>,
    engine: &Workers,
    channels: &mut [Running],
    order: EpochOrder,
    interrupts: &mut Interrupts,
    (progress, report): (&Progress, &mut StreamReport),
) -> Option<Error> {
    let supplies: Vec<_> =
        channels.iter_mut().map(|channel| spawn_supply(control, channel, order)).collect();
    let refresh = spawn_local(session::refresh(Rc::clone(control)));
    let (deadline, mut interrupted, mut late) = (interrupts.deadline(), false, None);
    while let Some(channel) = channels.iter().find(|channel| !channel.has_ended()) {
        if let Some(reason) = engine.lost() {
            channels.iter().for_each(|channel| channel.feed.stop(reason.clone()));
        }
        control.board().set_range(engine.longest_wait());
        let events = Arc::clone(&channel.events);
        tokio::select! {
            () = interrupts.next() => {
                // A channel that has already failed at most holds its reader: its own exit code
                // counts.
                let mut running = channels.iter().filter(|channel| !channel.has_ended());
                interrupted |= running.any(|channel| !channel.feed.is_stopped());
                stop_all(channels);
            }
            () = until(deadline), if late.is_none() => {
                control.board().set_range(engine.longest_wait());
                late = Some(interrupts.context().blame());
                stop_all(channels);
            }
            () = report.wait(&events, engine, progress) => {}
        }
        report.take(channels, progress);
        channel::show(channels, engine.progress().bytes, progress);
        for (channel, supply) in channels.iter_mut().zip(&supplies) {
            if let Some(error) = channel.failure() {
                supply.abort();
                channel.print(error, progress);
            }
        }
    }
    progress.finish();
    control.board().set_range(None);
    refresh.abort();
    supplies.iter().for_each(JoinHandle::abort);
    let mut failed = None;
    for channel in channels.iter_mut() {
        let outcome = channel.join().and_then(|()| channel.failure().map_or(Ok(()), Err));
        if let Err(error) = outcome {
            channel.print(error.clone(), progress);
            failed = Some(error);
        }
    }
    report.take_rest(channels, progress);
    let ended_by = early_end(channels, (interrupted, late));
    ended_by.inspect(|error| progress.error(error)).or(failed)
}

/// The cause of an end before the streams were complete, if any.
fn early_end(channels: &[Running], (interrupted, late): (bool, Option<String>)) -> Option<Error> {
    let left = channel::left(channels);
    match (interrupted, late) {
        (true, _) => Some(Error::new(ErrorKind::Interrupted, format!("interrupted: {left}"))),
        (false, Some(blame)) => {
            let passed = format!("the deadline has passed: {left}{blame}");
            Some(Error::new(ErrorKind::Deadline, passed))
        }
        (false, None) => None,
    }
}
