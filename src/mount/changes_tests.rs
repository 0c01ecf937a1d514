//! Listings that change, by a seed: what is shown is what a new mount would show, and what was
//! there before has its old inode and position.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::refresh::{KnownNames, Refresh, RefreshCounts, Relisted, Stale};
use super::*;
use crate::mount::tree::Builder;
use crate::mount::versions::{Current, Versions};
use crate::plan::splitmix::SplitMix64;

const NOW: i64 = 1_700_000_000;
const NAMES: [&str; 6] = ["a", "b", "a-", "a.b", "ä", "0"];

/// Objects by their paths: a number for each version. A path that ends in a slash marks a folder.
type Bucket = BTreeMap<String, u64>;

fn below(random: &mut SplitMix64, most: u64) -> u64 {
    random.next_word() % most
}

fn endpoint() -> Arc<Endpoint> {
    Arc::new(Endpoint::new("bkt", false, "h", "/", "r", vec![]))
}

fn object(path: &str, version: u64) -> Object {
    let is_mark = path.ends_with('/');
    Object {
        key: path.to_owned(),
        etag: format!("\"{version}\""),
        size_bytes: if is_mark { 0 } else { version % 2_000 },
        last_modified: format!("2024-01-01T{:02}:00:00.000Z", version % 24),
        ..Object::default()
    }
}

/// A file that is shown: its path, its inode, and its version.
type Shown = BTreeMap<String, (Inode, String)>;

/// A mount without a kernel.
struct Mount {
    tree: Tree,
    changes: Changes,
    versions: Versions,
    changes_max: usize,
}

impl Mount {
    fn new(bucket: &Bucket) -> Self {
        let tree = tree(bucket);
        let versions = Versions::new(ROOT + tree.count());
        Self { tree, changes: Changes::default(), versions, changes_max: usize::MAX }
    }

    /// Takes these entries, and the end if the listing does not fail before.
    fn list(&mut self, entries: &[(String, u64)], is_whole: bool) -> (RefreshCounts, Stale) {
        let Self { tree, changes, versions, changes_max } = self;
        let mut state = KnownNames { tree, changes, versions };
        let mut refresh = Refresh::new(&mut state, NOW, *changes_max);
        let endpoint = endpoint();
        for (key, version) in entries {
            let path = key.strip_suffix('/').unwrap_or(key).to_owned();
            let (is_folder, endpoint) = (key.ends_with('/'), Arc::clone(&endpoint));
            let object = object(key, *version);
            refresh.take(&mut state, Relisted { path, is_folder, object, endpoint });
        }
        let mut stale = refresh.take_stale();
        if !is_whole {
            return (RefreshCounts::default(), stale);
        }
        let (counts, rest) = refresh.finish(&mut state);
        stale.folders.extend(rest.folders);
        stale.names.extend(rest.names);
        (counts, stale)
    }

    /// The inode that a name leads to, and its version.
    fn target(&self, name: Inode) -> Option<(Inode, String)> {
        match self.versions.of_name(name) {
            Current::Gone => None,
            Current::Version(inode, object) => Some((inode, object.etag.clone())),
            Current::Listed | Current::Unknown => {
                let first = self.changes.object(&self.tree, name);
                Some((name, first.map_or_else(String::new, |(object, _)| object.etag)))
            }
        }
    }

    /// The children of a folder in the order of readdir, each with its position: all of them, and
    /// those that are shown with their inodes.
    fn children(&self, folder: Inode) -> Vec<(String, Inode, Option<Inode>)> {
        let listed = self.tree.children(folder).unwrap_or(0..0);
        let added = self.changes.children(folder, 0, usize::MAX);
        let all = listed.chain(added.into_iter().map(|(inode, _)| inode));
        let shown = |name| {
            let is_shown = !self.changes.is_gone(name);
            is_shown.then(|| self.target(name)).flatten().map(|(inode, _)| inode)
        };
        all.map(|name| (self.changes.name(&self.tree, name).to_owned(), name, shown(name)))
            .collect()
    }

