//! The simulated file system: what has a name, what is being written, and whether each byte is
//! delivered and written exactly once.

use std::collections::{BTreeMap, BTreeSet};

use inrush::error::{Error, ErrorKind};
use inrush::files::file_download::{FileDownload, Outcome};
use inrush::files::host::{FileError, FileJob, FileTask, SlotBytes};
use inrush::files::sink::Sink;
use inrush::files::sink::file::{OpenFile, allocation};
use inrush::limits::{DIRECT_ALIGNMENT_BYTES, EMPTY_OBJECTS_PER_TURN_MAX, SLOT_BYTES_MIN};
use inrush::sys::{Errno, Handle};

use super::chance::Chance;
use super::origin::Rates;
use super::pieces::Pieces;
use super::seeds::{self, seeds};
use super::world::{World, number};
use super::{CALM, Scenario, checked, set_up_with};

/// What calls of a file system fail with.
const ERRORS: [(Errno, &str); 4] = [
    (Errno::NO_SPACE, "disk full"),
    (Errno::IO, "disk broken"),
    (Errno::new(24), "no descriptor"),
    (Errno::new(13), "no permission"),
];

/// A file under its temporary name.
#[derive(Debug)]
pub(crate) struct File {
    path: String,
    direct: bool,
    bytes: Vec<u8>,
    /// Bytes that were written.
    written: Vec<bool>,
    /// What writes were begun for; what goes on with a short one is not begun.
    begun: Pieces,
    /// Where a write that was short or failed for now goes on, by where it ends.
    unfinished: BTreeMap<u64, u64>,
    size: usize,
    part: usize,
    /// Ranges that were said to be complete.
    ranges: BTreeSet<u64>,
    done: bool,
}

impl File {
    /// A write comes: it goes on with a short one, or no byte of it was ever in another.
    fn take(&mut self, offset: u64, length: u64) {
        let (path, end) = (&self.path, offset + length);
        match self.unfinished.remove(&end) {
            Some(from) => assert_eq!(offset, from, "{path}: a short write goes on where it was"),
            None => {
                let once = self.begun.add(offset, length);
                assert!(once, "{path}: bytes {offset}-{} are written twice", end - 1);
            }
        }
    }
}

impl World {
    /// An empty file or a folder is made: there may be very many.
    pub(super) fn make_empty(&mut self) {
        self.made_empty += 1;
        let few = self.made_empty <= EMPTY_OBJECTS_PER_TURN_MAX;
        assert!(few, "empty objects keep a worker from its connections");
    }

    /// Files that are neither published nor removed.
    pub(crate) fn leftovers(&self) -> usize {
        self.files.iter().filter(|file| !file.done).count()
    }

    /// Ranges that are written to their last byte, and no later run knows of it.
    pub(crate) fn unnoted(&self) -> usize {
        let unnoted = |file: &File| {
            let ranges = file.written[..file.size].chunks(file.part).zip(0..);
            let is_whole = |written: &[bool]| written.iter().all(|written| *written);
            ranges.filter(|(range, index)| is_whole(range) && !file.ranges.contains(index)).count()
        };
        self.files.iter().map(unnoted).sum()
    }

    /// An error at the file system, as rarely as the rates say.
    fn trouble(&mut self, step: &'static str, path: &str) -> Result<(), FileError> {
        let rate = self.rates.disk_per_mille;
        if !self.chance.hits(rate) {
            return Ok(());
        }
        self.count(step);
        let (errno, name) = ERRORS[usize::try_from(self.chance.below(4)).expect("small")];
        seeds::note(name, 1);
        Err(FileError::new(step, path.to_owned(), errno))
    }

    pub(super) fn write(
        &mut self,
        file: usize,
        bytes: &[u8],
        offset: u64,
        at: usize,
    ) -> Result<u32, Errno> {
        let length = bytes.len() as u64;
        self.files[file].take(offset, length);
        let rate = self.rates.disk_per_mille;
        if self.chance.hits(rate) {
            self.count("write error");
            let (errno, name) = ERRORS[usize::from(!self.chance.hits(500))];
            seeds::note(name, 1);
            return Err(errno);
        }
        if self.chance.hits(self.rates.network_per_mille) {
            self.count("write again");
            self.files[file].unfinished.insert(offset + length, offset);
            return Err(if self.chance.hits(500) { Errno::INTERRUPTED } else { Errno::AGAIN });
        }
        let mut count = bytes.len();
        if self.chance.hits(self.rates.network_per_mille * 2) {
            self.count("short write");
            count = usize::try_from(self.chance.below(length + 1)).expect("small");
        }
        let found = &mut self.files[file];
        let start = usize::try_from(offset).expect("small");
        if found.direct {
            let aligned = [start, at, bytes.len()].iter().all(|value| value % 4096 == 0);
            assert!(aligned, "a direct write is aligned: {start} {at} {}", bytes.len());
        }
        assert!(start + bytes.len() <= found.bytes.len(), "a write never extends the file");
        found.bytes[start..start + count].copy_from_slice(&bytes[..count]);
        found.written[start..start + count].fill(true);
        if count < bytes.len() {
            // A direct write goes on at an aligned place.
            let ragged = if found.direct { count % DIRECT_ALIGNMENT_BYTES as usize } else { 0 };
            let from = offset + (count - ragged) as u64;
            found.unfinished.insert(offset + length, from);
        }
        Ok(u32::try_from(count).expect("small"))
    }
}

