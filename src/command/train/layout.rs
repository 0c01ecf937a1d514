//! The folders and files of a training container: their paths, their creation, and checks
//! beforehand.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::input::is_files;
use super::machine;
use super::written;
use crate::download::target::{Hindrance, hindrance};
use crate::error::{Error, ErrorKind, Result};
use crate::files::system_host::make_folders;
use crate::files::whole_file;
use crate::limits::{FAILURE_TEXT_MAX, JOB_BYTES_MAX};
use crate::train::check::overlap;
use crate::train::layout::Layout as Paths;
use crate::train::written::Written;
use crate::train::{Channel, ChannelData, Hosts, InputMode, TrainingInput, files, variables};

/// Prefix of temporary names of files.
pub(super) const TEMPORARY_PREFIX: &str = ".inrush-";

/// The base folder, usually `/opt/ml`, and the paths below it.
#[derive(Debug, Clone)]
pub(super) struct JobFolders {
    paths: Paths,
}

impl JobFolders {
    /// The layout below this folder, as an absolute path, because the command may change its
    /// working directory. The default is that of a SageMaker training container.
    pub(super) fn new(base: Option<&Path>) -> Result<Self> {
        let Some(base) = base else { return Ok(Self { paths: Paths::default() }) };
        let base = std::path::absolute(base)
            .map_err(|error| unusable(base, &error).advise("give --base-dir another folder"))?;
        Ok(Self { paths: Paths { base, ..Paths::default() } })
    }

    /// The folders are those of a Processing job.
    pub(super) fn use_processing(&mut self) {
        self.paths.is_processing = true;
    }

    /// Refuses a missing base folder that was not given explicitly: a SageMaker container has one
    /// from the start.
    pub(super) fn require(&self, is_given: bool) -> Result<()> {
        if is_given || self.base().exists() {
            return Ok(());
        }
        let base = self.base().display();
        let message = format!("{base} is not there, so this is no SageMaker training container");
        Err(Error::new(ErrorKind::Destination, message).advise(format!(
            "give the folder of the job, --base-dir DIR; --base-dir {base} creates that one"
        )))
    }

    /// The base folder.
    pub(super) fn base(&self) -> &Path {
        &self.paths.base
    }

    /// The folder of the channels.
    pub(super) fn data(&self) -> PathBuf {
        self.paths.data()
    }

    /// The folder of a channel in File or FastFile mode, and the link to a local one.
    pub(super) fn channel(&self, channel: &Channel) -> PathBuf {
        self.paths.channel(channel)
    }

    /// The folder of a channel's pipes, and what their names begin with.
    pub(super) fn pipes(&self, channel: &Channel) -> (PathBuf, String) {
        self.paths.pipes(channel)
    }

    /// True if other files than a channel's own belong in its folder: those of the command beside
    /// checkpoints, and those of an input below it.
    pub(super) fn is_shared(&self, channel: &Channel, input: &TrainingInput) -> bool {
        let folder = self.channel(channel);
        let is_below = |path: PathBuf| path != folder && path.starts_with(&folder);
        channel.output_path.is_some()
            || input.channels.iter().any(|other| is_below(self.channel(other)))
    }

    /// The folders of the channels that have one.
    pub(super) fn folders(&self, input: &TrainingInput) -> Vec<PathBuf> {
        let channels = input.channels.iter().filter(|channel| is_files(channel));
        channels.map(|channel| self.channel(channel)).collect()
    }

    /// The list of a channel's objects.
    pub(super) fn manifest(&self, channel: &Channel) -> PathBuf {
        self.paths.manifest(channel)
    }

    fn failure(&self) -> PathBuf {
        self.paths.output().join("failure")
    }

    /// The path of `resourceconfig.json`, whoever wrote it.
    pub(super) fn resource_config(&self) -> PathBuf {
        self.paths.config().join(files::RESOURCE_CONFIG)
    }

    /// True if an earlier run wrote this text of it.
    pub(super) fn has_written(&self, resource_config: &str) -> bool {
        written::read(&self.paths.config()).has_resource_config(resource_config)
    }

    /// The lists of objects of the channels in File and FastFile mode.
    fn lists(&self, input: &TrainingInput) -> Vec<PathBuf> {
        let channels = input.channels.iter().filter(|channel| is_files(channel));
        channels.map(|channel| self.manifest(channel)).collect()
    }

    /// Records the lists for a later run, which may have other channels.
    pub(super) fn note_lists(&self, input: &TrainingInput) -> Result<()> {
        written::note_lists(&self.paths.config(), &self.lists(input))
    }