    /// All folders that are shown, each with its shown children; and all files.
    fn shown(&self) -> (BTreeMap<Inode, BTreeMap<String, Inode>>, BTreeSet<String>, Shown) {
        let (mut folders, mut paths, mut files) = (BTreeMap::new(), BTreeSet::new(), Shown::new());
        let mut open = vec![(ROOT, String::new())];
        while let Some((folder, above)) = open.pop() {
            let mut shown = BTreeMap::new();
            for (name, own, inode) in self.children(folder) {
                let Some(inode) = inode else { continue };
                let found = self.changes.lookup(&self.tree, folder, name.as_bytes());
                assert_eq!(found, Some(own), "what is listed is found: {above}{name}");
                assert!(shown.insert(name.clone(), inode).is_none(), "{above}{name} twice");
                let path = format!("{above}{name}");
                let facts = self.changes.facts(&self.tree, own).expect("it is there");
                if facts.kind == Kind::Folder {
                    open.push((own, format!("{path}/")));
                    paths.insert(path);
                } else {
                    files.insert(path, self.target(own).expect("it is shown"));
                }
            }
            folders.insert(folder, shown);
        }
        (folders, paths, files)
    }
}

fn tree(bucket: &Bucket) -> Tree {
    let mut builder = Builder::default();
    for (path, version) in bucket {
        builder.add(&object(path, *version), &endpoint(), 0).expect("short");
    }
    builder.finish(NOW).0
}

/// Folders and files of a new mount.
fn expected(bucket: &Bucket) -> (BTreeSet<String>, BTreeMap<String, String>, Totals) {
    let mount = Mount::new(bucket);
    let (_, folders, files) = mount.shown();
    let files = files.into_iter().map(|(path, (_, version))| (path, version)).collect();
    (folders, files, mount.tree.totals())
}

/// Changes some objects.
fn change(bucket: &mut Bucket, random: &mut SplitMix64, version: &mut u64) {
    for _ in 0..below(random, 12) {
        let depth = below(random, 4) + 1;
        let names = (0..depth).map(|_| NAMES[usize::try_from(below(random, 6)).expect("few")]);
        let path = names.collect::<Vec<_>>().join("/");
        *version += 1;
        match below(random, 8) {
            0..4 => drop(bucket.insert(path, *version)),
            4 => drop(bucket.insert(format!("{path}/"), *version)),
            5 => bucket.retain(|known, _| !known.starts_with(&path)),
            6 => {
                // A file becomes a folder, or a folder a file.
                let is_file = bucket.remove(&path).is_some();
                bucket.retain(|known, _| !known.starts_with(&format!("{path}/")));
                let new = if is_file { format!("{path}/b") } else { path };
                bucket.insert(new, *version);
            }
            _ => {
                if let Some(known) = bucket.keys().nth(usize::try_from(depth).expect("few")) {
                    let known = known.clone();
                    bucket.remove(&known);
                }
            }
        }
    }
}

/// Compares the counts with the files before and after.
fn expect_counts(found: RefreshCounts, before: &Shown, after: &Shown) {
    let mut counts = RefreshCounts::default();
    for (path, (_, version)) in after {
        match before.get(path) {
            None => counts.new += 1,
            Some((_, earlier)) => counts.replaced += u64::from(earlier != version),
        }
    }
    counts.gone = before.keys().filter(|path| !after.contains_key(*path)).count() as u64;
    assert_eq!(found, counts);
}

/// What the kernel has of folders and names, also of folders that are not shown any more.
#[derive(Default)]
struct Kernel {
    folders: BTreeMap<Inode, BTreeMap<String, Inode>>,
    names: BTreeMap<(Inode, String), Inode>,
}