impl World {
    /// Does what a job is to do.
    pub(super) fn carry_out(&mut self, task: &FileTask) -> Result<bool, FileError> {
        let download = &task.download;
        let file = || download.created_file().expect("it was created");
        match &task.job {
            FileJob::MakeFolder => self.make_folder(&download.path)?,
            FileJob::WriteWhole(piece) => {
                self.write_whole(download, piece.as_ref().map_or(&[], SlotBytes::bytes))?;
            }
            FileJob::Create => return self.create_once(download),
            FileJob::Note { index, prefix_bytes: None } => self.range_done(file(), *index),
            FileJob::Note { index, prefix_bytes: Some(bytes) } => {
                self.range_reached(file(), *index, *bytes);
            }
            FileJob::Publish => self.publish(file(), download)?,
            FileJob::Abandon => self.abandon(file()),
        }
        Ok(true)
    }

    fn create_once(&mut self, download: &FileDownload) -> Result<bool, FileError> {
        let mut outcome = Ok(false);
        download.file(|| {
            let file = self.create(download);
            outcome = file.as_ref().map(|_| true).map_err(Clone::clone);
            file.map_err(Error::from)
        });
        seeds::note("created by another worker", u64::from(matches!(outcome, Ok(false))));
        outcome
    }

    fn make_folder(&mut self, path: &str) -> Result<(), FileError> {
        self.trouble("mkdir", path)?;
        self.folders.push(path.to_owned());
        Ok(())
    }

    fn write_whole(&mut self, download: &FileDownload, bytes: &[u8]) -> Result<(), FileError> {
        let path = &download.path;
        self.trouble("write whole", path)?;
        let before = self.published.insert(path.to_owned(), bytes.to_vec());
        assert!(before.is_none(), "{path} is published once");
        Ok(())
    }

    fn create(&mut self, download: &FileDownload) -> Result<OpenFile, FileError> {
        let (path, size_bytes) = (download.path.as_str(), download.object.listed.size_bytes);
        self.trouble("create", path)?;
        let alone = self.files.iter().all(|file| file.done || file.path != path);
        assert!(alone, "{path} is created once");
        let length = usize::try_from(allocation(size_bytes)).expect("small");
        let direct = self.chance.hits(800);
        self.files.push(File {
            path: path.to_owned(),
            direct,
            bytes: vec![0xaa; length],
            written: vec![false; length],
            begun: Pieces::default(),
            unfinished: BTreeMap::new(),
            size: usize::try_from(size_bytes).expect("small"),
            part: usize::try_from(download.part.bytes()).expect("small"),
            ranges: BTreeSet::new(),
            done: false,
        });
        let number = self.files.len() as u64 - 1;
        Ok(OpenFile {
            handle: Handle::Simulated(number),
            direct,
            folder: Handle::Simulated(u64::MAX),
            temporary: String::new(),
            name: path.to_owned(),
            place: path.to_owned(),
            journal: None,
        })
    }

    fn range_done(&mut self, file: &OpenFile, index: u64) {
        let found = &mut self.files[number(&file.handle)];
        let start = usize::try_from(index).expect("small") * found.part;
        let end = found.size.min(start + found.part);
        let written = found.written[start..end].iter().all(|written| *written);
        assert!(written, "{}: range {index} is done when its bytes are written", found.path);
        assert!(found.ranges.insert(index), "{}: range {index} is done once", found.path);
    }

    fn range_reached(&mut self, file: &OpenFile, index: u64, prefix_bytes: u64) {
        if !prefix_bytes.is_multiple_of(u64::from(SLOT_BYTES_MIN)) {
            seeds::note("kept within a slot", 1);
        }
        let found = &self.files[number(&file.handle)];
        let start = usize::try_from(index).expect("small") * found.part;
        let prefix = usize::try_from(prefix_bytes).expect("small");
        let is_part = prefix > 0 && start + prefix < found.size.min(start + found.part);
        assert!(is_part && prefix.is_multiple_of(4096), "{}: {prefix} of {index}", found.path);
        let written = found.written[start..start + prefix].iter().all(|written| *written);
        assert!(written, "{}: {prefix} bytes of range {index} are written", found.path);
    }

    fn publish(&mut self, file: &OpenFile, download: &FileDownload) -> Result<(), FileError> {
        let size_bytes = download.object.listed.size_bytes;
        let index = number(&file.handle);
        let trouble = self.trouble("publish", &file.place);
        let found = &mut self.files[index];
        assert!(!found.done, "{} ends once", found.path);
        found.done = true;
        trouble?;
        let size = usize::try_from(size_bytes).expect("small");
        assert_eq!(found.ranges.len(), size.div_ceil(found.part), "every range was said done");
        assert!(found.written[..size].iter().all(|written| *written), "every byte was written");
        let bytes = found.bytes[..size].to_vec();
        let before = self.published.insert(file.place.clone(), bytes);
        assert!(before.is_none(), "{} is published once", file.place);
        Ok(())
    }

    pub(crate) fn abandon(&mut self, file: &OpenFile) {
        let found = &mut self.files[number(&file.handle)];
        assert!(!found.done, "{} ends once", found.path);
        found.done = true;
    }
}

/// A disk that is full, broken or closed to us: objects fail with its error, and no other.
#[test]
fn objects_on_a_disk_that_fails_have_its_error() {
    seeds("objects_on_a_disk_that_fails_have_its_error", 2000, |seed| {
        let rates = Rates { disk_per_mille: 100, ..CALM };
        let scenario = Scenario { rates, stop: false, sink: Sink::File, tls: false, verify: false };
        let sizes = [&[0; 4][..], &[5_000; 4], &[300_000; 10]].concat();
        let bench = set_up_with(seed, scenario, &mut Chance(seed), 1 << 17, &sizes);
        for Outcome { result, .. } in checked(bench, seed, scenario).1 {
            let Err(error) = result else { continue };
            let is_of_disk = matches!(error.kind(), ErrorKind::Destination | ErrorKind::Host);
            assert!(is_of_disk, "{error}");
        }
    });
}
