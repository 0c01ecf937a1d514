//! Which operations wait for which descriptor, and its registration with epoll(7).
//!
//! A descriptor is watched once (EPOLLONESHOT), for the union of the events that its operations
//! wait for, and only while an operation waits. So a registration that outlives its descriptor's
//! number, such as that of a duplicated descriptor, is never armed and never mistaken for
//! another's.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

use super::{Errno, NONE, OpInFlight, OpStage};

/// Events per epoll_wait(2).
const EVENTS_MAX: usize = 256;

/// User data of the writer threads' event.
const WRITERS: u64 = u64::MAX;

/// Waits up to this length use poll(2), which is exact to the microsecond, unlike epoll_wait(2).
const EXACT_WAIT_US: u64 = 10_000;

/// Events that epoll reports for every descriptor.
const ALWAYS: EventFlags = EventFlags::ERR.union(EventFlags::HUP);

/// The source of an event.
pub(super) enum Watched {
    /// The writer threads have results.
    Writers,
    /// The descriptor of this number.
    Descriptor(usize),
}

/// State of one descriptor number.
#[derive(Clone, Copy)]
struct Watch {
    /// The first operation that waits.
    first: u32,
    /// Events armed with epoll and not yet reported.
    armed: EventFlags,
    /// The number was registered last time.
    is_known: bool,
}

/// All watched descriptors.
pub(super) struct Watches {
    epoll: OwnedFd,
    /// By descriptor number.
    table: Vec<Watch>,
    events: Vec<Event>,
    #[cfg(test)]
    looks: u64,
    /// Test only: the error of every registration.
    #[cfg(test)]
    pub(super) full: Option<rustix::io::Errno>,
}