impl Kernel {
    /// Notifies it of what is stale: what it has then must be right.
    fn expect(
        &mut self,
        mount: &Mount,
        stale: &Stale,
        now: &BTreeMap<Inode, BTreeMap<String, Inode>>,
    ) {
        self.folders.retain(|folder, _| !stale.folders.contains(folder));
        for name in &stale.names {
            let text = mount.changes.name(&mount.tree, *name).to_owned();
            self.names.remove(&(mount.changes.parent(&mount.tree, *name), text));
        }
        for (folder, children) in now {
            let known = self.folders.get(folder);
            assert!(known.is_none_or(|known| known == children), "{folder}: {known:?}");
        }
        for ((folder, name), inode) in &self.names {
            let Some(children) = now.get(folder) else { continue };
            assert_eq!(children.get(name), Some(inode), "{name} of {folder}");
        }
        for (folder, children) in now {
            let names = children.iter().map(|(name, inode)| ((*folder, name.clone()), *inode));
            self.names.extend(names);
        }
        self.folders.extend(now.clone());
    }
}

fn expect_times(mount: &Mount, files: &Shown) {
    for path in files.keys() {
        let mut parts = path.split('/');
        let name = parts.next_back().expect("a name");
        let (mut folder, mut above) = (ROOT, vec![ROOT]);
        for part in parts {
            folder = mount.changes.lookup(&mount.tree, folder, part.as_bytes()).expect("a folder");
            above.push(folder);
        }
        let file = mount.changes.lookup(&mount.tree, folder, name.as_bytes()).expect("a file");
        let newest = match mount.versions.of_name(file) {
            Current::Version(_, object) => object.modified_seconds().expect("a time"),
            _ => mount.changes.facts(&mount.tree, file).expect("a file").seconds,
        };
        for folder in above {
            let time = mount.changes.facts(&mount.tree, folder).expect("a folder").seconds;
            assert!(time >= newest, "{path}: {time} is older than {newest}");
        }
    }
}

#[test]
fn any_listings_show_what_a_new_mount_shows() {
    for seed in 0..1_000 {
        let mut random = SplitMix64(seed);
        let (mut bucket, mut version) = (Bucket::new(), 0);
        for _ in 0..below(&mut random, 5) {
            change(&mut bucket, &mut random, &mut version);
        }
        let mut mount = Mount::new(&bucket);
        let (mut versions, mut positions) = (HashMap::new(), HashMap::new());
        let mut kernel = Kernel::default();
        kernel.expect(&mount, &Stale::default(), &mount.shown().0);
        for step in 0..1 + below(&mut random, 8) {
            change(&mut bucket, &mut random, &mut version);
            let mut entries: Vec<(String, u64)> = bucket.clone().into_iter().collect();
            // As a directory bucket lists them.
            let is_unordered = below(&mut random, 8) == 0;
            if is_unordered {
                entries.sort_by_key(|(path, _)| path.bytes().rev().collect::<Vec<_>>());
            } else {
                // Where they are in order, what a file hides has no path.
                entries.retain(|(path, _)| {
                    let above = path.match_indices('/').map(|(at, _)| &path[..at]);
                    above.into_iter().all(|above| !bucket.contains_key(above))
                });
            }
            let is_whole = below(&mut random, 4) > 0;
            if !is_whole {
                let length = below(&mut random, entries.len() as u64 + 1);
                entries.truncate(usize::try_from(length).expect("few"));
            }
            let before = mount.shown().2;
            let (counts, stale) = mount.list(&entries, is_whole);
            let (now, paths, after) = mount.shown();
            let what = format!("seed {seed}, step {step}: {entries:?}");
            if is_whole {
                let (expected_paths, expected_files, totals) = expected(&bucket);
                let files = after.iter().map(|(path, (_, version))| (path, version));
                assert!(files.eq(expected_files.iter()), "{what}\n{after:?}\n{expected_files:?}");
                assert_eq!(paths, expected_paths, "{what}");
                assert_eq!(mount.changes.totals(&mount.tree), totals, "{what}");
                if !is_unordered {
                    expect_counts(counts, &before, &after);
                }
            } else {
                let kept = before.keys().all(|path| after.contains_key(path));
                assert!(kept, "{what}: what is not listed is gone only at the end");
                let is_there = |(path, (_, version)): (&String, &(Inode, String))| {
                    let listed = bucket.get(path).map(|version| format!("\"{version}\""));
                    before.contains_key(path) || listed.as_ref() == Some(version)
                };
                assert!(after.iter().all(is_there), "{what}: what was gone is not shown again");
            }
            kernel.expect(&mount, &stale, &now);
            expect_times(&mount, &after);
            for (path, (inode, version)) in &after {
                if let Some((earlier, same)) = before.get(path)
                    && same == version
                {
                    assert_eq!(inode, earlier, "{what}: {path} is what it was");
                }
                let known = versions.entry(*inode).or_insert((path.clone(), version.clone()));
                assert_eq!(known, &(path.clone(), version.clone()), "{what}: {inode}");
            }
            for folder in now.keys() {
                let children = mount.children(*folder);
                for (position, (name, own, _)) in children.into_iter().enumerate() {
                    let known = positions.entry((*folder, position)).or_insert((name, own)).clone();
                    assert_eq!(known.1, own, "{what}: {} at {position} of {folder}", known.0);
                }
            }
        }
    }
}

