//! The project's style as a test: what the compiler and clippy cannot see.
//!
//! Each check has been seen to fail once, on a line that broke it. Functions of at most 70 lines,
//! unsafe blocks that are documented, clocks and files only at edges are clippy's (clippy.toml);
//! formatting is rustfmt's; links of the documentation are rustdoc's.

mod documents;
mod rooms;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rooms::{EXCEPTIONS, FLOORS, ROOMS};

const COLUMNS_MAX: usize = 100;
const LINES_MAX: usize = 600;

/// Most files of Rust side by side in a folder of `src/`: more are several ideas.
const FILES_MAX: usize = 20;

/// Most files of `src/` that have a type of one name: more make the name say nothing.
const NAMESAKES_MAX: usize = 2;

/// Folders of `src/` that hold rooms, each with its own map.
const GROUPS: [&str; 6] = ["link", "engine", "files", "mount", "report", "text"];

/// What a pure room never names.
const IMPURE: [&str; 11] = [
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::thread",
    "std::os",
    "std::env::",
    "Instant::now",
    "SystemTime::now",
    ".elapsed()",
    "tokio",
    "rustix",
];

/// Where `unsafe` may stand.
const UNSAFE: [&str; 5] = [
    "src/sys/",
    "tools/origin/src/map.rs",
    "tools/python/src/buffer.rs",
    "tools/python/src/host/peer.rs",
    "tools/python/src/host/shared.rs",
];

/// Where statics may stand, each with its reason. All else is a field of what is handed on.
const STATICS: [(&str, &str); 4] = [
    ("src/sys/process_state.rs", "each says who needs it where nothing is handed on"),
    ("src/report/stderr.rs", "the queue of standard error, of which a process has one"),
    ("src/mount/serving/reply.rs", "a buffer of each thread that a library starts"),
    ("src/checksum/combine.rs", "constants"),
];

#[derive(Clone)]
struct Source {
    /// Below the project's folder.
    path: String,
    text: String,
}

impl Source {
    /// The lines before the tests of the file, with their numbers; none of a file of tests.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let tests_at = self.text.find("\n#[cfg(test)]\nmod tests").unwrap_or(self.text.len());
        let tests_at = if self.is_test() { 0 } else { tests_at };
        (1..).zip(self.text[..tests_at].lines())
    }

    /// The lines before the tests of the file that are no comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("tests.rs") || self.path == "src/control/loopback.rs"
    }

    /// The room of a file of `src/`; the program and tests are in none.
    fn room(&self) -> Option<&str> {
        let below = self.path.strip_prefix("src/").filter(|_| !self.is_test())?;
        let mut names = below.split('/').map(|name| name.strip_suffix(".rs").unwrap_or(name));
        let first = names.next()?;
        let second = names.next().filter(|name| GROUPS.contains(&first) && *name != "mod");
        Some(second.unwrap_or(first)).filter(|room| *room != "main")
    }

    /// The room of a file of the origin; its map is in none either.
    fn floor(&self) -> Option<&str> {
        let below = self.path.strip_prefix("tools/origin/src/").filter(|_| !self.is_test())?;
        below.strip_suffix(".rs").filter(|file| !["lib", "main"].contains(file))
    }
}

fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below these folders of the project whose names end so, in order.
fn sources(folders: &[&str], ending: &str) -> Vec<Source> {
    let mut paths = Vec::new();
    folders.iter().for_each(|folder| walk(&project().join(folder), ending, &mut paths));
    paths.sort();
    assert!(!paths.is_empty(), "no {ending} below {folders:?}");
    let read = |path: PathBuf| Source {
        text: std::fs::read_to_string(&path).expect("a text"),
        path: path.strip_prefix(project()).expect("below").to_str().expect("UTF-8").to_owned(),
    };
    paths.into_iter().map(read).collect()
}

fn walk(folder: &Path, ending: &str, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            walk(&path, ending, paths);
        } else if path.to_str().is_some_and(|path| path.ends_with(ending)) {
            paths.push(path);
        }
    }
}

fn rust() -> Vec<Source> {
    let tools = [
        "tools/examples",
        "tools/hosts/src",
        "tools/hosts/tests",
        "tools/python/src",
        "tools/fuzz/src",
        "tools/fuzz/tests",
        "tools/fuzz/libfuzzer/targets",
    ];
    sources(&[&["benches", "src", "tests", "tools/origin"], &tools[..]].concat(), ".rs")
}

/// Fails with all complaints at once.
fn assert_none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    let without = rust().into_iter().filter(|source| !source.text.starts_with("//! "));
    assert_none(without.map(|source| format!("{}: begin with //!", source.path)).collect());
}