    /// All obstacles, as far as they are visible without creating anything.
    pub(super) fn problems(&self, input: &TrainingInput) -> Vec<Error> {
        let mut problems: Vec<Error> = Vec::new();
        for folder in [self.data(), self.paths.output()] {
            let found = check_writable(&folder).err();
            // Usually both have the same cause: a folder above them.
            problems.extend(found.filter(|found| !problems.contains(found)));
        }
        for channel in &input.channels {
            let outcome = match (&channel.data, channel.mode) {
                (ChannelData::Folder { path, .. }, _) => self.check_link(channel, path),
                (_, InputMode::Pipe) => self.check_pipe(channel),
                _ => self.check_apart(channel).and_then(|()| self.check_folder(channel)),
            };
            problems.extend(
                outcome.err().map(|error| error.within(format!("channel {}", channel.name))),
            );
        }
        problems
    }

    /// Checks that a local folder can be read, and its link can be created.
    fn check_link(&self, channel: &Channel, path: &Path) -> Result<()> {
        let is_folder = std::fs::metadata(path).map_err(|error| unusable(path, &error))?.is_dir();
        if !is_folder {
            return Err(in_the_way(path, "is not a folder"));
        }
        access(path, Access::READ_OK | Access::EXEC_OK)
            .map_err(|errno| unusable(path, &errno.into()))?;
        let link = self.channel(channel);
        match link.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(_) if std::fs::read_link(&link).is_ok_and(|target| target == path) => Ok(()),
            _ => Err(in_the_way(&link, "is there already, and is not the link to the folder")),
        }
    }

    /// Checks that an existing file of the first pipe's name is a pipe.
    fn check_pipe(&self, channel: &Channel) -> Result<()> {
        let path = self.paths.pipe(channel, 0);
        match path.symlink_metadata() {
            Ok(found) if !found.file_type().is_fifo() => {
                Err(in_the_way(&path, "is not a named pipe"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a channel with its own path is not below the channels' folder. That folder may
    /// be anywhere, so the description alone does not show it.
    fn check_apart(&self, channel: &Channel) -> Result<()> {
        let (path, input) = (self.channel(channel), self.paths.input());
        if channel.output_path.is_none() || !overlap(&path, &input) {
            return Ok(());
        }
        let what = format!("{} is not apart from {}", path.display(), input.display());
        Err(Error::new(ErrorKind::Usage, what).advise("give the checkpoints another LocalPath"))
    }

    /// Checks that the channel's folder is a folder, and not a link into another.
    fn check_folder(&self, channel: &Channel) -> Result<()> {
        let list = self.manifest(channel);
        if list.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            return Err(in_the_way(&list, "is a folder"));
        }
        let path = self.channel(channel);
        match path.symlink_metadata() {
            Ok(found) if !found.is_dir() => Err(in_the_way(&path, "is not a folder")),
            Ok(_) => check_writable(&path),
            Err(_) => Ok(()),
        }
    }

    /// True if files of an earlier run may be in a channel's folder.
    pub(super) fn has_files(&self, channel: &Channel) -> bool {
        let entries = std::fs::read_dir(self.channel(channel));
        entries.is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Creates folders, links and configuration files; removes an earlier job's failure file, and
    /// its lists of other channels.
    pub(super) fn make(&self, input: &TrainingInput) -> Result<()> {
        let paths = &self.paths;
        let fixed = [paths.config(), paths.data(), paths.model(), paths.output_data()];
        // A channel with a path of its own has its pipes beside it.
        let own = input.channels.iter().filter(|channel| channel.local_path.is_some());
        let own = own.map(|channel| self.pipes(channel).0);
        let outputs = input.processing.iter().flat_map(|processing| &processing.outputs);
        let outputs = outputs.map(|path| paths.moved(path));
        let folders = fixed.into_iter().chain(self.folders(input)).chain(own).chain(outputs);
        for folder in folders {
            make_folders(&folder).map_err(|error| unusable(&folder, &error))?;
        }
        remove(&self.failure())?;
        for channel in &input.channels {
            if let ChannelData::Folder { path, .. } = &channel.data {
                self.link(channel, path)
                    .map_err(|error| error.within(format!("channel {}", channel.name)))?;
            }
        }
        let checkpoints = input.channels.iter().find(|channel| channel.output_path.is_some());
        let more = checkpoints.map(|channel| {
            (files::CHECKPOINT_CONFIG, files::checkpoint_config(&self.channel(channel)))
        });
        if more.is_none() {
            remove(&paths.config().join(files::CHECKPOINT_CONFIG))?;
        }
        let mut written = written::read(&paths.config());
        written::remove_other_lists(&paths.data(), &mut written, &self.lists(input));
        let resources = self.new_resource_config(input, &mut written);
        written::write(&paths.config(), &written)?;
        let resources = resources.map(|text| (files::RESOURCE_CONFIG, text));
        for (name, text) in self.config_files(input).into_iter().chain(resources).chain(more) {
            let path = self.paths.config().join(name);
            whole_file::write(&path, text.as_bytes(), TEMPORARY_PREFIX)
                .map_err(|error| unusable(&path, &error))?;
        }
        Ok(())
    }

    /// The text of `resourceconfig.json`, which is recorded; `None` if an existing file that is not
    /// ours describes these hosts: it may have more information.
    fn new_resource_config(&self, input: &TrainingInput, written: &mut Written) -> Option<String> {
        let hosts = hosts(input);
        let current = whole_file::read(&self.resource_config(), JOB_BYTES_MAX as u64).ok();
        let current = current.and_then(|text| String::from_utf8(text).ok());
        let of_others = current.as_deref().filter(|text| !written.has_resource_config(text));
        let theirs = of_others.and_then(|text| files::hosts_of_resource_config(text).ok());
        if theirs
            .is_some_and(|theirs| theirs.current == hosts.current && theirs.names == hosts.names)
        {
            return None;
        }
        let interface = &machine::look().network_interface;
        let text = files::resource_config(&hosts, &input.instance_groups, interface);
        written.note_resource_config(current.as_deref(), &text);
        Some(text)
    }

    /// Configuration files without information about hosts: name and text.
    fn config_files(&self, input: &TrainingInput) -> Vec<(&'static str, String)> {
        if let Some(processing) = &input.processing {
            let text = files::processing_job_config(processing, &self.paths);
            return vec![(files::PROCESSING_JOB_CONFIG, text)];
        }
        vec![
            (files::INPUT_DATA_CONFIG, files::input_data_config(input)),
            (files::HYPERPARAMETERS, files::hyperparameters(input)),
        ]
    }

    fn link(&self, channel: &Channel, path: &Path) -> Result<()> {
        let link = self.channel(channel);
        match symlink(path, &link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.check_link(channel, path)
            }
            outcome => outcome.map_err(|error| unusable(&link, &error)),
        }
    }

    /// Writes why the job failed, for the starter of the container.
    pub(super) fn report_failure(&self, error: &Error) -> Result<()> {
        let path = self.failure();
        let text = error.to_string();
        // That it cannot be written is then the failure itself.
        let refused = check_writable(&self.paths.output()).err();
        if refused.is_some_and(|refused| text.contains(refused.message())) {
            return Ok(());
        }
        let text: String = text.chars().take(FAILURE_TEXT_MAX).collect();
        let written = match path.parent() {
            Some(folder) => make_folders(folder),
            None => Ok(()),
        };
        let written =
            written.and_then(|()| whole_file::write(&path, text.as_bytes(), TEMPORARY_PREFIX));
        written.map(drop).map_err(|error| unusable(&path, &error))
    }

    /// The environment variables of the command.
    pub(super) fn variables(&self, input: &TrainingInput) -> BTreeMap<String, String> {
        variables::variables(input, &hosts(input), &self.paths, &machine::look())
    }
}

/// The hosts of a job; without any this host alone.
fn hosts(input: &TrainingInput) -> Hosts {
    input.hosts.clone().unwrap_or_else(|| Hosts::numbered(0, 1))
}

/// Removes a file of an earlier job.
fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unusable(path, &error)),
        _ => Ok(()),
    }
}

