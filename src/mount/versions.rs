//! Objects that were replaced or deleted while they are mounted.
//!
//! The kernel caches pages, attributes and open files by inode, so an inode always means one
//! version: a later version gets a new number, and the name leads to it from then on. Only the
//! newest version of each name is stored here; a program that has an older one open has that file's
//! own object.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::mount::tree::{ADDED_FROM, Inode};
use crate::s3::{Endpoint, Object};

/// The current target of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Current<'a> {
    /// The listed object.
    Listed,
    /// Unknown: a HEAD request must find out.
    Unknown,
    /// Nothing, according to the last request.
    Gone,
    /// A later version, and its inode.
    Version(Inode, &'a Object),
}

#[derive(Debug)]
enum Now {
    Unknown,
    Gone,
    Version(Inode, Box<Replacement>),
}

/// A later version.
#[derive(Debug)]
struct Replacement {
    object: Object,
    /// `None`: that of the object before.
    endpoint: Option<Arc<Endpoint>>,
}

/// Names that no longer lead to their listed object, by the inode of that.
#[derive(Debug)]
pub struct Versions {
    now: HashMap<Inode, Now>,
    /// The name of each version.
    names: HashMap<Inode, Inode>,
    /// Names of which a read or a request has found out something since a listing began.
    asked: HashSet<Inode>,
    /// First number above the tree's inodes.
    first: Inode,
    /// First unused number.
    next: Inode,
}

impl Versions {
    /// No changes yet; the tree's inodes are below `first`.
    #[must_use]
    pub fn new(first: Inode) -> Self {
        Self {
            now: HashMap::new(),
            names: HashMap::new(),
            asked: HashSet::new(),
            first,
            next: first,
        }
    }