#[test]
fn lines_and_files_are_short() {
    let mut complaints = Vec::new();
    for source in rust() {
        for (number, line) in (1..).zip(source.text.lines()) {
            if line.chars().count() > COLUMNS_MAX {
                complaints.push(format!("{}:{number}: over {COLUMNS_MAX} columns", source.path));
            }
        }
        let lines = source.lines().count();
        if lines > LINES_MAX {
            complaints.push(format!("{}: {lines} lines before its tests", source.path));
        }
    }
    assert_none(complaints);
}

#[test]
fn folders_have_few_files_side_by_side() {
    let mut counts = BTreeMap::<String, usize>::new();
    for source in sources(&["src"], ".rs") {
        let (folder, _) = source.path.rsplit_once('/').expect("below src");
        *counts.entry(folder.to_owned()).or_default() += 1;
    }
    let many = counts.into_iter().filter(|(_, count)| *count > FILES_MAX);
    let complaint = |(folder, count)| format!("{folder}: {count} files; group them by idea");
    assert_none(many.map(complaint).collect());
}

/// The name of the type that a line declares.
fn declared_type(line: &str) -> Option<&str> {
    let is_visibility = |word: &&str| word.starts_with("pub") || word.ends_with(')');
    let mut words = line.split_whitespace().skip_while(is_visibility);
    let is_type = ["struct", "enum", "trait", "union"].contains(&words.next()?);
    let name = words.next().filter(|_| is_type)?;
    name.split(|c: char| !c.is_alphanumeric()).next()
}

#[test]
fn few_types_have_one_name() {
    let mut places = BTreeMap::<String, BTreeSet<String>>::new();
    for source in sources(&["src"], ".rs") {
        for name in source.code().filter_map(|(_, line)| declared_type(line)) {
            places.entry(name.to_owned()).or_default().insert(source.path.clone());
        }
    }
    assert!(places.len() > 500, "{} names", places.len());
    let many = places.into_iter().filter(|(_, files)| files.len() > NAMESAKES_MAX);
    let complaint = |(name, files)| format!("{name}: name one of them otherwise: {files:?}");
    assert_none(many.map(complaint).collect());
}

#[test]
fn lines_of_the_python_package_are_short() {
    let mut complaints = Vec::new();
    for source in [sources(&["tools/python"], ".py"), sources(&["tools/python"], ".pyi")].concat() {
        for (number, line) in (1..).zip(source.text.lines()) {
            if line.chars().count() > COLUMNS_MAX {
                complaints.push(format!("{}:{number}: over {COLUMNS_MAX} columns", source.path));
            }
        }
        let text = source.text.trim_start_matches("#!/usr/bin/env python3\n");
        let is_described = text.starts_with("\"\"\"") || source.path.ends_with(".pyi");
        if !is_described && !source.text.is_empty() {
            complaints.push(format!("{}: begin with what it is", source.path));
        }
    }
    assert_none(complaints);
}

#[test]
fn nothing_is_left_unfinished() {
    // In pieces, so that this file does not find itself.
    let marks = ["FIX-ME", "TO-DO", "X-XX", "dbg-!(", "todo-!(", "unimplemented-!(", "HA-CK"]
        .map(|mark| mark.replace('-', ""));
    assert_none(find(&rust(), &marks));
}

#[test]
fn no_words_of_a_workplace() {
    let words = ["/wo-rk/", "../sha-red", "C-EO", "sub-agent", "/ro-ot/", "/fa-rm/"]
        .map(|word| word.replace('-', ""));
    let mut files = rust();
    files.extend(sources(&["tools"], ".py"));
    files.extend(sources(&["src/guide"], ".md"));
    for name in ["README.md", "CHANGELOG.md", "Cargo.toml", "clippy.toml", ".ci/run"] {
        let text = std::fs::read_to_string(project().join(name)).unwrap_or_default();
        files.push(Source { path: name.to_owned(), text });
    }
    assert_none(find(&files, &words));
}

fn find(files: &[Source], words: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        for (number, line) in (1..).zip(file.text.lines()) {
            let hits = words.iter().filter(|word| line.contains(*word));
            found.extend(hits.map(|word| format!("{}:{number}: {word}", file.path)));
        }
    }
    found
}

#[test]
fn unsafe_stays_in_its_rooms() {
    let mut complaints = Vec::new();
    for source in rust() {
        let may = UNSAFE.iter().any(|room| source.path.starts_with(room));
        for (number, line) in source.code().filter(|_| !may) {
            let mut words = line.split_whitespace();
            if words.any(|word| word == "unsafe") {
                complaints.push(format!("{}:{number}: unsafe", source.path));
            }
        }
    }
    assert_none(complaints);
}

