//! The workers' file jobs on the simulated machine: done at once as long as calls are quick, by the
//! real rule, or on blocking threads in virtual time, and in any order.

use inrush::files::file_download::FileDownload;
use inrush::files::host::{FileDone, FileHost, FileJob, FileTask};
use inrush::files::sink::calls::Calls;

use super::host::SimHost;
use super::seeds;
use super::world::{Shared, World};

/// A call that is slow takes this time at least, in microseconds.
const SLOW_CALL_US: u64 = 20_000;

/// A job on a blocking thread.
#[derive(Debug)]
struct Blocking {
    worker: usize,
    task: FileTask,
    took_us: u64,
    ready_us: u64,
    /// Its worker is woken when it is done; else the wake-up is lost.
    wakes: bool,
    /// It is under way, and cannot be taken back.
    begun: bool,
}

/// All workers' jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    blocking: Vec<Blocking>,
    /// Thousandths of the quick calls that are done on a blocking thread all the same.
    pub(crate) blocking_per_mille: u64,
    /// Jobs that were done at once, and on blocking threads.
    pub(crate) done: [u64; 2],
    /// Time that workers spent in calls, in microseconds.
    pub(crate) blocked_us: u64,
}

impl Jobs {
    /// Some runs have all of them on blocking threads, some half, some as the rule says.
    pub(super) fn of(seed: u64) -> Self {
        let blocking_per_mille = match seed % 3 {
            0 => 0,
            1 => 1000,
            _ => 500,
        };
        Self { blocking_per_mille, ..Self::default() }
    }
}

/// What a worker's machine knows of its jobs.
#[derive(Debug, Default)]
pub(super) struct Desk {
    calls: Calls,
    ended: Vec<FileDone>,
}

impl Desk {
    fn note(&mut self, task: &FileTask, took_us: u64) {
        if task.job.indicates_pace() {
            self.calls.note(took_us);
        }
    }
}

impl World {
    /// How long a call takes.
    fn call_us(&mut self) -> u64 {
        let usual_us = self.file_call_us();
        // Drawn only where it can be: the seeds of the other runs stay what they are.
        if self.rates.pause_per_mille > 0 && self.chance.hits(self.rates.pause_per_mille) {
            self.count("slow call");
            return usual_us + (SLOW_CALL_US << self.chance.below(8));
        }
        usual_us
    }

    /// When a worker is next woken by a job that is done.
    pub(super) fn next_job_us(&self, worker: usize) -> u64 {
        let its = self.jobs.blocking.iter().filter(|job| job.worker == worker && job.wakes);
        its.map(|job| job.ready_us).min().unwrap_or(u64::MAX)
    }

    /// Jobs that nobody has taken in.
    pub(crate) fn jobs_left(&self) -> usize {
        self.jobs.blocking.len()
    }
}

impl SimHost {
    pub(crate) fn new(world: Shared, worker: usize) -> Self {
        Self { world, worker, desk: Desk::default() }
    }
}

impl FileHost for SimHost {
    fn begin(&mut self, task: FileTask) {
        let mut world = self.world.borrow_mut();
        if matches!(task.job, FileJob::MakeFolder | FileJob::WriteWhole(None)) {
            world.make_empty();
        }
        let took_us = world.call_us();
        let share = world.jobs.blocking_per_mille;
        let is_blocking = self.desk.calls.are_slow() || share > 0 && world.chance.hits(share);
        world.jobs.done[usize::from(is_blocking)] += 1;
        if is_blocking {
            let ready_us = world.now_us + took_us + world.chance.below(2_000);
            let rate = (world.rates.network_per_mille * 4).min(500);
            let (wakes, begun) = (!world.chance.hits(rate), world.chance.hits(500));
            let worker = self.worker;
            seeds::note("job on a helper thread", 1);
            seeds::note("wake-up of a job lost", u64::from(!wakes));
            world.jobs.blocking.push(Blocking { worker, task, took_us, ready_us, wakes, begun });
        } else {
            world.now_us += took_us;
            world.jobs.blocked_us += took_us;
            let outcome = world.carry_out(&task);
            self.desk.note(&task, took_us);
            self.desk.ended.push(FileDone { task, outcome, took_us });
        }
    }

    fn finished(&mut self) -> Option<FileDone> {
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        let (now_us, worker) = (world.now_us, self.worker);
        let is_done = |job: &Blocking| job.worker == worker && job.ready_us <= now_us;
        let done: Vec<usize> = (0..world.jobs.blocking.len())
            .filter(|job| is_done(&world.jobs.blocking[*job]))
            .collect();
        let count = (done.len() + self.desk.ended.len()) as u64;
        if count == 0 {
            return None;
        }
        let pick = usize::try_from(world.chance.below(count)).expect("small");
        let Some(index) = done.get(pick) else {
            return Some(self.desk.ended.swap_remove(pick - done.len()));
        };
        let Blocking { task, took_us, .. } = world.jobs.blocking.swap_remove(*index);
        let outcome = world.carry_out(&task);
        self.desk.note(&task, took_us);
        Some(FileDone { task, outcome, took_us })
    }

    fn recall(&mut self) -> Option<FileTask> {
        let mut world = self.world.borrow_mut();
        let can_be = |job: &Blocking| {
            let is_small = matches!(job.task.job, FileJob::WriteWhole(_));
            job.worker == self.worker && is_small && !job.begun
        };
        let found = world.jobs.blocking.iter().position(can_be)?;
        seeds::note("job taken back", 1);
        Some(world.jobs.blocking.swap_remove(found).task)
    }

    fn delivered(&mut self, download: &FileDownload, offset: u64, length: u32) {
        let key = &download.object.listed.key;
        let mut world = self.world.borrow_mut();
        let incarnation = (key.clone(), download.restarts);
        let once = world.delivered.entry(incarnation).or_default().add(offset, length.into());
        assert!(once, "{key}: {length} bytes at {offset} are delivered twice");
        world.bytes += u64::from(length);
    }
}
