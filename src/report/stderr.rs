//! Standard error of a process that does not wait for its reader.
//!
//! Messages are queued, and a thread writes them in order: a reader that hangs (a full pipe, a
//! stopped terminal, a file on a frozen file system) stops only that thread. If the queue is full
//! its oldest lines are dropped and counted, so the last ones remain: the summary, or an error.
//! `finish` must be called at the end.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};
use std::os::fd::BorrowedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anstream::{AutoStream, ColorChoice};
use indicatif::{ProgressDrawTarget, TermLike};

use crate::sys::descriptor::write_all;

/// Most bytes that are queued: some ten thousand lines. Only a single message may be longer.
const QUEUED_BYTES_MAX: usize = 1 << 20;

/// No bar is drawn while this many drawings are queued, those of a second.
const QUEUED_DRAWINGS_MAX: usize = 20;

/// Most drawings of a bar per second, as of [`ProgressDrawTarget::stderr`].
const DRAWINGS_PER_SECOND: u8 = 20;

/// Longest time that a process waits at its end until its last messages are written.
pub(crate) const FINISH_TIME: Duration = Duration::from_secs(5);

/// A process has one standard error: any thread writes its lines here, and the end of the process
/// waits for them.
static QUEUE: Queue = Queue::new(rustix::stdio::stderr, dropped);

/// Writes a line. Only a terminal gets colours, and none with `NO_COLOR`.
pub(crate) fn line(text: &str) {
    let line = match AutoStream::choice(&io::stderr()) {
        ColorChoice::Never => format!("{}\n", anstream::adapter::strip_str(text)),
        _ => format!("{text}\n"),
    };
    QUEUE.push(Message { text: line, is_line: true });
}

/// Waits at most this long until all messages are written.
pub(crate) fn flush(time: Duration) {
    QUEUE.flush(time);
}

/// Ends the thread, and waits at most [`FINISH_TIME`] until all messages are written.
pub(crate) fn finish() {
    QUEUE.finish(FINISH_TIME);
}

/// Makes all further lines JSON.
pub(crate) fn use_json_lines() {
    QUEUE.lock().is_json = true;
}

/// A line for programs, if lines are JSON.
pub(crate) fn as_json(level: &str, message: &str) -> Option<String> {
    QUEUE.lock().is_json.then(|| json_line(level, message, now()))
}

fn json_line(level: &str, message: &str, at: SystemTime) -> String {
    let time = humantime::format_rfc3339_millis(at).to_string();
    serde_json::json!({ "time": time, "level": level, "message": message }).to_string()
}

#[expect(clippy::disallowed_methods, reason = "lines for programs say when they were written")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// The line about dropped lines.
fn dropped(count: u64) -> String {
    let message = format!("{count} lines were dropped: standard error was not read");
    let line = as_json("warning", &message);
    format!("{}\n", line.unwrap_or_else(|| format!("warning: {message}")))
}

#[derive(Debug)]
struct Message {
    text: String,
    /// It is counted when it is dropped.
    is_line: bool,
}

/// Messages for a descriptor.
#[derive(Debug)]
struct Queue {
    target: fn() -> BorrowedFd<'static>,
    /// Makes the line about this many dropped lines.
    dropped: fn(u64) -> String,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState {
    messages: VecDeque<Message>,
    /// Length of the queued messages together.
    bytes: usize,
    drawings: usize,
    /// Lines that were dropped before the first queued message.
    dropped: u64,
    has_thread: bool,
    is_writing: bool,
    /// The thread ends when the queue is empty.
    ends: bool,
    /// Lines are for programs.
    is_json: bool,
}

impl QueueState {
    fn take(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.text.len();
        self.drawings -= usize::from(!message.is_line);
        Some(message)
    }