/// True if a line declares a static, or one of each thread.
fn is_static(line: &str) -> bool {
    let is_visibility = |word: &&str| word.starts_with("pub") || word.ends_with(')');
    let mut words = line.split_whitespace().skip_while(is_visibility);
    words.next() == Some("static") || line.contains("thread_local!")
}

#[test]
fn statics_stay_in_their_files() {
    let mut complaints = Vec::new();
    let mut found = BTreeSet::new();
    for source in sources(&["src"], ".rs") {
        for (number, line) in source.code().filter(|(_, line)| is_static(line)) {
            match STATICS.iter().find(|(file, _)| *file == source.path) {
                Some((file, _)) => drop(found.insert(*file)),
                None => complaints.push(format!("{}:{number}: {}", source.path, line.trim())),
            }
        }
    }
    let unused = STATICS.iter().filter(|(file, _)| !found.contains(file));
    complaints.extend(unused.map(|(file, _)| format!("{file}: has none any more")));
    assert_none(complaints);
}

type Arrows = BTreeMap<String, BTreeSet<String>>;
type RoomOf = fn(&Source) -> Option<&str>;

/// The rooms that each room uses, as written in its code.
fn arrows(folder: &str, groups: &[&str], room_of: RoomOf) -> Arrows {
    let mut arrows = Arrows::new();
    for source in sources(&[folder], ".rs") {
        let Some(room) = room_of(&source) else { continue };
        let used = arrows.entry(room.to_owned()).or_default();
        for (number, line) in source.code() {
            for rest in line.split("crate::").skip(1) {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
                let mut names = rest[..end.unwrap_or(rest.len())].split("::");
                let first = names.next().unwrap_or_default();
                let is_group = groups.contains(&first);
                let other = if is_group { names.next().unwrap_or_default() } else { first };
                assert!(!other.is_empty(), "{}:{number}: name one room", source.path);
                if other != room {
                    used.insert(other.to_owned());
                }
            }
        }
    }
    arrows
}

/// Where a table is not what the code is.
fn differences(actual: &Arrows, table: &[(&str, &[&str])]) -> Vec<String> {
    let mut complaints = Vec::new();
    let known: BTreeSet<&str> = table.iter().map(|(room, ..)| *room).collect();
    let new = actual.keys().filter(|room| !known.contains(room.as_str()));
    complaints.extend(new.map(|room| format!("{room}: not in the table of rooms")));
    for &(room, may) in table {
        let used = actual.get(room).cloned().unwrap_or_default();
        let may: BTreeSet<String> = may.iter().map(|other| (*other).to_owned()).collect();
        for other in used.symmetric_difference(&may) {
            let what = if may.contains(other) { "is in the table, not in" } else { "is new in" };
            complaints.push(format!("{room} -> {other}: {what} the code"));
        }
    }
    complaints
}

#[test]
fn rooms_use_only_what_they_may() {
    let table = ROOMS.map(|(room, _, may)| (room, may));
    assert_none(differences(&arrows("src", &GROUPS, Source::room), &table));
}

/// The folder of `src/` that holds a room: its group, or the room itself.
fn folder_of(source: &Source) -> Option<&str> {
    source.room()?;
    let first = source.path.strip_prefix("src/")?.split('/').next()?;
    Some(first.strip_suffix(".rs").unwrap_or(first)).filter(|folder| *folder != "lib")
}

#[test]
fn folders_use_only_folders_below_them() {
    // No group is looked into: what is named behind `crate::` is a folder.
    let mut left = arrows("src", &[], folder_of);
    while !left.is_empty() {
        let is_lowest =
            |uses: &BTreeSet<String>| uses.iter().all(|other| !left.contains_key(other));
        let lowest: Vec<String> =
            left.iter().filter(|(_, uses)| is_lowest(uses)).map(|(name, _)| name.clone()).collect();
        assert!(!lowest.is_empty(), "these folders know each other in a circle: {left:#?}");
        lowest.iter().for_each(|name| drop(left.remove(name)));
    }
}

#[test]
fn a_room_is_left_by_the_full_name_of_another() {
    let mut complaints = Vec::new();
    for source in sources(&["src"], ".rs") {
        let Some(room) = source.room() else { continue };
        let names = source.path.split('/').map(|name| name.strip_suffix(".rs").unwrap_or(name));
        let below = names.skip_while(|name| *name != room).skip(1).filter(|name| *name != "mod");
        let way_out = "super::".repeat(below.count() + 1);
        let out = source.code().filter(|(_, line)| line.contains(&way_out));
        complaints.extend(out.map(|(at, _)| format!("{}:{at}: begin at crate::", source.path)));
    }
    assert_none(complaints);
}

