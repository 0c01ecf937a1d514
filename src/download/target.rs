//! The destination of a `get`: a folder, one file, or none.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FileType};
use rustix::io::Errno;

use super::devices::Spot;
use super::disjoint::{real, require_disjoint};
use super::existing::Present;
use crate::cli::Destination;
use crate::control::blocking::blocking;
use crate::control::list::sources::{Source, SourceKind};
use crate::control::list::walk::Entry;
use crate::download::folder_lock::{FolderLock, SPREAD};
use crate::error::{Error, ErrorKind, Result};
use crate::files::file_download::{Cut, FileDownload};
use crate::files::host::Protection;
use crate::files::sink::Sink;
use crate::files::system_host::{self, DiskSpace, Root, protection_at};
use crate::plan::folding::Folding;
use crate::s3::uri::shown;

/// A folder by its path, which is empty for the current one.
fn here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// The file in the way if the path needs it to be a folder.
fn in_the_way(path: &Path) -> Option<(PathBuf, FileType)> {
    // Components have no trailing slash.
    path.components().as_path().ancestors().find_map(|above| {
        let found = rustix::fs::stat(here(above)).ok()?;
        let found = FileType::from_raw_mode(found.st_mode);
        (found != FileType::Directory).then(|| (above.to_owned(), found))
    })
}

/// Refuses a file that is in a folder's place.
fn no_folder(path: &Path, found: FileType) -> Error {
    let what = match found {
        FileType::RegularFile => "is a file, not a folder",
        FileType::Fifo => "is a named pipe, not a folder",
        _ => "is not a folder",
    };
    Error::new(ErrorKind::Destination, format!("{} {what}", path.display()))
        .advise("give a folder, or move the file")
}

/// Why no file can be created in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hindrance {
    /// It is not a folder.
    NoFolder,
    /// The kernel's error.
    Refused(Errno),
}

/// The obstacle to creating files in this folder, which may not exist yet, and its location: it is
/// found at the nearest existing folder, among this one and those above it.
pub(crate) fn hindrance(folder: &Path) -> Option<(&Path, Hindrance)> {
    for folder in folder.ancestors().map(here) {
        let refused = match rustix::fs::stat(folder) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) != FileType::Directory => {
                return Some((folder, Hindrance::NoFolder));
            }
            Ok(_) => {
                let access = Access::WRITE_OK | Access::EXEC_OK;
                rustix::fs::accessat(CWD, folder, access, AtFlags::EACCESS).err()
            }
            // The folders above show the cause: one is not a folder, or is not searchable.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => continue,
            Err(errno) => Some(errno),
        };
        return refused.map(|errno| (folder, Hindrance::Refused(errno)));
    }
    None
}

/// The destination.
#[derive(Debug)]
pub(crate) enum Target {
    /// Below this folder, each object at its relative path.
    Folder(PathBuf),
    /// Below these folders, each object in one of them.
    Folders(Vec<PathBuf>),
    /// One object to one file.
    File { folder: PathBuf, name: String },
    /// None.
    Discard,
}

impl Target {
    /// Its name for users; `None` if nothing is written.
    pub(super) fn in_words(&self) -> Option<String> {
        match self {
            Self::Folder(path) => Some(path.display().to_string()),
            Self::Folders(_) => Some(self.folders_in_words()),
            Self::File { name, .. } => Some(self.typed().join(name).display().to_string()),
            Self::Discard => None,
        }
    }

    /// One object goes into DEST if that is a folder or ends in `/`, else to that name; everything
    /// else needs a folder: `many` sources, however many exist, and `sync`.
    pub(crate) async fn choose(
        destination: &Destination,
        sources: &[Source],
        many: bool,
    ) -> Result<Self> {
        let Destination::Local(path) = destination else { return Ok(Self::Discard) };
        let one = matches!(sources, [Source { found: SourceKind::Object(_), .. }]);
        Self::at(path, one, many).await
    }

