//! How often the threads of a process that has nothing to do are woken.

use std::fs;
use std::time::{Duration, Instant};

/// Wakes a second of a whole process at rest, at most: a channel looks once a second whether its
/// pipe is still there, and the control plane has a few timers of several seconds, for each of
/// which tokio wakes twice. 3 were seen.
const WAKES_PER_SECOND_MAX: u64 = 7;

/// How often it is looked whether a process rests: what it fetches ahead has to come first, and how
/// long that takes depends on what else the machine does.
const WINDOWS: usize = 10;

/// How long each look takes.
const WINDOW: Duration = Duration::from_secs(2);

/// How often the threads of a process gave up the processor to wait for something.
fn waits(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    let counts = tasks.filter_map(|task| {
        // A thread may end meanwhile.
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        field("voluntary_ctxt_switches:")?.parse::<u64>().ok()
    });
    counts.sum()
}

/// Fails unless the process is woken seldom for some seconds. A busy machine wakes it no more
/// often.
#[track_caller]
pub(crate) fn assert_rests(pid: u32) {
    let mut windows = Vec::new();
    for _ in 0..WINDOWS {
        let (before, begun) = (waits(pid), Instant::now());
        std::thread::sleep(WINDOW);
        let (after, millis) = (waits(pid), begun.elapsed().as_millis());
        let most = WAKES_PER_SECOND_MAX * u64::try_from(millis).expect("not long") / 1000;
        let wakes = after.saturating_sub(before);
        if wakes <= most {
            return;
        }
        windows.push((wakes, most));
    }
    panic!("woken so often, and at most so often in {WINDOW:?}: {windows:?}");
}