    /// The current target of a name.
    #[must_use]
    pub fn of_name(&self, name: Inode) -> Current<'_> {
        match self.now.get(&name) {
            None => Current::Listed,
            Some(Now::Unknown) => Current::Unknown,
            Some(Now::Gone) => Current::Gone,
            Some(Now::Version(inode, later)) => Current::Version(*inode, &later.object),
        }
    }

    /// The name of an inode that is the name's current version; `None` if the object was replaced
    /// or deleted.
    #[must_use]
    pub fn name_of(&self, inode: Inode) -> Option<Inode> {
        if (self.first..ADDED_FROM).contains(&inode) {
            return self.names.get(&inode).copied();
        }
        (!self.now.contains_key(&inode)).then_some(inode)
    }

    /// Records that the object of this inode is gone. Returns its name, unless that was known.
    pub fn note_changed(&mut self, inode: Inode) -> Option<Inode> {
        let name = self.name_of(inode)?;
        self.names.remove(&inode);
        self.now.insert(name, Now::Unknown);
        self.asked.insert(name);
        Some(name)
    }

    /// Takes the result of a request for a name: this object, or nothing. An earlier result stays.
    /// Returns true if the name appeared in or vanished from its folder.
    pub fn found(&mut self, name: Inode, object: Option<Object>) -> bool {
        let was_gone = match self.now.get(&name) {
            Some(Now::Unknown) => false,
            Some(Now::Gone) => true,
            None | Some(Now::Version(..)) => return false,
        };
        let is_gone = object.is_none();
        let now = match object {
            None => Now::Gone,
            Some(object) => self.version(name, Replacement { object, endpoint: None }),
        };
        self.now.insert(name, now);
        self.asked.insert(name);
        was_gone != is_gone
    }

    /// A listing begins.
    pub fn listing_begins(&mut self) {
        self.asked.clear();
    }

    /// True if more is known of this name than the listing under way may say: its pages may have
    /// come long before they are taken.
    #[must_use]
    pub fn is_newer(&self, name: Inode) -> bool {
        self.asked.contains(&name)
    }

    /// A version with a number of its own.
    fn version(&mut self, name: Inode, later: Replacement) -> Now {
        let inode = self.next;
        self.next += 1;
        self.names.insert(inode, name);
        Now::Version(inode, Box::new(later))
    }

    /// Takes what a new listing has for a name, if that is not its current object: another one and
    /// its endpoint, or nothing.
    pub fn set(&mut self, name: Inode, found: Option<(Object, Arc<Endpoint>)>) {
        if let Some(Now::Version(inode, _)) = self.now.get(&name) {
            self.names.remove(inode);
        }
        let now = match found {
            None => Now::Gone,
            Some((object, endpoint)) => {
                self.version(name, Replacement { object, endpoint: Some(endpoint) })
            }
        };
        self.now.insert(name, now);
    }

    /// Takes that a name which was gone leads to its listed object again.
    pub fn restore(&mut self, name: Inode) {
        if matches!(self.now.get(&name), Some(Now::Gone)) {
            self.now.remove(&name);
        }
    }

    /// The endpoint of a name's current version; `None` if it is that of the object before.
    #[must_use]
    pub fn endpoint(&self, name: Inode) -> Option<&Arc<Endpoint>> {
        match self.now.get(&name) {
            Some(Now::Version(_, later)) => later.endpoint.as_ref(),
            _ => None,
        }
    }

    /// Number of names that lead to a later version.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(etag: &str) -> Object {
        Object { etag: etag.to_owned(), ..Object::default() }
    }

    fn version(versions: &Versions, name: Inode) -> (Inode, String) {
        match versions.of_name(name) {
            Current::Version(inode, object) => (inode, object.etag.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_version_has_a_number_of_its_own() {
        let mut versions = Versions::new(10);
        assert_eq!((versions.of_name(3), versions.name_of(3)), (Current::Listed, Some(3)));
        assert!(!versions.found(3, Some(object("nobody asked"))));
        assert_eq!(versions.note_changed(3), Some(3));
        assert_eq!(versions.note_changed(3), None, "it is known");
        assert_eq!((versions.of_name(3), versions.name_of(3)), (Current::Unknown, None));
        assert!(!versions.found(3, Some(object("second"))));
        assert_eq!(version(&versions, 3), (10, "second".to_owned()));
        // Two requests at the same time: the first result stays.
        assert!(!versions.found(3, Some(object("late"))));
        assert_eq!(version(&versions, 3), (10, "second".to_owned()));
        assert_eq!((versions.name_of(10), versions.name_of(3)), (Some(3), None));
        assert_eq!(versions.note_changed(3), None, "of an older version nothing is new");
        assert_eq!(version(&versions, 3), (10, "second".to_owned()));
        assert_eq!(versions.note_changed(10), Some(3));
        assert_eq!((versions.name_of(10), versions.note_changed(10)), (None, None));
        assert!(!versions.found(3, Some(object("third"))));
        assert_eq!(version(&versions, 3), (11, "third".to_owned()));
        assert_eq!(versions.names.len(), 1, "older ones are not kept");
        assert_eq!(versions.of_name(4), Current::Listed);
    }

    #[test]
    fn a_listing_says_what_a_name_leads_to() {
        let endpoint = Arc::new(Endpoint::new("bkt", false, "h", "/", "r", vec![]));
        let mut versions = Versions::new(10);
        let set = |versions: &mut Versions, name, etag: Option<&str>| {
            versions.set(name, etag.map(|etag| (object(etag), Arc::clone(&endpoint))));
        };
        for name in [3, ADDED_FROM] {
            let first = versions.next;
            assert_eq!(versions.name_of(name), Some(name));
            set(&mut versions, name, Some("second"));
            assert_eq!(version(&versions, name), (first, "second".to_owned()));
            assert_eq!((versions.name_of(first), versions.name_of(name)), (Some(name), None));
            assert!(versions.endpoint(name).is_some());
            set(&mut versions, name, None);
            assert_eq!((versions.of_name(name), versions.name_of(first)), (Current::Gone, None));
            set(&mut versions, name, Some("third"));
            assert_eq!(version(&versions, name), (first + 1, "third".to_owned()));
            // A request under way is too late.
            assert!(!versions.found(name, Some(object("late"))));
            assert_eq!(versions.note_changed(first + 1), Some(name));
            assert!(!versions.found(name, Some(object("second"))) && versions.count() == 1);
            let newest = version(&versions, name).0;
            assert_eq!(versions.note_changed(newest), Some(name));
            assert_eq!(versions.count(), 0);
        }
    }

    #[test]
    fn what_is_gone_may_come_back() {
        let mut versions = Versions::new(10);
        versions.note_changed(3);
        assert!(versions.found(3, None), "its folder has a name less");
        versions.restore(3);
        assert_eq!((versions.of_name(3), versions.name_of(3)), (Current::Listed, Some(3)));
        versions.note_changed(3);
        versions.restore(3);
        assert_eq!(versions.of_name(3), Current::Unknown);
        assert!(versions.found(3, None), "its folder has a name less");
        assert_eq!((versions.of_name(3), versions.name_of(3)), (Current::Gone, None));
        assert!(!versions.found(3, None));
        assert!(versions.found(3, Some(object("back"))), "and one more");
        assert_eq!(version(&versions, 3), (10, "back".to_owned()));
    }
}
