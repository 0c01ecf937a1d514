//! Messages for people on standard error: a progress bar, notes, warnings, errors.
//!
//! The bar is drawn on a terminal only. Without one, or with `--no-progress`, notes are plain
//! lines, and without a terminal a long run reports its progress every 30 s; with `--quiet` there
//! is none of these. Errors are always printed. Data goes to standard output: see
//! [`crate::report::out`].

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::builder::Styles;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing::{Level, enabled};

use crate::link::waiting::{Pauses, Wait};
use crate::report::line::{Speed, line, log_line, stream_line, waiting};
use crate::report::stages;
use crate::report::stderr::{self, as_json};
use crate::sys::threads::start_in_library;
use crate::text::shown::shown;

pub use crate::report::line::{ChannelState, ProgressState, UnderWay};

/// The line is already formatted. It is cut if it is wider than the terminal, as with wide
/// characters.
const TEMPLATE: &str = "{wide_msg}";

/// The line, with the stages' lines below it.
const TEMPLATE_STAGES: &str = "{wide_msg}\n{prefix}";

/// A spinner and a wait, before there is progress to show.
const TEMPLATE_WAITING: &str = "{spinner} {wide_msg}";

/// Columns of the spinner and the following space.
const SPINNER_COLUMNS: usize = 2;

/// Interval of the lines that report progress where there is no bar.
const LOG_PAUSE: Duration = Duration::from_secs(30);

/// Interval of the spinner's frames.
const SPIN: Duration = Duration::from_millis(250);

/// How a command's messages look: it makes each [`Progress`] of the command, and its log writes
/// with it.
#[derive(Debug, Clone, Default)]
pub struct Messages {
    /// No bar is drawn: lines are JSON, or the log would interrupt it.
    has_no_bar: bool,
    /// Lines for the stages are drawn below the bar.
    has_stages: bool,
    drawn: Arc<Drawn>,
}

/// The bar that the log's lines go above.
type Drawn = Mutex<Option<(ProgressBar, Arc<ShownWait>)>>;

impl Messages {
    /// Messages with a bar on a terminal or without, and with lines for the stages below it.
    #[must_use]
    pub fn new(has_bar: bool, has_stages: bool) -> Self {
        Self { has_no_bar: !has_bar, has_stages, drawn: Arc::default() }
    }

    /// Makes all further lines of this process JSON, and draws no bar.
    pub fn use_json_lines(&mut self) {
        self.has_no_bar = true;
        stderr::use_json_lines();
    }

    /// Progress on standard error; only errors if not `enabled`.
    #[must_use]
    pub fn progress(&self, enabled: bool) -> Progress {
        self.progress_on(stderr::draw_target(), enabled, columns)
    }

    fn progress_on(
        &self,
        target: ProgressDrawTarget,
        enabled: bool,
        columns: fn() -> usize,
    ) -> Progress {
        let is_drawn = enabled && !self.has_no_bar && !target.is_hidden();
        let bar = is_drawn.then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), target);
            bar.set_style(style(if self.has_stages { TEMPLATE_STAGES } else { TEMPLATE }));
            bar
        });
        let has_log = enabled && !self.has_no_bar && bar.is_none();
        let waits = Arc::<ShownWait>::default();
        let with_stages = bar.as_ref().filter(|_| self.has_stages);
        let log_is_above = with_stages.map(|bar| {
            *lock(&self.drawn) = Some((bar.clone(), Arc::clone(&waits)));
            Arc::clone(&self.drawn)
        });
        Progress {
            bar,
            speed: Mutex::default(),
            log: has_log.then(|| Mutex::new(Log::begin())),
            columns,
            waits,
            quiet: !enabled,
            log_is_above,
        }
    }

    /// Calls `write`, which writes to standard error, while the bar is hidden.
    pub(crate) fn above_bar<T>(&self, write: impl FnOnce() -> T) -> T {
        let drawn = lock(&self.drawn).clone();
        match drawn {
            Some((bar, waits)) => {
                waits.clear_line();
                bar.suspend(write)
            }
            None => write(),
        }
    }
}

