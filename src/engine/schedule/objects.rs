//! Objects to be fetched, range by range: large ones first, a few at a time in turn, then small
//! ones in listing order.
//!
//! The order spans all endpoints. The caller may name endpoints to skip: objects behind them move
//! up, and each endpoint's objects are found without scanning those of others.

use std::cmp::Ordering as Order;
use std::collections::{BinaryHeap, VecDeque};
use std::iter::Peekable;
use std::sync::Arc;

use crate::engine::endpoints::{EndpointNumber, EndpointSet};
use crate::files::file_download::{FileDownload, Shape};
use crate::limits::{OBJECTS_OPEN_ALL_MAX, OBJECTS_OPEN_MAX};
use crate::plan::ranges::Ranges;
use crate::s3::ByteRange;

/// The objects of all endpoints.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// By the endpoint's number.
    queues: Vec<ObjectQueue>,
    /// Large objects that are partly handed out: [`OBJECTS_OPEN_MAX`] of endpoints that are not
    /// skipped, and [`OBJECTS_OPEN_ALL_MAX`] in total while one is not skipped.
    open: VecDeque<OpenObject>,
    /// Number of small objects pushed.
    came: u64,
}

/// The objects of one endpoint that no worker has begun.
#[derive(Debug, Default)]
struct ObjectQueue {
    large: BinaryHeap<BySize>,
    /// Each with the number of those pushed before it.
    small: VecDeque<(u64, Arc<FileDownload>)>,
}

/// A range to hand out, and its endpoint.
type NextRange = (EndpointNumber, Arc<FileDownload>, ByteRange);

/// A large object with ranges left to hand out.
#[derive(Debug)]
struct OpenObject {
    endpoint: EndpointNumber,
    download: Arc<FileDownload>,
    ranges: Peekable<Ranges>,
}

#[derive(Debug)]
struct BySize(Arc<FileDownload>);

impl Ord for BySize {
    fn cmp(&self, other: &Self) -> Order {
        let (mine, theirs) = (&self.0.object.listed, &other.0.object.listed);
        mine.size_bytes.cmp(&theirs.size_bytes).then_with(|| theirs.key.cmp(&mine.key))
    }
}

impl PartialOrd for BySize {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for BySize {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for BySize {}

impl Objects {
    /// Adds an object.
    pub(super) fn push(&mut self, endpoint: EndpointNumber, download: Arc<FileDownload>) {
        if self.queues.len() <= endpoint.index() {
            self.queues.resize_with(endpoint.index() + 1, ObjectQueue::default);
        }
        let queue = &mut self.queues[endpoint.index()];
        if download.shape == Shape::Ranges {
            queue.large.push(BySize(download));
        } else {
            self.came += 1;
            queue.small.push_back((self.came, download));
        }
    }

    /// True if all ranges are handed out.
    pub(super) fn is_empty(&self) -> bool {
        let is_empty = |queue: &ObjectQueue| queue.large.is_empty() && queue.small.is_empty();
        self.open.is_empty() && self.queues.iter().all(is_empty)
    }

    /// The next range of an endpoint that is not skipped.
    pub(super) fn next(&mut self, passed_over: EndpointSet) -> Option<NextRange> {
        let may_be = |open: &&OpenObject| !passed_over.has(open.endpoint);
        let mut given = self.open.iter().filter(may_be).count();
        while given == 0 || given < OBJECTS_OPEN_MAX && self.open.len() < OBJECTS_OPEN_ALL_MAX {
            let Some((endpoint, download)) = self.pop_largest(passed_over) else { break };
            let ranges = download.ranges().peekable();
            self.open.push_back(OpenObject { endpoint, download, ranges });
            given += 1;
        }
        let next = self.open.iter().position(|open| may_be(&open));
        let Some(mut open) = next.and_then(|at| self.open.remove(at)) else {
            let (endpoint, download) = self.pop_small(passed_over)?;
            let range = download.whole_range();
            return Some((endpoint, download, range));
        };
        let range = open.ranges.next().expect("an open object has ranges left");
        let (download, endpoint) = (Arc::clone(&open.download), open.endpoint);
        if open.ranges.peek().is_some() {
            self.open.push_back(open);
        }
        Some((endpoint, download, range))
    }

    /// The queues that are not skipped.
    fn queues(
        &mut self,
        passed_over: EndpointSet,
    ) -> impl Iterator<Item = (usize, &mut ObjectQueue)> {
        let queues = self.queues.iter_mut().enumerate();
        queues.filter(move |(index, _)| !passed_over.has(EndpointNumber::at(*index)))
    }

    fn pop_largest(
        &mut self,
        passed_over: EndpointSet,
    ) -> Option<(EndpointNumber, Arc<FileDownload>)> {
        let queues = self.queues(passed_over).filter(|(_, queue)| !queue.large.is_empty());
        let (index, queue) =
            queues.max_by(|(_, one), (_, other)| one.large.peek().cmp(&other.large.peek()))?;
        queue.large.pop().map(|BySize(download)| (EndpointNumber::at(index), download))
    }

    fn pop_small(
        &mut self,
        passed_over: EndpointSet,
    ) -> Option<(EndpointNumber, Arc<FileDownload>)> {
        let queues = self.queues(passed_over).filter(|(_, queue)| !queue.small.is_empty());
        let (index, queue) =
            queues.min_by_key(|(_, queue)| queue.small.front().map(|(came, _)| *came))?;
        queue.small.pop_front().map(|(_, download)| (EndpointNumber::at(index), download))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::file_download::Cut;
    use crate::plan::ranges::PartSize;
    use crate::s3::{Endpoint, Object};

    #[test]
    fn few_are_open_however_many_endpoints_are_passed_over_in_turn() {
        const ENDPOINTS: usize = 6;
        let cut =
            Cut { part: PartSize::new(1 << 20).expect("aligned"), slot_length_bytes: 1 << 16 };
        let mut objects = Objects::default();
        for number in 0..ENDPOINTS * 10 {
            let to = Arc::new(Endpoint::new("b", false, "h", "/", "r", vec![]));
            let key = number.to_string();
            let object = Object { key: key.clone(), size_bytes: 90 << 20, ..Object::default() };
            let endpoint = EndpointNumber::at(number % ENDPOINTS);
            objects.push(endpoint, Arc::new(FileDownload::new(object, to, key, cut)));
        }
        // All but one are skipped, each in turn.
        for turn in 0..ENDPOINTS * 8 {
            let mut passed_over = EndpointSet::EMPTY;
            let asked = EndpointNumber::at(turn % ENDPOINTS);
            let others = (0..ENDPOINTS).map(EndpointNumber::at).filter(|other| *other != asked);
            others.for_each(|other| passed_over.insert(other));
            let (endpoint, ..) = objects.next(passed_over).expect("it has more");
            assert_eq!(endpoint, asked);
            let most = OBJECTS_OPEN_ALL_MAX + ENDPOINTS - OBJECTS_OPEN_ALL_MAX / OBJECTS_OPEN_MAX;
            assert!(objects.open.len() <= most, "{} are open", objects.open.len());
        }
    }
}
