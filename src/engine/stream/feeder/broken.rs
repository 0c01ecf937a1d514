//! Epochs that cannot be delivered whole, until their reader opens them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Error;
use crate::link::object::ObjectRef;

/// One failed object per such epoch, with its error: the first recorded. Entries of different
/// epochs are independent: if a reader skips one of these epochs, the next one is still broken.
///
/// Its size is bounded by the epochs that are fetched at the same time.
#[derive(Debug, Default)]
pub(super) struct Broken(BTreeMap<u64, (Arc<ObjectRef>, Error)>);

impl Broken {
    /// Records a failed object of this epoch.
    pub(super) fn note(&mut self, epoch: u64, object: Arc<ObjectRef>, error: Error) {
        self.0.entry(epoch).or_insert((object, error));
    }

    /// Takes the failure of this epoch, which is the current one, and drops those of earlier
    /// epochs.
    pub(super) fn take(&mut self, epoch: u64) -> Option<(Arc<ObjectRef>, Error)> {
        self.forget_before(epoch);
        self.0.remove(&epoch)
    }

    /// Drops the failures of earlier epochs.
    pub(super) fn forget_before(&mut self, epoch: u64) {
        self.0 = self.0.split_off(&epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::s3::{Endpoint, Object};

    fn note(broken: &mut Broken, epoch: u64, key: &str) {
        let object = Object { key: key.to_owned(), size_bytes: 1, ..Object::default() };
        let endpoint = Arc::new(Endpoint::new("b", false, "h", "/", "r", vec![]));
        let object = Arc::new(ObjectRef::new(object, endpoint));
        broken.note(epoch, object, Error::new(ErrorKind::Endpoint, key));
    }

    fn take(broken: &mut Broken, epoch: u64) -> Option<String> {
        broken.take(epoch).map(|(object, error)| {
            assert_eq!(object.listed.key, error.message());
            object.listed.key.clone()
        })
    }

    #[test]
    fn an_epoch_that_is_passed_over_hides_no_later_one() {
        // In either order.
        for order in [[(1, "one"), (2, "two")], [(2, "two"), (1, "one")]] {
            let mut broken = Broken::default();
            order.into_iter().for_each(|(epoch, key)| note(&mut broken, epoch, key));
            assert_eq!(take(&mut broken, 0), None, "the one before is whole");
            // Its reader left the first of them before reaching the failure.
            assert_eq!(take(&mut broken, 2).as_deref(), Some("two"), "{order:?}");
            assert_eq!(take(&mut broken, 2), None, "it is reported once");
        }
    }

    #[test]
    fn the_first_reason_of_an_epoch_stays_and_what_is_over_is_forgotten() {
        let mut broken = Broken::default();
        for (epoch, key) in [(1, "first"), (1, "second"), (3, "later")] {
            note(&mut broken, epoch, key);
        }
        assert_eq!(take(&mut broken, 1).as_deref(), Some("first"));
        broken.forget_before(4);
        assert_eq!(take(&mut broken, 3), None);
        assert!(broken.0.is_empty());
    }
}