/// The bar, and the lines above it.
#[derive(Debug)]
pub struct Progress {
    /// `None` without a terminal and with `--quiet`.
    bar: Option<ProgressBar>,
    speed: Mutex<Speed>,
    /// Lines in place of the bar; `None` with a bar, `--quiet` or `--no-progress`.
    log: Option<Mutex<Log>>,
    /// The terminal's current width; it may change.
    columns: fn() -> usize,
    waits: Arc<ShownWait>,
    quiet: bool,
    /// With lines for the stages: where the log finds the bar.
    log_is_above: Option<Arc<Drawn>>,
}

/// When progress lines are due where there is no bar.
#[derive(Debug)]
struct Log {
    begun: Instant,
    last: Duration,
}

impl Log {
    #[expect(clippy::disallowed_methods, reason = "people read how long the run has taken")]
    fn begin() -> Self {
        Self { begun: Instant::now(), last: Duration::ZERO }
    }

    /// Whether a line is due `elapsed` after the beginning; then the next one is a pause later.
    fn is_due(&mut self, elapsed: Duration) -> bool {
        let is_due = elapsed >= self.last + LOG_PAUSE;
        if is_due {
            self.last = elapsed;
        }
        is_due
    }
}

/// State shared by the bar and the reporters of waits.
#[derive(Debug, Default)]
struct ShownWait {
    /// The current wait.
    now: Mutex<Option<Wait>>,
    /// The bar is drawn, and shows the wait.
    is_drawn: AtomicBool,
    /// No more waits are shown.
    is_hushed: AtomicBool,
    /// The line that shows the wait before the bar is drawn.
    line: Mutex<Option<ProgressBar>>,
}

impl ShownWait {
    fn now(&self) -> Option<Wait> {
        lock(&self.now).clone()
    }

    /// True while a program may ask its user on the terminal.
    fn may_prompt(&self) -> bool {
        lock(&self.now).as_ref().is_some_and(|wait| wait.may_prompt)
    }

