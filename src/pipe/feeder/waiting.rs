//! For whom the stream waits, for those who tell it.

use super::line::{LineState, Pending};
use super::{Feeder, Piece};
use crate::host::PipeHost;
use crate::limits::{WAIT_LOOK_US, WAIT_TOLD_AFTER_US};
use crate::sys::Ring;
use crate::waiting::Wait;

impl<R: Ring, H: PipeHost> Feeder<R, H> {
    /// Shows what the head of the stream waits for: nothing else keeps its reader waiting.
    pub(super) fn show_waiting(&mut self) {
        if self.now_us < self.wait_look_us {
            return;
        }
        self.wait_look_us = self.now_us + WAIT_LOOK_US;
        let wait = self.head_wait();
        self.feed.show_wait(wait);
    }

    fn head_wait(&self) -> Option<Wait> {
        let Some(Piece::Line(index)) = self.window.front() else { return None };
        let line = &self.lines[*index];
        let transfer = line.transfer.as_ref()?;
        let pauses = matches!(line.state, LineState::Backoff { .. });
        if line.in_pipe > 0 || !pauses && line.pending == Pending::None {
            return None;
        }
        let since_us = line.attempts.failing_since_us().unwrap_or(line.submitted_us);
        let elapsed_us = self.now_us.saturating_sub(since_us);
        (elapsed_us >= WAIT_TOLD_AFTER_US).then(|| Wait {
            whom: transfer.endpoint.host.clone(),
            what: format!("to answer GET {}", transfer.name()),
            tries: line.attempts.tries(),
            elapsed_us,
            retry_for_us: self.retries.retry_for_us,
            why: line.last_failure.map_or_else(String::new, |failure| failure.to_string()),
        })
    }
}