    /// Chooses by path, for one object or for others.
    ///
    /// # Errors
    /// [`ErrorKind::Destination`] if something else is in the way.
    pub(crate) async fn at(path: &Path, one: bool, many: bool) -> Result<Self> {
        let as_folder = many || path.as_os_str().as_encoded_bytes().ends_with(b"/");
        let asked = path.to_owned();
        let (found, spot) = blocking(move || (rustix::fs::stat(&asked), Spot::of(&asked))).await;
        let ordinary = spot.require_ordinary(path);
        if spot == Spot::StandardOutput {
            ordinary.clone()?;
        }
        match found.map(|found| FileType::from_raw_mode(found.st_mode)) {
            Ok(FileType::Directory) => return ordinary.map(|()| Self::Folder(path.to_owned())),
            Ok(found) if !one || as_folder => return Err(no_folder(path, found)),
            Err(Errno::NOTDIR) => {
                let asked = path.to_owned();
                if let Some((file, found)) = blocking(move || in_the_way(&asked)).await {
                    return Err(no_folder(&file, found));
                }
            }
            // A device or a pipe would be replaced by a file of its name.
            Ok(found) if found != FileType::RegularFile => {
                let message = format!("{} is not a regular file", path.display());
                return Err(Error::new(ErrorKind::Destination, message)
                    .advise("give a file or a folder; to write nothing, use --discard"));
            }
            // Later it would be found when the bytes are there.
            Err(Errno::NAMETOOLONG) => {
                let shown = path.display();
                let message = format!("{shown}: a name, or all of it, is too long for a path");
                return Err(
                    Error::new(ErrorKind::Destination, message).advise("choose a shorter name")
                );
            }
            _ => ordinary?,
        }
        if !one || as_folder {
            return Ok(Self::Folder(path.to_owned()));
        }
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            Error::new(
                ErrorKind::Destination,
                format!("{} is not a valid file name", path.display()),
            )
            .advise("give a folder, or a file name in UTF-8")
        })?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_path_buf();
        Ok(Self::File { folder, name: name.to_owned() })
    }

    /// Adds these folders, among which objects are spread.
    ///
    /// # Errors
    /// [`ErrorKind::Destination`] if one of them cannot be a folder, equals another one, or is
    /// below it.
    pub(crate) async fn spread(self, others: &[PathBuf]) -> Result<Self> {
        let (Self::Folder(first), false) = (&self, others.is_empty()) else { return Ok(self) };
        let mut all = vec![first.clone()];
        for path in others {
            let asked = path.clone();
            let (found, spot) =
                blocking(move || (rustix::fs::stat(&asked), Spot::of(&asked))).await;
            spot.require_ordinary(path)?;
            match found.map(|found| FileType::from_raw_mode(found.st_mode)) {
                Ok(found) if found != FileType::Directory => return Err(no_folder(path, found)),
                Err(Errno::NOTDIR) => {
                    let asked = path.clone();
                    if let Some((file, found)) = blocking(move || in_the_way(&asked)).await {
                        return Err(no_folder(&file, found));
                    }
                }
                _ => {}
            }
            all.push(path.clone());
        }
        let folders = all.clone();
        blocking(move || require_disjoint(&folders)).await?;
        Ok(Self::Folders(all))
    }

    /// The folders of the files, for users.
    pub(super) fn folders_in_words(&self) -> String {
        let folders = self.folders().into_iter().map(|folder| folder.display().to_string());
        folders.collect::<Vec<_>>().join(", ")
    }

    /// The destination that does not respond when a call blocks, for users; `None` if nothing is
    /// written.
    pub(crate) fn any_in_words(&self) -> Option<String> {
        match self.folders()[..] {
            [] => None,
            [folder] => Some(folder.display().to_string()),
            _ => Some(format!("one of {}", self.folders_in_words())),
        }
    }

    /// The folder of the files; the first of several.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folders().first().copied()
    }

    /// All folders of the files; none if nothing is written.
    pub(crate) fn folders(&self) -> Vec<&Path> {
        match self {
            Self::Folder(folder) | Self::File { folder, .. } => vec![folder],
            Self::Folders(folders) => folders.iter().map(PathBuf::as_path).collect(),
            Self::Discard => Vec::new(),
        }
    }

    /// [`Self::folders`], for a helper thread.
    pub(crate) fn owned_folders(&self) -> Vec<PathBuf> {
        self.folders().into_iter().map(Path::to_owned).collect()
    }

    /// The space at each of its folders, which is unknown if it is not to be checked.
    pub(crate) async fn disks(&self, checks_space: bool) -> Vec<Option<DiskSpace>> {
        let folders = self.owned_folders();
        match checks_space {
            true => blocking(move || system_host::disk_spaces(&folders)).await,
            false => vec![None; folders.len()],
        }
    }

    /// The folder of several that has an object, as typed; `None` if undecided, or if there is only
    /// one.
    pub(crate) fn one_of_several(&self, download: &FileDownload) -> Option<String> {
        let Self::Folders(folders) = self else { return None };
        let folder = folders.get(usize::from(download.place?))?;
        Some(folder.display().to_string())
    }

    /// The folder as typed: empty for a file that was named without one.
    fn typed(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.clone(),
            Self::Folders(folders) => folders[0].clone(),
            Self::File { folder, .. } if folder != Path::new(".") => folder.clone(),
            Self::File { .. } | Self::Discard => PathBuf::new(),
        }
    }

    /// The whole path of an object's file for users; of several destinations all while none is
    /// chosen.
    pub(crate) fn place_of(&self, download: &FileDownload) -> Option<String> {
        let Self::Folders(folders) = self else { return self.place(&download.path) };
        let place = |folder: &PathBuf| folder.join(&download.path).display().to_string();
        if let Some(decided) = download.place {
            return folders.get(usize::from(decided)).map(place);
        }
        let all: Vec<String> = folders.iter().map(|one| one.display().to_string()).collect();
        Some(format!("{{{}}}/{}", all.join(","), download.path))
    }

    /// The whole path of a file for users, by its path below the folder; `None` if nothing is
    /// written.
    pub(crate) fn place(&self, path: &str) -> Option<String> {
        self.folder().map(|_| self.typed().join(path).display().to_string())
    }

    /// Refuses a destination if the file of this path cannot be created, before its download. If
    /// `is_foreign` it exists, and is not trusted.
    ///
    /// # Errors
    /// [`ErrorKind::Destination`].
    pub(crate) async fn require_writable(&self, file: (&str, bool)) -> Result<()> {
        self.require_possible().await?;
        self.require_permitted(file).await
    }

    /// Refuses a destination that cannot be a folder.
    ///
    /// # Errors
    /// [`ErrorKind::Destination`].
    pub(crate) async fn require_possible(&self) -> Result<()> {
        let folders = self.owned_folders();
        let require = move || folders.iter().try_for_each(|at| system_host::require_possible(at));
        blocking(require).await
    }

    /// [`Self::require_writable`] by permissions alone.
    ///
    /// # Errors
    /// [`ErrorKind::Destination`].
    pub(crate) async fn require_permitted(&self, (path, is_foreign): (&str, bool)) -> Result<()> {
        let files: Vec<_> = self.folders().iter().map(|folder| folder.join(path)).collect();
        let refused = blocking(move || {
            files.iter().find_map(|file| match hindrance(file.parent()?)? {
                (
                    folder,
                    Hindrance::Refused(errno @ (Errno::ACCESS | Errno::ROFS | Errno::PERM)),
                ) => {
                    let found = protection_at(folder, "", errno);
                    let why = found.map(Protection::suffix).unwrap_or_default();
                    Some((folder.display().to_string(), errno, why))
                }
                // If this cannot be determined, the first file will show it.
                _ => None,
            })
        });
        let Some((folder, errno, why)) = refused.await else { return Ok(()) };
        let message = format!("cannot write to {folder}: {errno}{why}");
        Err(Error::new(ErrorKind::Destination, message).advise(match is_foreign {
            true => {
                "its files belong to another user or have several names (hard links), and are not \
                 trusted: keep those of the right size with --size-only, or check them with \
                 inrush verify"
            }
            false => "choose a writable destination",
        }))
    }

    /// Which file names are equal at its folders; `None` if one does not show it. With `dry` no
    /// test file is created.
    pub(crate) async fn folding(&self, dry: bool) -> Option<Folding> {
        let folders = match self {
            Self::Folder(folder) => vec![folder.clone()],
            Self::Folders(folders) => folders.clone(),
            Self::File { .. } | Self::Discard => return Some(Folding::default()),
        };
        let ask = move || {
            let ask = if dry { system_host::folding_seen } else { system_host::folding };
            let mut each = folders.iter().map(|folder| ask(folder));
            each.try_fold(Folding::default(), |all, one| Some(all.or(one?)))
        };
        blocking(ask).await
    }

    /// The folder, created if missing; the first of several.
    pub(super) async fn open(&self) -> Result<Option<Root>> {
        let Some(folder) = self.folder().map(Path::to_owned) else { return Ok(None) };
        let typed = self.typed();
        blocking(move || Root::open(&folder, typed)).await.map(Some)
    }

    /// All folders, created if missing; none if nothing is written.
    ///
    /// # Errors
    /// [`ErrorKind::Destination`], also if they are not disjoint ([`require_disjoint`]).
    pub(crate) async fn open_all(&self) -> Result<Vec<Root>> {
        let Self::Folders(folders) = self else {
            return Ok(self.open().await?.into_iter().collect());
        };
        let folders = folders.clone();
        blocking(move || {
            let open = |folder: &PathBuf| Root::open(folder, folder.clone());
            let roots = folders.iter().map(open).collect::<Result<Vec<Root>>>()?;
            // Once more, now that all exist.
            require_disjoint(&folders)?;
            Ok(roots)
        })
        .await
    }

    /// Keeps other runs with several destinations out of these folders, which are created if
    /// missing, until the returned locks are dropped. A single folder is not locked.
    ///
    /// # Errors
    /// [`ErrorKind::Destination`] if another run has locked one of them.
    pub(crate) async fn lock(&self) -> Result<Vec<FolderLock>> {
        let Self::Folders(folders) = self else { return Ok(Vec::new()) };
        let folders = folders.clone();
        blocking(move || {
            let real = |folder: PathBuf| Ok((real(&folder)?, folder));
            let mut folders = folders.into_iter().map(real).collect::<Result<Vec<_>>>()?;
            // All runs take the locks in one order: so one of two runs gets all of its locks.
            folders.sort();
            let take = |(_, folder): (PathBuf, PathBuf)| {
                let lock = FolderLock::take(&folder, &SPREAD)?;
                if let Some(why) = lock.refused() {
                    let folder = folder.display();
                    tracing::info!("{folder} has no lock: {why}; start no second run with it");
                }
                Ok(lock)
            };
            folders.into_iter().map(take).collect::<Result<Vec<FolderLock>>>()
        })
        .await
    }

    /// Creates the folder of a file that the run writes below its destination.
    pub(crate) async fn make_folder_of(&self, file: &Path) {
        let (file, folders) = (file.to_owned(), self.owned_folders());
        blocking(move || system_host::make_folder_of(&file, &folders)).await;
    }

    /// The existing folders.
    ///
    /// # Errors
    /// [`ErrorKind::Destination`] if it is unknown for one of several: objects in it would be
    /// downloaded to another.
    pub(crate) async fn present(&self) -> Result<Present> {
        let are_several = matches!(self, Self::Folders(_));
        let typed = if are_several { None } else { Some(self.typed()) };
        let folders: Vec<PathBuf> = self.folders().into_iter().map(Path::to_owned).collect();
        let roots = blocking(move || {
            let open = |(place, folder): (usize, PathBuf)| {
                let typed = typed.clone().unwrap_or_else(|| folder.clone());
                let place = u8::try_from(place).expect("bounded by SPREAD_MAX");
                let found = rustix::fs::stat(&folder);
                match found.map(|found| FileType::from_raw_mode(found.st_mode)) {
                    Ok(FileType::Directory) => {}
                    Err(errno) if are_several && !matches!(errno, Errno::NOENT | Errno::NOTDIR) => {
                        let message = format!("cannot look up {}: {errno}", folder.display());
                        let error = Error::new(ErrorKind::Destination, message);
                        let error = error.advise("check its file system, or leave it out");
                        return Err(error.of_call(Some(errno.raw_os_error())));
                    }
                    _ => return Ok(None),
                }
                match Root::open(&folder, typed) {
                    Ok(root) => Ok(Some((place, root))),
                    // A single folder is created, or refused, before anything is written.
                    Err(_) if !are_several => Ok(None),
                    Err(error) => Err(error),
                }
            };
            folders
                .into_iter()
                .enumerate()
                .filter_map(|one| open(one).transpose())
                .collect::<Result<Vec<_>>>()
        });
        Ok(Present { roots: roots.await?, are_several })
    }

    pub(crate) fn sink(&self) -> Sink {
        if self.folder().is_some() { Sink::File } else { Sink::Null }
    }

    /// The download of an entry, or why it cannot be stored.
    pub(super) fn download(
        &self,
        entry: Entry,
        cut: Cut,
    ) -> Result<FileDownload, Box<(FileDownload, Error)>> {
        let path = self.path(&entry);
        let Entry { endpoint, object, .. } = entry;
        let (path, error) = match path {
            Ok(path) => (path, None),
            Err(error) => (String::new(), Some(error)),
        };
        let download = FileDownload::new(object, endpoint, path, cut);
        match error {
            None => Ok(download),
            Some(error) => {
                let error = error.within(shown(&download.object.name()));
                Err(Box::new((download, error)))
            }
        }
    }

    /// The path of an entry below the folder, or why it has none, without its key.
    pub(crate) fn path(&self, entry: &Entry) -> Result<String> {
        match (self, &entry.path) {
            (Self::File { name, .. }, _) => Ok(name.clone()),
            (Self::Folder(_) | Self::Folders(_) | Self::Discard, Ok(path)) => {
                Ok(path.as_str().to_owned())
            }
            // Discarded objects need no path.
            (Self::Discard, Err(_)) => Ok(String::new()),
            (Self::Folder(_) | Self::Folders(_), Err(problem)) => {
                Err(Error::new(ErrorKind::Destination, problem.explain()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_answer_may_be_any_of_several() {
        let [one, two] = ["/disk0/a", "/disk1/a"].map(PathBuf::from);
        assert_eq!(Target::Discard.any_in_words(), None);
        assert_eq!(Target::Folder(one.clone()).any_in_words().as_deref(), Some("/disk0/a"));
        let several = Target::Folders(vec![one, two]).any_in_words();
        assert_eq!(several.as_deref(), Some("one of /disk0/a, /disk1/a"));
    }
}