    fn clear_line(&self) {
        if let Some(line) = lock(&self.line).take() {
            line.finish_and_clear();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows waits: in the progress line on a terminal, otherwise in lines of their own from time to
/// time.
#[derive(Debug)]
pub struct WaitReporter {
    waits: Arc<ShownWait>,
    quiet: bool,
    is_terminal: bool,
    pauses: Pauses,
}

impl WaitReporter {
    /// Shows this wait, or none. `now_us` is the time of any clock.
    pub fn look(&mut self, now_us: u64, wait: Option<Wait>) {
        lock(&self.waits.now).clone_from(&wait);
        if self.quiet {
            return;
        }
        if self.waits.is_hushed.load(Ordering::Relaxed) {
            return self.waits.clear_line();
        }
        match wait {
            None => self.waits.clear_line(),
            Some(_) if self.is_terminal && self.waits.is_drawn.load(Ordering::Relaxed) => {
                self.waits.clear_line();
            }
            Some(wait) if self.is_terminal && !wait.may_prompt => {
                let mut line = lock(&self.waits.line);
                let line = line.get_or_insert_with(|| {
                    let line = ProgressBar::new_spinner().with_style(style(TEMPLATE_WAITING));
                    // Without a thread to turn it, the spinner stands still.
                    let _ = start_in_library(AssertUnwindSafe(|| line.enable_steady_tick(SPIN)));
                    line
                });
                let room = columns().saturating_sub(SPINNER_COLUMNS + 1);
                line.set_message(waiting(&wait, room).unwrap_or_default());
            }
            Some(_) if self.is_terminal => self.waits.clear_line(),
            Some(wait) => {
                if self.pauses.is_due(now_us, &wait) {
                    stderr::line(&plain("info", wait));
                }
            }
        }
    }
}

impl Progress {
    /// Makes a reporter that shows waits here.
    #[must_use]
    pub fn wait_reporter(&self) -> WaitReporter {
        WaitReporter {
            waits: Arc::clone(&self.waits),
            quiet: self.quiet,
            is_terminal: self.bar.is_some(),
            pauses: Pauses::default(),
        }
    }

    /// True if there is a bar, which needs updates.
    #[must_use]
    pub fn has_bar(&self) -> bool {
        self.bar.is_some()
    }

    /// Shows the progress of a run; cheap enough for several times per second.
    pub fn update(&self, state: &ProgressState) {
        let Some(bar) = &self.bar else {
            let Some(log) = &self.log else { return };
            let elapsed = lock(log).begun.elapsed();
            return self.log_at(elapsed, state).into_iter().for_each(|line| self.note(line));
        };
        if stderr::is_behind() || self.waits.may_prompt() {
            return;
        }
        self.waits.is_drawn.store(true, Ordering::Relaxed);
        let mut speed = lock(&self.speed);
        speed.add(bar.elapsed().as_secs_f64(), state.bytes_done, state.objects_done);
        let wait = self.waits.now();
        if self.log_is_above.is_some() {
            bar.set_prefix(stages::lines(state, (self.columns)()).join("\n"));
        }
        bar.set_message(line(state, &speed, wait.as_ref(), (self.columns)()));
        bar.tick();
    }

    /// The progress line that is due `elapsed` after the beginning, if one is.
    fn log_at(&self, elapsed: Duration, state: &ProgressState) -> Option<String> {
        let mut speed = lock(&self.speed);
        speed.add(elapsed.as_secs_f64(), state.bytes_done, state.objects_done);
        let is_due = lock(self.log.as_ref()?).is_due(elapsed);
        is_due.then(|| log_line(state, &speed))
    }

    /// Shows the progress of streams.
    pub fn update_stream(&self, received_bytes: u64, channels: impl Iterator<Item = ChannelState>) {
        let Some(bar) = self.bar.as_ref().filter(|_| !stderr::is_behind()) else { return };
        if self.waits.may_prompt() {
            return;
        }
        self.waits.is_drawn.store(true, Ordering::Relaxed);
        let mut speed = lock(&self.speed);
        speed.add(bar.elapsed().as_secs_f64(), received_bytes, 0);
        let (channels, wait) = (channels.collect::<Vec<_>>(), self.waits.now());
        let columns = (self.columns)();
        let words = stream_line(received_bytes, &speed, &channels, wait.as_ref(), columns);
        bar.set_message(words);
        bar.tick();
    }

    /// Prints a line above the bar, unless quiet.
    pub fn note(&self, line: impl Display) {
        if !self.quiet {
            self.print(&plain("info", line));
        }
    }

    /// Prints a line that an option asks for, even when quiet.
    pub fn report(&self, line: impl Display) {
        self.print(&plain("info", line));
    }

    /// Prints a one-line error, always; with `--verbose` also its causes ([`crate::error::Error`]).
    pub fn error(&self, error: impl Display) {
        self.print(&labelled("error", &error));
        if enabled!(Level::INFO) {
            let (text, with_causes) = (error.to_string(), format!("{error:#}"));
            let causes = with_causes.strip_prefix(&text).unwrap_or_default();
            causes.lines().skip(1).for_each(|cause| self.print(&plain("info", cause)));
        }
    }

    /// Prints a one-line warning, always: it is about safety.
    pub fn warn(&self, line: impl Display) {
        self.print(&labelled("warning", line));
    }

    /// From now on prints only errors; reporters of waits print nothing.
    pub fn hush(&mut self) {
        self.finish();
        self.forget();
        self.waits.is_hushed.store(true, Ordering::Relaxed);
        (self.bar, self.quiet) = (None, true);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.waits.clear_line();
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Detaches the bar from the log.
    fn forget(&mut self) {
        if let Some(drawn) = self.log_is_above.take() {
            let mut drawn = lock(&drawn);
            // Another bar may have replaced it.
            let is_own = |(_, waits): &mut (_, Arc<ShownWait>)| Arc::ptr_eq(waits, &self.waits);
            let _ = drawn.take_if(is_own);
        }
    }

    fn print(&self, line: &str) {
        // The next [`WaitReporter::look`] draws it again.
        self.waits.clear_line();
        match &self.bar {
            Some(bar) => bar.suspend(|| stderr::line(line)),
            None => stderr::line(line),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
        self.forget();
    }
}

/// A message after its label, coloured as clap colours errors and warnings.
fn labelled(label: &str, message: impl Display) -> String {
    if let Some(line) = as_json(label, &shown(&message.to_string())) {
        return line;
    }
    let styles = Styles::styled();
    let style = if label == "error" { styles.get_error() } else { styles.get_invalid() };
    format!("{style}{label}:{style:#} {}", shown(&message.to_string()))
}

/// A message without a label.
fn plain(level: &str, message: impl Display) -> String {
    let message = shown(&message.to_string()).to_string();
    as_json(level, &message).unwrap_or(message)
}

/// Width of the terminal on standard error.
fn columns() -> usize {
    usize::from(stderr::size().0)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is right")
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write as _};

    use indicatif::TermLike;

    use super::*;

    /// Records everything drawn.
    #[derive(Debug, Clone, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl Screen {
        fn taken(&self) -> String {
            std::mem::take(&mut self.0.lock().expect("no test panicked while it drew"))
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            100
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(line)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().expect("no test panicked while it drew").push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn screen(enabled: bool) -> (Screen, Progress) {
        screen_of(&Messages::default(), enabled)
    }

    fn screen_of(messages: &Messages, enabled: bool) -> (Screen, Progress) {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        (screen, messages.progress_on(target, enabled, || 100))
    }

    fn hidden(enabled: bool) -> Progress {
        Messages::default().progress_on(ProgressDrawTarget::hidden(), enabled, || 100)
    }

    const LISTING: ProgressState = ProgressState {
        bytes_done: 1_000_000_000,
        bytes_known: 4_000_000_000,
        objects_done: 12,
        objects_known: 1_234,
        objects_kept: 0,
        listing_complete: false,
        retries: 0,
        waiting: None,
        under_way: UnderWay { requests_in_flight: 3, requests_wanted: 4, writes: 0, file_jobs: 0 },
    };

    #[test]
    fn an_end_is_reported_when_it_is_known() {
        let (screen, progress) = screen(true);
        progress.update(&LISTING);
        let drawn = screen.taken();
        assert!(drawn.contains("1 GB of 4 GB, "), "{drawn}");
        assert!(drawn.contains("listing, ") && !drawn.contains("left"), "{drawn}");
        progress.update(&ProgressState { listing_complete: true, ..LISTING });
        let drawn = screen.taken();
        assert!(!drawn.contains("listing"), "{drawn}");
        assert!(drawn.contains("[======>"), "{drawn}");
        progress.finish();
        screen.taken();
        progress.update(&ProgressState { listing_complete: true, ..LISTING });
        assert_eq!(screen.taken().trim(), "");
    }

    #[test]
    fn a_wait_takes_the_place_of_the_rest_and_gives_it_back() {
        let (screen, progress) = screen(true);
        let mut wait_reporter = progress.wait_reporter();
        progress.update(&LISTING);
        screen.taken();
        let wait = Wait {
            whom: "h:9000".to_owned(),
            what: "to answer GET s3://b/k".to_owned(),
            tries: 3,
            elapsed_us: 4_000_000,
            retry_for_us: 60_000_000,
            why: "refused".to_owned(),
            may_prompt: false,
        };
        wait_reporter.look(0, Some(wait));
        progress.update(&LISTING);
        let drawn = screen.taken();
        assert!(drawn.contains("of 4 GB, waiting for h:9000 to answer GET s3://b/k: try 3, 4"));
        wait_reporter.look(1, None);
        progress.update(&LISTING);
        let drawn = screen.taken();
        assert!(drawn.rfind("listing") > drawn.rfind("waiting"), "{drawn}");
    }

    #[test]
    fn nothing_is_drawn_over_the_question_of_a_program() {
        let (screen, progress) = screen(true);
        let mut wait_reporter = progress.wait_reporter();
        let wait = Wait {
            whom: "the credential_process of the profile 'p'".to_owned(),
            what: "to give credentials".to_owned(),
            tries: 1,
            elapsed_us: 4_000_000,
            retry_for_us: 60_000_000,
            why: String::new(),
            may_prompt: true,
        };
        wait_reporter.look(0, Some(wait));
        screen.taken();
        progress.update(&LISTING);
        assert_eq!(screen.taken(), "");
        wait_reporter.look(1, None);
        progress.update(&LISTING);
        assert!(screen.taken().contains("listing"));
    }

    #[test]
    fn stages_are_drawn_below_and_lines_that_are_logged_above() {
        let (screen, progress) = screen(true);
        progress.update(&LISTING);
        assert!(!screen.taken().contains("in flight"), "nobody asked for the stages");
        let messages = Messages::new(true, true);
        let (screen, progress) = screen_of(&messages, true);
        progress.update(&LISTING);
        screen.taken();
        progress.update(&ProgressState { listing_complete: true, ..LISTING });
        let drawn = screen.taken();
        let at = |words: &str| drawn.find(words).unwrap_or_else(|| panic!("{words}: {drawn}"));
        assert!(at("1 GB of 4 GB, ") < at("list  "), "{drawn}");
        assert!(at("pace    [==================>     ] 3 of 4 requests in flight") < at("write  "));
        // The line is written while nothing is drawn, and then everything is drawn again.
        let before = messages.above_bar(|| screen.taken());
        assert!(!before.contains("in flight"), "{before}");
        let after = screen.taken();
        assert!(after.contains("1 GB of 4 GB, ") && after.contains("in flight"), "{after}");
        drop(progress);
        screen.taken();
        messages.above_bar(|| ());
        assert_eq!(screen.taken(), "", "it is over");
    }

    #[test]
    fn no_bar_when_quiet_or_without_a_terminal() {
        let (screen, progress) = screen(false);
        progress.update(&LISTING);
        assert_eq!(screen.taken(), "");
        assert!(hidden(true).bar.is_none());
        let (screen, progress) = screen_of(&Messages::new(false, true), true);
        progress.update(&LISTING);
        assert_eq!(screen.taken(), "", "none is wanted");
    }

    #[test]
    fn a_long_run_without_a_terminal_reports_how_far_it_is() {
        let progress = hidden(true);
        let printed: Vec<_> = (0..100)
            .filter_map(|second| {
                let state = ProgressState { bytes_done: second * 10_000_000, ..LISTING };
                Some((second, progress.log_at(Duration::from_secs(second), &state)?))
            })
            .collect();
        let line = |done| format!("{done} of 4 GB, 10 MB/s, listing, 12 of 1,234 objects");
        let expected = [(30, "300 MB"), (60, "600 MB"), (90, "900 MB")];
        assert_eq!(printed, expected.map(|(second, done)| (second, line(done))));
        assert!(hidden(false).log.is_none(), "quiet");
        assert!(screen(true).1.log.is_none(), "there is a bar");
    }

    #[test]
    fn labels_have_the_colour_of_claps_own() {
        let text = labelled("error", "no\u{1b} such bucket");
        assert!(text.starts_with("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m no"), "{text:?}");
        assert_eq!(text.matches('\u{1b}').count(), 3, "none of the message: {text:?}");
        let mut plain = anstream::StripStream::new(Vec::new());
        writeln!(plain, "{}", labelled("warning", "w")).expect("memory");
        assert_eq!(plain.into_inner(), b"warning: w\n");
    }
}
