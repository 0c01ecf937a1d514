//! Where everything is on a training instance, below a folder that SageMaker has at `/opt/ml`
//! ("Amazon SageMaker training storage folders", "Build Your Own Processing Container").

use std::path::{Path, PathBuf};

use super::Channel;

/// The folder that SageMaker has everything below.
pub const BASE: &str = "/opt/ml";

/// The paths below one base folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The base folder: [`BASE`], or another for tests. Absolute.
    pub base: PathBuf,
    /// That of a Processing job, which has its configuration elsewhere.
    pub is_processing: bool,
}

impl Default for Layout {
    fn default() -> Self {
        Self { base: PathBuf::from(BASE), is_processing: false }
    }
}

impl Layout {
    /// True where the base folder is not the one of SageMaker.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.base != Path::new(BASE)
    }

    /// `input`.
    #[must_use]
    pub fn input(&self) -> PathBuf {
        self.base.join("input")
    }

    /// `input/config`, or `config` of a Processing job: the files of [`super::files`].
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.base.join(if self.is_processing { "config" } else { "input/config" })
    }

    /// `input/data`: the folders and the pipes of the channels.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.base.join("input/data")
    }

    /// The folder of a channel. Of a Pipe channel this is what its pipes' names begin with.
    ///
    /// The own path of a channel that has one.
    #[must_use]
    pub fn channel(&self, channel: &Channel) -> PathBuf {
        let own = channel.own_path().map(|path| self.moved(path));
        own.unwrap_or_else(|| self.data().join(&channel.name))
    }

    /// A path of a container; below [`BASE`] it moves with the base.
    #[must_use]
    pub fn moved(&self, path: &Path) -> PathBuf {
        path.strip_prefix(BASE).map_or_else(|_| path.to_owned(), |below| self.base.join(below))
    }

    /// The folder of a channel's pipes, and what their names begin with.
    #[must_use]
    pub fn pipes(&self, channel: &Channel) -> (PathBuf, String) {
        let path = self.channel(channel);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (path.parent().unwrap_or(&self.base).to_owned(), name)
    }

    /// The named pipe of an epoch of a channel, the first of which is 0.
    #[must_use]
    pub fn pipe(&self, channel: &Channel, epoch: u64) -> PathBuf {
        let (folder, name) = self.pipes(channel);
        folder.join(format!("{name}_{epoch}"))
    }

    /// The list of the objects of a channel.
    #[must_use]
    pub fn manifest(&self, channel: &Channel) -> PathBuf {
        self.data().join(format!("{}-manifest", channel.name))
    }

    /// `model`: the command writes its model here.
    #[must_use]
    pub fn model(&self) -> PathBuf {
        self.base.join("model")
    }

    /// `output`: the command writes why it failed to `output/failure`.
    #[must_use]
    pub fn output(&self) -> PathBuf {
        self.base.join("output")
    }

    /// `output/data`: what the command writes besides its model.
    #[must_use]
    pub fn output_data(&self) -> PathBuf {
        self.base.join("output/data")
    }

    /// `output/intermediate`.
    #[must_use]
    pub fn output_intermediate(&self) -> PathBuf {
        self.base.join("output/intermediate")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::{ChannelData, S3Location};

    #[test]
    fn everything_has_its_place() {
        let location = S3Location { bucket: "bucket".to_owned(), key: String::new() };
        let mut channel = Channel::new("train", ChannelData::Prefix(location));
        let layout = Layout::default();
        let shown = |path: PathBuf| path.to_str().expect("UTF-8").to_owned();
        assert_eq!(shown(layout.channel(&channel)), "/opt/ml/input/data/train");
        assert_eq!(shown(layout.pipe(&channel, 12)), "/opt/ml/input/data/train_12");
        assert_eq!(shown(layout.manifest(&channel)), "/opt/ml/input/data/train-manifest");
        let elsewhere = Layout { base: "/tmp/base".into(), ..Layout::default() };
        assert_eq!((layout.is_elsewhere(), elsewhere.is_elsewhere()), (false, true));
        channel.output_path = Some("/opt/ml/checkpoints".into());
        assert_eq!(shown(layout.channel(&channel)), "/opt/ml/checkpoints");
        assert_eq!(shown(elsewhere.channel(&channel)), "/tmp/base/checkpoints");
        assert_eq!(shown(elsewhere.manifest(&channel)), "/tmp/base/input/data/train-manifest");
        channel.output_path = Some("/opt/mlx/state".into());
        assert_eq!(shown(elsewhere.channel(&channel)), "/opt/mlx/state");
    }

    #[test]
    fn inputs_of_a_processing_job_have_paths_of_their_own() {
        let location = S3Location { bucket: "bucket".to_owned(), key: String::new() };
        let local_path = Some("/opt/ml/processing/in/x".into());
        let channel = Channel::new("a", ChannelData::Prefix(location));
        let channel = Channel { local_path, ..channel };
        let layout = Layout { base: "/tmp/base".into(), is_processing: true };
        assert_eq!(layout.config(), Path::new("/tmp/base/config"));
        assert_eq!(layout.channel(&channel), Path::new("/tmp/base/processing/in/x"));
        assert_eq!(layout.pipe(&channel, 3), Path::new("/tmp/base/processing/in/x_3"));
        let expected = (PathBuf::from("/tmp/base/processing/in"), "x".to_owned());
        assert_eq!(layout.pipes(&channel), expected);
    }
}