impl Watches {
    /// Watches only the counter of the writer threads.
    pub(super) fn new(writers: &OwnedFd) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, writers, EventData::new_u64(WRITERS), EventFlags::IN)?;
        Ok(Self {
            epoll,
            table: Vec::new(),
            events: Vec::with_capacity(EVENTS_MAX),
            #[cfg(test)]
            looks: 0,
            #[cfg(test)]
            full: None,
        })
    }

    /// Number of armed descriptors.
    #[cfg(test)]
    pub(super) fn armed(&self) -> usize {
        self.table.iter().filter(|watch| !watch.armed.is_empty()).count()
    }

    /// Number of waits.
    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    /// Adds an operation to those that wait for a descriptor.
    ///
    /// # Errors
    /// The error of epoll_ctl(2): EPERM for files that cannot be watched. The operation does not
    /// wait then.
    pub(super) fn add(
        &mut self,
        entries: &mut [Option<OpInFlight>],
        index: u32,
        descriptor: &Arc<OwnedFd>,
        events: EventFlags,
    ) -> Result<(), Errno> {
        let place = place(descriptor);
        if self.table.len() <= place {
            let unknown = Watch { first: NONE, armed: EventFlags::empty(), is_known: false };
            self.table.resize(place + 1, unknown);
        }
        let wanted = self.table[place].armed | events | ALWAYS;
        if wanted != self.table[place].armed {
            self.arm(place, descriptor, wanted)?;
        }
        let watch = &mut self.table[place];
        let entry = entries[index as usize].as_mut().expect("it is in flight");
        entry.next = std::mem::replace(&mut watch.first, index);
        Ok(())
    }

    /// Removes an operation from those that wait.
    pub(super) fn remove(
        &mut self,
        entries: &mut [Option<OpInFlight>],
        index: u32,
        descriptor: &Arc<OwnedFd>,
    ) {
        let watch = &mut self.table[place(descriptor)];
        let mut others = take_list(entries, &mut watch.first);
        while let Some((other, next)) = others {
            if other != index {
                link(entries, &mut watch.first, other);
            }
            others = next_of(entries, next);
        }
        // While others wait it stays armed: an event that none of them waits for is armed again.
        if watch.first == NONE {
            watch.armed = EventFlags::empty();
            watch.is_known = false;
            // It is registered, unless epoll has refused it.
            let _ = epoll::delete(&self.epoll, descriptor);
        }
    }

    /// Takes events, waiting at most `wait_us` for the first; returns their number.
    pub(super) fn wait(&mut self, wait_us: u64) -> Result<usize, Errno> {
        self.events.clear();
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let mut timeout = timespec(wait_us);
        if wait_us > 0 && wait_us <= EXACT_WAIT_US {
            let mut ready = [PollFd::new(&self.epoll, PollFlags::IN)];
            match rustix::event::poll(&mut ready, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(0),
                Ok(_) => timeout = timespec(0),
                Err(errno) => return Err(errno.into()),
            }
        }
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) => Ok(self.events.len()),
            Err(rustix::io::Errno::INTR) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }

    /// One of the events taken.
    pub(super) fn event(&self, number: usize) -> (Watched, EventFlags) {
        let Event { flags, data } = self.events[number];
        match data.u64() {
            WRITERS => (Watched::Writers, flags),
            place => (Watched::Descriptor(usize::try_from(place).expect("a number")), flags),
        }
    }

    /// Queues the operations that waited for one of these events; keeps watching for the others.
    pub(super) fn fired(
        &mut self,
        entries: &mut [Option<OpInFlight>],
        place: usize,
        events: EventFlags,
        queue: &mut VecDeque<(u32, EventFlags)>,
    ) {
        let Some(watch) = self.table.get_mut(place) else { return };
        watch.armed = EventFlags::empty();
        let mut left = EventFlags::empty();
        let mut descriptor = None;
        let mut waiting = take_list(entries, &mut watch.first);
        while let Some((index, next)) = waiting {
            let entry = entries[index as usize].as_mut().expect("it is in flight");
            let OpStage::Waiting(wanted) = entry.stage else { unreachable!("it waits") };
            if (events & (wanted | ALWAYS)).is_empty() {
                left |= wanted;
                descriptor.get_or_insert_with(|| Arc::clone(super::descriptor(entry.op())));
                link(entries, &mut watch.first, index);
            } else {
                entry.stage = OpStage::Queued;
                queue.push_back((index, events));
            }
            waiting = next_of(entries, next);
        }
        let Some(descriptor) = descriptor else { return };
        if self.arm(place, &descriptor, left | ALWAYS).is_err() {
            // They are tried again, and fail if they cannot be watched.
            let watch = &mut self.table[place];
            let mut waiting = take_list(entries, &mut watch.first);
            while let Some((index, next)) = waiting {
                entries[index as usize].as_mut().expect("it is in flight").stage = OpStage::Queued;
                queue.push_back((index, EventFlags::empty()));
                waiting = next_of(entries, next);
            }
        }
    }

    /// Arms epoll for one event. The kernel drops a registration when its file is closed, and the
    /// number may belong to another file now.
    fn arm(
        &mut self,
        place: usize,
        descriptor: &Arc<OwnedFd>,
        wanted: EventFlags,
    ) -> Result<(), Errno> {
        let data = || EventData::new_u64(place as u64);
        let once = wanted | EventFlags::ONESHOT;
        let add = || epoll::add(&self.epoll, descriptor, data(), once);
        let modify = || epoll::modify(&self.epoll, descriptor, data(), once);
        let watch = &mut self.table[place];
        let registered = match watch.is_known {
            true => modify().or_else(|errno| match errno {
                rustix::io::Errno::NOENT => add(),
                errno => Err(errno),
            }),
            false => add().or_else(|errno| match errno {
                rustix::io::Errno::EXIST => modify(),
                errno => Err(errno),
            }),
        };
        #[cfg(test)]
        let registered = self.full.map_or(registered, Err);
        watch.is_known = registered.is_ok();
        registered?;
        watch.armed = wanted;
        Ok(())
    }
}

fn place(descriptor: &Arc<OwnedFd>) -> usize {
    usize::try_from(descriptor.as_raw_fd()).expect("an open descriptor is not negative")
}

fn timespec(wait_us: u64) -> Timespec {
    let seconds = i64::try_from(wait_us / 1_000_000).unwrap_or(i64::MAX);
    let nanoseconds = i64::try_from(wait_us % 1_000_000 * 1000).unwrap_or(0);
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds }
}

/// Empties a list; returns its first operation and the next one.
fn take_list(entries: &mut [Option<OpInFlight>], first: &mut u32) -> Option<(u32, u32)> {
    next_of(entries, std::mem::replace(first, NONE))
}

fn next_of(entries: &mut [Option<OpInFlight>], index: u32) -> Option<(u32, u32)> {
    if index == NONE {
        return None;
    }
    let entry = entries[index as usize].as_mut().expect("it is in flight");
    Some((index, std::mem::replace(&mut entry.next, NONE)))
}

fn link(entries: &mut [Option<OpInFlight>], first: &mut u32, index: u32) {
    let entry = entries[index as usize].as_mut().expect("it is in flight");
    entry.next = std::mem::replace(first, index);
}
