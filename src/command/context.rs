//! What the parts of one command share: made when it begins, and handed on. Nothing of it is the
//! process's, so a command within another one, and a test, have their own.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use super::Hosted;
use super::ending::{DocumentOutput, OutputReader};
use super::exporter::Exported;
use super::train::child::RunningCommand;
use crate::link::waiting::Board;
use crate::report::progress::Messages;

/// Describes the state that a process leaves when it ends without its run.
type Left = Box<dyn Fn() -> String + Send>;

/// What the parts of a command share.
#[derive(Default)]
pub(super) struct Context {
    /// How its messages look.
    pub(super) messages: Messages,
    /// Its document for programs.
    pub(super) document: DocumentOutput,
    /// The waits that an interruption and a passed deadline name.
    pub(super) board: Arc<Board>,
    pub(super) exported: Exported,
    /// The command that it runs.
    pub(super) child: RunningCommand,
    /// The program that it is in.
    pub(super) hosted: Option<Hosted>,
    /// Its runtime has a ring; without one files are written by helper threads.
    pub(super) has_ring: AtomicBool,
    /// The thread that ends the process if its run does not was started.
    pub(super) is_guarded: AtomicBool,
    /// The reason for not using io_uring was printed.
    pub(super) is_fallback_reported: AtomicBool,
    left: Mutex<Option<Left>>,
}

impl Context {
    pub(super) fn new(messages: Messages, reader: OutputReader, hosted: Option<Hosted>) -> Self {
        let document = DocumentOutput::new(reader);
        Self { messages, document, hosted, ..Self::default() }
    }

    /// Registers the description of blocked calls and the state left, for a process that must end
    /// without its run. It must not block.
    pub(super) fn leaves(&self, describe: impl Fn() -> String + Send + 'static) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(describe));
    }

    /// What a process leaves that ends now, without its run.
    pub(super) fn left(&self) -> String {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let nothing_known = || "a system call has not returned".to_owned();
        left.as_ref().map_or_else(nothing_known, |describe| describe())
    }

    /// The current wait, as a suffix of a message.
    pub(super) fn blame(&self) -> String {
        let wait = self.board.oldest();
        wait.map(|wait| format!(": {}", wait.blame())).unwrap_or_default()
    }
}