fn bucket(objects: &[(&str, u64)]) -> Bucket {
    objects.iter().map(|(path, version)| ((*path).to_owned(), *version)).collect()
}

fn list(mount: &mut Mount, objects: &[(&str, u64)]) -> RefreshCounts {
    let entries: Vec<_> = bucket(objects).into_iter().collect();
    mount.list(&entries, true).0
}

#[test]
fn what_is_gone_comes_back_as_it_was() {
    let all = [("d/e/x", 1), ("d/y", 2), ("z", 3)];
    let mut mount = Mount::new(&bucket(&all));
    let before = mount.shown().2;
    assert_eq!(list(&mut mount, &all), RefreshCounts::default());
    assert_eq!(
        list(&mut mount, &[("z", 3)]),
        RefreshCounts { gone: 2, ..RefreshCounts::default() }
    );
    let folder = mount.tree.lookup(ROOT, b"d").expect("it was listed");
    let inner = mount.tree.lookup(folder, b"e").expect("it was listed");
    assert_eq!(mount.changes.lookup(&mount.tree, ROOT, b"d"), None);
    // Also for a program that is in it.
    assert_eq!(mount.changes.lookup(&mount.tree, inner, b"x"), None);
    assert!(mount.changes.is_removed(&mount.tree, inner) && !mount.changes.is_gone(inner));
    assert_eq!(list(&mut mount, &all), RefreshCounts { new: 2, ..RefreshCounts::default() });
    assert_eq!(mount.shown().2, before);
}

#[test]
fn a_lookup_that_finds_an_object_first_agrees_with_the_listing() {
    let mut mount = Mount::new(&bucket(&[("x", 1), ("y", 2)]));
    let x = mount.tree.lookup(ROOT, b"x").expect("it was listed");
    mount.versions.note_changed(x);
    mount.versions.found(x, Some(object("x", 7)));
    let (inode, _) = mount.target(x).expect("it was found");
    assert_eq!(list(&mut mount, &[("x", 7), ("y", 2)]), RefreshCounts::default());
    assert_eq!(mount.target(x).expect("it is there").0, inode);
    // Nobody has looked it up yet.
    mount.versions.note_changed(inode);
    assert_eq!(
        list(&mut mount, &[("x", 8), ("y", 2)]),
        RefreshCounts { replaced: 1, ..RefreshCounts::default() }
    );
    assert_ne!(mount.target(x).expect("it is there").0, inode);
}

