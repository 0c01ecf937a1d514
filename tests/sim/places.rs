//! The simulated places of Pipe mode: how they come and go, are marked, and are held after a
//! failure.

use std::sync::Arc;

use inrush::error::{Error, ErrorKind};
use inrush::host::WholeEpoch;
use inrush::sys::{Handle, descriptor};

use super::plumbing::{End, Lab, Manner, NEVER_US, Place, small};

/// Places.
impl Lab {
    pub(super) fn offer(&mut self, epoch: u64) {
        assert!(!self.places.contains_key(&epoch), "{epoch}: a place is offered once");
        if epoch > 0 {
            let before = &self.places[&(epoch - 1)];
            assert!(before.opened(), "{epoch}: offered before the one before it was opened");
        }
        let never = Manner { late_us: u64::MAX, ..self.manners[0] };
        let manner = self.manners.get(small(epoch)).copied().unwrap_or(never);
        let place = Place {
            withdrawn: false,
            withdrawn_us: 0,
            retired: false,
            kept: false,
            marked: None,
            write_end: None,
            pipe: 0,
            manner,
            opens_us: self.now_us.saturating_add(manner.late_us),
            looked_us: None,
            next_us: 0,
            got: Vec::new(),
            left: false,
            saw_end: false,
        };
        self.places.insert(epoch, place);
    }

    pub(super) fn open(&mut self, epoch: u64) -> Option<Handle> {
        let now_us = self.now_us;
        let earlier = self.places.range(..epoch).all(|(_, place)| place.withdrawn);
        assert!(earlier, "{epoch}: opened before those before it were over");
        let place = self.places.get_mut(&epoch).expect("only what is offered is opened");
        assert!(!place.withdrawn && !place.opened(), "{epoch}: a place is opened once");
        if now_us < place.opens_us {
            let waited_us = now_us - *place.looked_us.get_or_insert(now_us);
            if place.opens_us == u64::MAX && waited_us > NEVER_US {
                self.feed.stop(Error::new(ErrorKind::Interrupted, "stopped"));
            }
            return None;
        }
        let (_, _) = self.make_pipe();
        let handle = descriptor::event_counter().expect("a descriptor");
        let Handle::Descriptor(counter) = &handle else { unreachable!("a descriptor") };
        let late_us = self.chance.below(5_000);
        let place = self.places.get_mut(&epoch).expect("just seen");
        place.write_end = Some(Arc::downgrade(counter));
        place.pipe = self.pipes.len() - 1;
        place.next_us = now_us + late_us;
        self.events += 1;
        Some(handle)
    }

    pub(super) fn withdraw(&mut self, epoch: u64) {
        let Some(place) = self.places.get_mut(&epoch) else { return };
        if !place.withdrawn && place.opened() {
            assert!(place.held(), "{epoch}: withdrawn after its write end was dropped");
        }
        if !place.withdrawn {
            place.withdrawn_us = self.now_us;
        }
        place.withdrawn = true;
    }
}

/// Markers.
impl Lab {
    pub(super) fn unread(&self, handle: &Handle) -> u64 {
        let End::Pipe(index) = self.end(handle) else { unreachable!("a pipe") };
        self.pipes[index].bytes() as u64
    }

    pub(super) fn mark(&mut self, whole: WholeEpoch) {
        let place = self.places.get_mut(&whole.epoch).expect("a place");
        assert!(place.held() && !place.withdrawn, "{whole:?}: after its end of file");
        assert!(place.marked.is_none(), "{whole:?}: twice");
        assert_eq!(place.got.len() as u64, whole.bytes, "{whole:?}: its reader has not got it");
        place.marked = Some(whole);
    }

    pub(super) fn unmark(&mut self, epoch: u64) {
        assert!(!self.places.contains_key(&epoch), "{epoch}: an old marker beside its place");
        self.unmarked.push(epoch);
    }
}

/// After a failure.
impl Lab {
    pub(super) fn retire(&mut self, epoch: u64) -> Option<Handle> {
        let is_offered = self.places.get(&epoch).is_some_and(|place| !place.withdrawn);
        let handle = if is_offered { self.open(epoch) } else { None };
        self.withdraw(epoch);
        if let Some(place) = self.places.get_mut(&epoch) {
            (place.retired, place.kept) = (handle.is_some(), handle.is_some());
        }
        handle
    }

    /// Lets time go on until a reader has left, or so long.
    pub(super) fn wait_left(&mut self, handle: &Handle, wait_us: u64) -> bool {
        assert_eq!(self.feed.wait(), None, "what is held waits for nobody but its reader");
        let End::Pipe(index) = self.end(handle) else { unreachable!("a pipe") };
        for place in self.places.values_mut().filter(|place| place.opened()) {
            place.kept |= place.pipe == index;
        }
        let until_us = self.now_us + wait_us;
        loop {
            self.step();
            if self.pipes[index].reader_gone || self.now_us >= until_us {
                return self.pipes[index].reader_gone;
            }
            self.now_us = self.next_us().min(until_us).max(self.now_us);
        }
    }
}