    fn is_busy(&self) -> bool {
        self.is_writing || !self.messages.is_empty()
    }
}

impl Queue {
    const fn new(target: fn() -> BorrowedFd<'static>, dropped: fn(u64) -> String) -> Self {
        let state = QueueState {
            messages: VecDeque::new(),
            bytes: 0,
            drawings: 0,
            dropped: 0,
            has_thread: false,
            is_writing: false,
            ends: false,
            is_json: false,
        };
        Self { target, dropped, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message; drops the oldest ones if there is no space.
    fn push(&'static self, message: Message) {
        let mut state = self.lock();
        if !state.has_thread {
            let thread = std::thread::Builder::new().name("inrush-stderr".to_owned());
            if thread.spawn(|| self.write_queued()).is_err() {
                // The system has no thread left.
                drop(state);
                return self.write(&message.text);
            }
            (state.has_thread, state.ends) = (true, false);
        }
        state.bytes += message.text.len();
        state.drawings += usize::from(!message.is_line);
        state.messages.push_back(message);
        while state.bytes > QUEUED_BYTES_MAX && state.messages.len() > 1 {
            let oldest = state.take();
            state.dropped += u64::from(oldest.is_some_and(|oldest| oldest.is_line));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The thread that writes.
    fn write_queued(&self) {
        let mut state = self.lock();
        loop {
            let is_idle = |state: &mut QueueState| state.messages.is_empty() && !state.ends;
            state = self.changed.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner);
            let dropped = std::mem::take(&mut state.dropped);
            let Some(message) = state.take() else {
                state.has_thread = false;
                return;
            };
            state.is_writing = true;
            drop(state);
            if dropped > 0 {
                self.write(&(self.dropped)(dropped));
            }
            self.write(&message.text);
            state = self.lock();
            state.is_writing = false;
            self.changed.notify_all();
        }
    }

    /// Each message in one call, so that a line stays whole beside those of other processes.
    fn write(&self, text: &str) {
        // If it fails there is nowhere to report that.
        let _ = write_all((self.target)(), text.as_bytes());
    }

    fn flush(&self, time: Duration) {
        let is_busy = |state: &mut QueueState| state.is_busy();
        drop(self.changed.wait_timeout_while(self.lock(), time, is_busy));
    }

    fn finish(&self, time: Duration) {
        self.flush(time);
        self.lock().ends = true;
        self.changed.notify_all();
    }
}

/// Draws on the terminal of standard error, if it is one.
pub(crate) fn draw_target() -> ProgressDrawTarget {
    let direct = ProgressDrawTarget::stderr();
    if direct.is_hidden() || !io::stderr().is_terminal() {
        return direct;
    }
    ProgressDrawTarget::term_like_with_hz(Box::<Terminal>::default(), DRAWINGS_PER_SECOND)
}

/// True if drawings are not written as fast as they come.
pub(crate) fn is_behind() -> bool {
    QUEUE.lock().drawings >= QUEUED_DRAWINGS_MAX
}

/// The terminal of standard error. A drawing is one message.
#[derive(Debug, Default)]
struct Terminal {
    drawing: Mutex<String>,
}

impl Terminal {
    fn add(&self, parts: &[&str]) -> io::Result<()> {
        let mut drawing = self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        drawing.extend(parts.iter().copied());
        Ok(())
    }

    /// Moves the cursor this far (ECMA-48, CUU to CUB).
    fn move_cursor(&self, n: usize, direction: &str) -> io::Result<()> {
        match n {
            0 => Ok(()),
            n => self.add(&["\x1b[", &n.to_string(), direction]),
        }
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        size().0
    }

    fn height(&self) -> u16 {
        size().1
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, "A")
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, "B")
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, "C")
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, "D")
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.add(&[text, "\n"])
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.add(&[text])
    }

    fn clear_line(&self) -> io::Result<()> {
        self.add(&["\r\x1b[2K"])
    }

    fn flush(&self) -> io::Result<()> {
        let drawing = &mut *self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        if !drawing.is_empty() {
            QUEUE.push(Message { text: std::mem::take(drawing), is_line: false });
        }
        Ok(())
    }
}

/// Columns and lines of a terminal that does not report its size.
const SIZE_DEFAULT: (u16, u16) = (80, 24);

/// Columns and lines of the terminal on standard error.
pub(crate) fn size() -> (u16, u16) {
    let size = terminal_size::terminal_size_of(io::stderr());
    size.map_or(SIZE_DEFAULT, |(width, height)| (width.0, height.0))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::sync::OnceLock;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    fn numbered(number: u64) -> Message {
        // Some of them fill a pipe, and many more the queue.
        Message { text: format!("{number:<1000}\n"), is_line: true }
    }

    #[test]
    fn a_reader_that_hangs_stops_nobody_and_gets_the_last_lines() {
        static WRITER: OnceLock<OwnedFd> = OnceLock::new();
        static FULL: Queue = Queue::new(
            || WRITER.get().expect("it is set").as_fd(),
            |count| format!("dropped {count}\n"),
        );
        const LINES: u64 = 4000;
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        WRITER.set(writer.into()).expect("once");
        for number in 0..LINES {
            FULL.push(numbered(number));
        }
        assert!(FULL.lock().bytes <= QUEUED_BYTES_MAX);
        FULL.flush(Duration::ZERO);
        let reading = std::thread::spawn(move || {
            let (mut next, mut dropped) = (0, 0);
            let mut text = String::new();
            let mut piece = [0; 4096];
            while next < LINES {
                let length = reader.read(&mut piece).expect("a pipe");
                text.push_str(std::str::from_utf8(&piece[..length]).expect("ASCII"));
                while let Some((line, rest)) = text.split_once('\n') {
                    match line.strip_prefix("dropped ") {
                        Some(count) => {
                            let count: u64 = count.parse().expect("a number");
                            (next, dropped) = (next + count, dropped + count);
                        }
                        None => {
                            assert_eq!(line.trim().parse(), Ok(next), "in order");
                            next += 1;
                        }
                    }
                    text = rest.to_owned();
                }
            }
            dropped
        });
        FULL.finish(SOON);
        let dropped = reading.join().expect("no panic");
        assert!(dropped > LINES / 2, "{dropped}");
        // Its thread has ended or ends, and another one begins.
        FULL.push(numbered(LINES));
        FULL.finish(SOON);
        assert!(!FULL.lock().is_busy());
    }

    #[test]
    fn a_drawing_is_one_message_and_is_counted_while_it_is_queued() {
        let terminal = Terminal::default();
        terminal.clear_line().expect("memory");
        terminal.move_cursor_up(0).expect("memory");
        terminal.move_cursor_up(2).expect("memory");
        terminal.write_line("bar").expect("memory");
        assert_eq!(*terminal.drawing.lock().expect("no panic"), "\r\x1b[2K\x1b[2Abar\n");
        static QUEUE: Queue = Queue::new(rustix::stdio::stderr, dropped);
        let mut state = QUEUE.lock();
        let text = "bar".to_owned();
        (state.bytes, state.drawings) = (text.len(), 1);
        state.messages.push_back(Message { text, is_line: false });
        assert!(state.is_busy());
        assert_eq!(state.take().expect("a drawing").text, "bar");
        assert_eq!((state.bytes, state.drawings, state.is_busy()), (0, 0, false));
    }
}
