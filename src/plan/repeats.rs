//! Keys that a server lists twice.
//!
//! Pure. S3 lists each key once. Other servers may begin a page with the end of the one before, or
//! repeat a name of a folder that changes while they read it. In the order of UTF-8 bytes only the
//! last key can be repeated. In any other order, as of directory buckets and some servers, at least
//! the last [`RECENT_KEYS`] keys are compared, by 64-bit hashes, so memory is bounded.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use crate::s3::Object;
use crate::s3::list::{PAGE_KEYS_MAX, Page};

/// Keys that are compared in a listing without order.
pub const RECENT_KEYS: usize = 65_536;

/// Follows the keys of one listing in the server's order.
#[derive(Debug, Default)]
pub struct Repeats {
    last: String,
    is_unordered: bool,
    hasher: RandomState,
    recent: HashSet<u64>,
    earlier: HashSet<u64>,
}

impl Repeats {
    /// Removes the objects that were listed before.
    pub fn remove_from(&mut self, objects: &mut Vec<Object>) {
        objects.retain(|object| self.is_new(&object.key));
    }

    fn is_new(&mut self, key: &str) -> bool {
        if !self.is_unordered && key == self.last {
            return false;
        }
        self.is_unordered |= key < self.last.as_str();
        let hash = self.hasher.hash_one(key);
        let is_known = || self.recent.contains(&hash) || self.earlier.contains(&hash);
        if self.is_unordered && is_known() {
            return false;
        }
        // The order may end here: then the keys of the last page are compared.
        let most = if self.is_unordered { RECENT_KEYS } else { PAGE_KEYS_MAX as usize };
        if self.recent.len() >= most {
            std::mem::swap(&mut self.recent, &mut self.earlier);
            self.recent.clear();
        }
        self.recent.insert(hash);
        if !self.is_unordered {
            key.clone_into(&mut self.last);
        }
        true
    }
}

/// [`Repeats`] for one level of a bucket, whose objects and folders have an order each.
#[derive(Debug, Default)]
pub struct LevelRepeats {
    objects: Repeats,
    folders: Repeats,
}

impl LevelRepeats {
    /// Removes the objects and folders that were listed before.
    pub fn remove_from(&mut self, page: &mut Page) {
        self.objects.remove_from(&mut page.objects);
        page.folders.retain(|folder| self.folders.is_new(folder));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(pages: &[&[&str]]) -> Vec<String> {
        let mut repeats = Repeats::default();
        let pages = pages.iter().flat_map(|keys| {
            let object = |key: &&str| Object { key: (*key).to_owned(), ..Object::default() };
            let mut page: Vec<Object> = keys.iter().map(object).collect();
            repeats.remove_from(&mut page);
            page
        });
        pages.map(|object| object.key).collect()
    }

    #[test]
    fn a_key_is_listed_once_in_the_order_of_the_server() {
        assert_eq!(listed(&[&["a", "a", "b"], &["c"]]), ["a", "b", "c"]);
        assert_eq!(listed(&[&["z", "a", "m", "a"]]), ["z", "a", "m"]);
        // A page begins with the end of the one before.
        assert_eq!(listed(&[&["a", "b"], &["b", "c"], &["c"]]), ["a", "b", "c"]);
        assert_eq!(listed(&[&["a", "b", "c"], &["b", "c", "d"]]), ["a", "b", "c", "d"]);
        assert_eq!(listed(&[&["z"], &["a"], &["z", "m"], &["a"]]), ["z", "a", "m"]);
        // Without a key that is there twice, any order is left as it is.
        let walked = ["a/x", "a-b", "a.c", "b", "B"];
        assert_eq!(listed(&[&walked]), walked);
    }

    #[test]
    fn its_memory_is_bounded_and_near_repetitions_are_found() {
        let mut repeats = Repeats::default();
        for number in 0..5_000 {
            assert!(repeats.is_new(&format!("{number:06}")));
        }
        let kept = repeats.recent.len() + repeats.earlier.len();
        assert!(kept <= 2 * PAGE_KEYS_MAX as usize, "{kept}");
        for number in (0..300_000).rev() {
            assert!(
                repeats.is_new(&format!("x{number}")) && !repeats.is_new(&format!("x{number}"))
            );
        }
        assert!(!repeats.is_new(&format!("x{}", RECENT_KEYS - 1)));
        assert!(repeats.recent.len() + repeats.earlier.len() <= 2 * RECENT_KEYS);
    }

    #[test]
    fn objects_and_folders_of_a_level_have_an_order_each() {
        let page = |key: &str, folder: &str| Page {
            objects: vec![Object { key: key.to_owned(), ..Object::default() }],
            folders: vec![folder.to_owned()],
            next_token: None,
        };
        let mut repeats = LevelRepeats::default();
        let mut left = |mut page: Page| {
            repeats.remove_from(&mut page);
            (page.objects.len(), page.folders.len())
        };
        assert_eq!(left(page("b", "a/")), (1, 1));
        assert_eq!(left(page("c", "a/")), (1, 0));
        assert_eq!(left(page("c", "b/")), (0, 1));
        assert!(!repeats.objects.is_unordered && !repeats.folders.is_unordered);
    }
}