#[test]
fn files_of_the_origin_use_only_those_above_them() {
    let actual = arrows("tools/origin/src", &[], Source::floor);
    let mut complaints = differences(&actual, &FLOORS);
    for (place, (file, uses)) in FLOORS.iter().enumerate() {
        let above = &FLOORS[..place];
        let wrong = uses.iter().filter(|other| !above.iter().any(|(name, _)| name == *other));
        complaints.extend(wrong.map(|other| format!("{file} -> {other}: not above it")));
    }
    assert_none(complaints);
}

#[test]
fn arrows_go_one_way() {
    let mut complaints = Vec::new();
    let place = |room: &str| ROOMS.iter().position(|(name, ..)| *name == room);
    for (room, pure, may) in ROOMS {
        for other in may {
            let excepted = EXCEPTIONS.iter().any(|(from, to, _)| (*from, *to) == (room, *other));
            let above = place(other).expect("a room") < place(room).expect("a room");
            // sys lends its plain types (Handle, Errno); its ring and pool stay the worker's.
            let to_edge = pure && *other != "sys" && !ROOMS[place(other).expect("a room")].1;
            if (!above || to_edge) && !excepted {
                complaints.push(format!("{room} -> {other}: goes back, or out of a pure room"));
            }
        }
    }
    assert_none(complaints);
}

#[test]
fn pure_rooms_touch_nothing() {
    let pure: Vec<&str> =
        ROOMS.iter().filter(|(_, pure, _)| *pure).map(|(room, ..)| *room).collect();
    let mut complaints = Vec::new();
    for source in sources(&["src"], ".rs") {
        if !source.room().is_some_and(|room| pure.contains(&room)) {
            continue;
        }
        for (number, line) in source.code() {
            let hits = IMPURE.iter().filter(|name| line.contains(*name));
            complaints.extend(hits.map(|name| format!("{}:{number}: {name}", source.path)));
        }
    }
    assert_none(complaints);
}

/// The names of an enum's variants, from its text.
fn variants(text: &str, name: &str) -> Vec<String> {
    let at = text.find(&format!("pub enum {name} {{")).expect("an enum");
    let body = &text[at..at + text[at..].find("\n}").expect("its end")];
    let line = |line: &str| {
        let rest = line.strip_prefix("    ").filter(|rest| rest.starts_with(char::is_uppercase))?;
        Some(rest.split(|c: char| !c.is_alphanumeric()).next()?.to_owned())
    };
    body.lines().filter_map(line).collect()
}

#[test]
fn every_reason_for_a_retry_is_given_somewhere() {
    let all = sources(&["src"], ".rs");
    let of_room = |source: &&Source| source.path == "src/link/failure.rs";
    let room = all.iter().find(of_room).expect("the room of failures");
    let reasons = variants(&room.text, "RetryReason");
    assert_eq!(reasons.len(), 19, "{reasons:?}");
    let mut complaints = Vec::new();
    let counted = |reason: &str| {
        let alone = format!("RetryReason::{reason}");
        room.code().any(|(_, line)| line.contains(&arm(reason)) || line.trim() == alone)
    };
    complaints.extend(reasons.iter().filter(|reason| !counted(reason)).cloned());
    for failure in variants(&room.text, "Failure") {
        let given = all.iter().filter(|source| !of_room(source)).any(|source| {
            source.code().any(|(_, line)| line.contains(&format!("Failure::{failure}")))
        });
        if !given {
            complaints.push(format!("Failure::{failure} is never made"));
        }
    }
    assert_none(complaints);
}

fn arm(reason: &str) -> String {
    format!("=> RetryReason::{reason},")
}

#[test]
fn names_are_made_fit_for_a_screen_in_one_place() {
    let ways = ["escape_debug", "escape_default", "escape_unicode", "is_control"];
    let mut complaints = Vec::new();
    for source in sources(&["src"], ".rs") {
        for (number, line) in source.code().filter(|_| source.path != "src/text/shown.rs") {
            if ways.iter().any(|way| line.contains(way)) {
                complaints.push(format!("{}:{number}: use crate::text::shown", source.path));
            }
        }
    }
    assert_none(complaints);
}

#[test]
fn the_kernel_that_is_needed_is_written_once() {
    let version = inrush::sys::uring::KERNEL_MIN;
    let number = version.strip_prefix("Linux ").expect("a kernel");
    let mut found = Vec::new();
    for source in sources(&["src"], ".rs") {
        let lines = (1..).zip(source.text.lines()).filter(|(_, line)| line.contains(number));
        found.extend(lines.map(|(at, _): (usize, _)| format!("{}:{at}", source.path)));
    }
    assert_eq!(found.len(), 1, "{found:?}");
    let readme = std::fs::read_to_string(project().join("README.md")).expect("README.md");
    assert!(readme.contains(version), "README.md does not name {version}");
}