/// True for the number of an epoch.
pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Checks that a folder, or the nearest existing one above it, is writable.
fn check_writable(path: &Path) -> Result<()> {
    match hindrance(path) {
        None => Ok(()),
        Some((folder, Hindrance::NoFolder)) => Err(in_the_way(folder, "is not a folder")),
        Some((folder, Hindrance::Refused(errno))) => Err(unusable(folder, &errno.into())
            .advise("give --base-dir a folder that you may write to")),
    }
}

fn in_the_way(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::Destination, format!("{} {what}", path.display()))
        .advise("move it, or give --base-dir another folder")
}

pub(super) fn unusable(path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::Destination, format!("cannot use {}: {error}", path.display()))
        .of_call(error.raw_os_error())
        .caused_by_io(error)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn layout(folder: &Path) -> JobFolders {
        JobFolders::new(Some(&folder.join("ml"))).expect("an absolute path")
    }

    fn input(channels: Vec<Channel>) -> TrainingInput {
        TrainingInput { channels, ..TrainingInput::default() }
    }

    fn channel(name: &str, data: ChannelData, mode: InputMode) -> Channel {
        let content_type = Some("text/csv".to_owned());
        Channel { mode, content_type, ..Channel::new(name, data) }
    }

    fn of_s3(name: &str, mode: InputMode) -> Channel {
        let place = crate::train::S3Location { bucket: "bkt".to_owned(), key: "a/".to_owned() };
        channel(name, ChannelData::Prefix(place), mode)
    }

    #[test]
    fn all_that_is_in_the_way_is_reported_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(folder.path());
        let local = |path: PathBuf| {
            channel("local", ChannelData::Folder { path, writable: false }, InputMode::File)
        };
        let missing = folder.path().join("missing");
        let wrong =
            input(vec![of_s3("a", InputMode::Pipe), of_s3("b", InputMode::File), local(missing)]);
        fs::create_dir_all(layout.data().join("a_0")).unwrap();
        fs::write(layout.data().join("b"), "").unwrap();
        let found: Vec<String> = layout.problems(&wrong).iter().map(Error::to_string).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        for word in ["a_0", "data/b is not a folder", "missing"] {
            assert_eq!(
                found.iter().filter(|line| line.contains(word)).count(),
                1,
                "{word}: {found:?}"
            );
        }
        let right = input(vec![of_s3("c", InputMode::Pipe), local(folder.path().to_owned())]);
        assert_eq!(layout.problems(&right), []);
    }

    #[test]
    fn a_base_that_cannot_be_made_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ml"), "").unwrap();
        let found = layout(folder.path()).problems(&input(Vec::new()));
        assert!(found[0].to_string().contains("ml is not a folder"), "{found:?}");
        assert_eq!(found.len(), 1, "one reason has one message: {found:?}");
    }

    #[test]
    fn checkpoints_are_not_among_the_channels() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(folder.path());
        let found = |path: PathBuf| {
            let checkpoints =
                Channel { output_path: Some(path), ..of_s3("checkpoints", InputMode::File) };
            layout.problems(&input(vec![checkpoints]))
        };
        assert_eq!(found("/opt/ml/checkpoints".into()), []);
        for path in [layout.data(), folder.path().join("ml"), "/opt/ml/input/data/train".into()] {
            let found = found(path);
            assert!(found.len() == 1 && found[0].to_string().contains("is not apart"), "{found:?}");
        }
    }

    #[test]
    fn folders_links_and_files_are_made_twice_as_well_as_once() {
        let folder = tempfile::tempdir().unwrap();
        let (layout, target) = (layout(folder.path()), folder.path().join("fsx"));
        fs::create_dir(&target).unwrap();
        let data = ChannelData::Folder { path: target.clone(), writable: false };
        let input = input(vec![
            of_s3("files", InputMode::FastFile),
            of_s3("pipe", InputMode::Pipe),
            channel("local", data, InputMode::File),
        ]);
        for _ in 0..2 {
            fs::create_dir_all(layout.paths.output()).unwrap();
            fs::write(layout.failure(), "of an earlier job").unwrap();
            layout.make(&input).unwrap();
            assert!(!layout.failure().exists());
        }
        for made in ["input/data/files", "model", "output/data"] {
            assert!(layout.paths.base.join(made).is_dir(), "{made}");
        }
        assert!(!layout.data().join("pipe").exists());
        assert_eq!(fs::read_link(layout.data().join("local")).unwrap(), target);
        let text = fs::read_to_string(layout.paths.config().join("inputdataconfig.json")).unwrap();
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["files"]["TrainingInputMode"], "File");
        assert_eq!(found["pipe"]["TrainingInputMode"], "Pipe");
        assert_eq!(found["pipe"]["ContentType"], "text/csv");
        assert_eq!(
            fs::read_dir(layout.paths.config()).unwrap().count(),
            4,
            "nothing temporary is left"
        );
        let own = fs::read_to_string(layout.resource_config()).unwrap();
        assert!(layout.has_written(&own) && !layout.has_written("{}"));
    }

    #[test]
    fn what_somebody_else_says_of_the_same_hosts_stays() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(folder.path());
        let mut input = input(Vec::new());
        input.hosts = Some(Hosts::numbered(1, 2));
        let theirs = r#"{"current_host":"algo-2","hosts":["algo-1","algo-2"],"topology":7}"#;
        fs::create_dir_all(layout.paths.config()).unwrap();
        fs::write(layout.resource_config(), theirs).unwrap();
        let after = |input: &TrainingInput| {
            layout.make(input).unwrap();
            fs::read_to_string(layout.resource_config()).unwrap()
        };
        assert_eq!(after(&input), theirs);
        assert!(!layout.has_written(theirs));
        input.hosts = Some(Hosts::numbered(0, 2));
        let own = after(&input);
        assert!(own.contains(r#""current_host": "algo-1""#) && layout.has_written(&own), "{own}");
    }

    #[test]
    fn a_failure_is_short_and_never_cut_within_a_character() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(folder.path());
        let error = Error::new(ErrorKind::Endpoint, "ü".repeat(5000));
        layout.report_failure(&error).unwrap();
        let text = fs::read_to_string(layout.failure()).unwrap();
        assert_eq!(text.chars().count(), FAILURE_TEXT_MAX);
    }
}