#[test]
fn changes_without_room_are_left_out_and_counted() {
    let mut mount = Mount::new(&bucket(&[("a", 1), ("b", 2)]));
    mount.changes_max = 4;
    let more = [("a", 3), ("b", 2), ("d/e/f", 5), ("g", 6), ("h", 7)];
    // The new version of `a`; `d/` needs three, and there are three; then there is no room.
    assert_eq!(
        list(&mut mount, &more),
        RefreshCounts { new: 1, replaced: 1, left_out: 2, gone: 0 }
    );
    assert_eq!(mount.shown().2.into_keys().collect::<Vec<_>>(), ["a", "b", "d/e/f"]);
    // What is gone needs none, and a newer version of what was replaced neither.
    let later = [("a", 8), ("b", 9), ("g", 6)];
    assert_eq!(
        list(&mut mount, &later),
        RefreshCounts { new: 0, replaced: 1, left_out: 2, gone: 1 }
    );
    assert_eq!(mount.target(ROOT + 1).expect("a").1, "\"8\"");
    assert_eq!(mount.target(ROOT + 2).expect("b, as it was").1, "\"2\"");
    // No folder is added for a file that finds no room in it.
    mount.changes_max = 6;
    assert_eq!(list(&mut mount, &[("a", 8), ("b", 2), ("i/j/k", 1)]).left_out, 1);
    assert_eq!(mount.changes.lookup(&mount.tree, ROOT, b"i"), None);
}

#[test]
fn objects_without_etags_differ_by_time_and_size() {
    let mut mount = Mount::new(&bucket(&[("x", 1)]));
    let mut entry = |seconds: u32, size_bytes: u64| {
        let last_modified = format!("2024-01-01T00:00:{seconds:02}.000Z");
        let (etag, key) = (String::new(), "x".to_owned());
        let object = Object { etag, key, size_bytes, last_modified, ..Object::default() };
        let Mount { tree, changes, versions, .. } = &mut mount;
        let mut state = KnownNames { tree, changes, versions };
        let mut refresh = Refresh::new(&mut state, NOW, 10);
        let (path, endpoint) = ("x".to_owned(), endpoint());
        refresh.take(&mut state, Relisted { path, is_folder: false, object, endpoint });
        refresh.finish(&mut state).0.replaced
    };
    let replaced = [(1, 5), (1, 5), (2, 5), (2, 6), (2, 6)].map(|(time, size)| entry(time, size));
    assert_eq!(replaced, [1, 0, 1, 1, 0]);
}

#[test]
fn what_a_lookup_finds_while_a_listing_is_taken_stays() {
    let mut mount = Mount::new(&bucket(&[("new", 1), ("old", 2), ("same", 3)]));
    let [new, old] =
        [&b"new"[..], b"old"].map(|name| mount.tree.lookup(ROOT, name).expect("it is"));
    let Mount { tree, changes, versions, .. } = &mut mount;
    let mut state = KnownNames { tree, changes, versions };
    let mut refresh = Refresh::new(&mut state, NOW, 10);
    // Its pages came before `new` was replaced, and before `old` was put again.
    for name in [new, old] {
        state.versions.note_changed(name);
    }
    state.versions.found(new, Some(object("new", 7)));
    state.versions.found(old, Some(object("old", 8)));
    let (path, endpoint) = ("new".to_owned(), endpoint());
    refresh
        .take(&mut state, Relisted { path, is_folder: false, object: object("new", 1), endpoint });
    let (counts, _) = refresh.finish(&mut state);
    assert_eq!(counts, RefreshCounts { gone: 1, ..RefreshCounts::default() }, "`same`");
    assert_eq!(mount.target(new).expect("it is there").1, "\"7\"");
    assert_eq!(mount.target(old).expect("it is there").1, "\"8\"");
    // The next listing knows more.
    let counts = list(&mut mount, &[("new", 9)]);
    assert_eq!(counts, RefreshCounts { replaced: 1, gone: 1, ..RefreshCounts::default() });
}
