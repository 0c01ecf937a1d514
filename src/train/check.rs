//! What can be refused without a request: names, names of files that clash, and options that do
//! not go together.
//!
//! Where the API's documentation says that an option has no effect in a mode, and setting it shows
//! that the author expects one, it is refused: `Gzip` and `RecordIO` are of Pipe mode, augmented
//! manifests too, and FastFile mode takes prefixes alone. A shuffle seed is accepted in the other
//! modes, where the order of the objects is not seen, unless the objects are sharded as well: then
//! it would decide which host gets which, and the documentation does not say how.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::files;
use super::layout::{BASE, Layout};
use super::problem::{Problem, Problems};
use super::ranks;
use super::{
    CHANNELS_MAX, Channel, ChannelData, Compression, Distribution, InputMode, RecordWrapper,
    TrainingInput,
};
use crate::text::shown::shortened;

/// Longest `ChannelName`, in characters.
const NAME_CHARS_MAX: usize = 64;
/// Longest `ContentType`, in characters.
pub(super) const CONTENT_TYPE_CHARS_MAX: usize = 256;
/// Most `AttributeNames`.
pub(super) const ATTRIBUTES_MAX: usize = 16;
/// Longest of them, in characters.
pub(super) const ATTRIBUTE_CHARS_MAX: usize = 256;

/// All that is wrong with the channels, each given with the place that problems are said with.
pub(super) fn channels(placed: &[(String, Channel)], problems: &mut Problems) {
    let inputs = placed.iter().filter(|(_, channel)| channel.output_path.is_none()).count();
    if inputs > CHANNELS_MAX {
        problems.add("", format!("{inputs} channels; at most {CHANNELS_MAX} are allowed"));
    }
    for (at, (place, channel)) in placed.iter().enumerate() {
        let before = problems.count();
        if let Some(what) = name_problem(&channel.name) {
            problems.add(place, what);
        } else if let Some((other, _)) =
            placed[..at].iter().find(|(_, other)| other.name == channel.name)
        {
            // That of an option has the name in it.
            problems.add(
                place,
                match other == place {
                    true => "is given twice".to_owned(),
                    false => format!("the name '{}' is that of {other}", channel.name),
                },
            );
        }
        data(place, channel, problems);
        if problems.count() == before {
            options(place, channel, problems);
        }
    }
    clashes(placed, problems);
}

/// What is wrong with the folder that checkpoints go to, which the container has below [`BASE`].
pub(super) fn output_path(path: &Path) -> Option<String> {
    if let Some(what) = folder_problem(path) {
        return Some(what.to_owned());
    }
    let input = Path::new(BASE).join("input");
    overlap(path, &input).then(|| {
        format!(
            "'{}' is not apart from {}, where the channels and their files are: give another \
             folder, such as {BASE}/checkpoints",
            shortened(&path.display().to_string()),
            input.display()
        )
    })
}

/// What is wrong with the path of an input or an output of a Processing job.
pub(super) fn local_path(path: &Path) -> Option<String> {
    if let Some(what) = folder_problem(path) {
        return Some(what.to_owned());
    }
    let above = Path::new(BASE).join("processing");
    (!path.starts_with(&above) || path == above).then(|| {
        let path = shortened(&path.display().to_string());
        format!("'{path}' does not begin with {}/", above.display())
    })
}

/// Whether one of two folders is the other one, or in it.
pub(crate) fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// What is wrong with the input as a whole, once it is known which host this is.
///
/// # Errors
/// When the host is not known and a channel is sharded, or for some instance groups: it would get
/// everything. When nobody is known to be of these groups: all would get nothing.
pub fn hosts(input: &TrainingInput) -> Result<(), Problem> {
    if let Some(hosts) = &input.hosts {
        let of_groups = input.channels.iter().find(|channel| !channel.instance_groups.is_empty());
        let is_known = !files::hosts_of_groups(hosts, &input.instance_groups).is_empty();
        return match of_groups.filter(|_| !is_known) {
            Some(channel) => Err(Problem::new(
                format!("channel {}", channel.name),
                "it has InstanceGroupNames, but the groups of resourceconfig.json are not those of \
                 ResourceConfig.InstanceGroups",
            )),
            None => Ok(()),
        };
    }
    let divided = |channel: &Channel| {
        let is_of_groups = !channel.instance_groups.is_empty() && input.instance_groups.len() > 1;
        match channel.distribution {
            Distribution::ShardedByS3Key => Some("it is ShardedByS3Key"),
            Distribution::FullyReplicated if is_of_groups => Some("it has InstanceGroupNames"),
            Distribution::FullyReplicated => None,
        }
    };
    let found = input.channels.iter().find_map(|channel| Some((channel, divided(channel)?)));
    let Some((channel, why)) = found else { return Ok(()) };
    Err(Problem::new(
        format!("channel {}", channel.name),
        format!("{why}, but {}: {}", ranks::UNKNOWN, ranks::how_to_say("N")),
    ))
}

/// The variables that a process can have: no name with `=`, no NUL.
pub(super) fn variables(path: &str, pairs: &BTreeMap<String, String>, problems: &mut Problems) {
    for (name, value) in pairs {
        if name.contains(['=', '\0']) || value.contains('\0') {
            let place = format!("{path}.{}", shortened(name));
            problems.add(place, "a variable's name has no '=', and nothing in it is NUL");
        }
    }
}

fn name_problem(name: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_name = (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_plain);
    (!is_name || name == "." || name == "..").then(|| {
        format!(
            "'{}' is not a valid channel name: expected 1 to {NAME_CHARS_MAX} letters, digits, \
             dots, hyphens and underscores",
            shortened(name)
        )
    })
}

/// What is wrong with the data of a channel, and with its mode.
fn data(place: &str, channel: &Channel, problems: &mut Problems) {
    let mut add = |what: &str| problems.add(place, what);
    match (&channel.data, channel.mode) {
        (ChannelData::Folder { path, .. }, mode) => {
            if let Some(what) = folder_problem(path) {
                add(&format!("the path of a folder {what}"));
            }
            if mode != InputMode::File {
                add("a file system is an input of File mode only");
            }
            if channel.distribution != Distribution::FullyReplicated {
                add("a file system is FullyReplicated");
            }
        }
        (ChannelData::Prefix(location), InputMode::File | InputMode::FastFile) => {
            if location.key.contains("//") {
                add("the key contains '//', which no path of a file can have");
            }
        }
        (ChannelData::Prefix(_), InputMode::Pipe) => {}
        (ChannelData::Manifest(file), mode) => {
            if mode == InputMode::FastFile {
                add("FastFile mode takes S3Prefix, not ManifestFile");
            }
            if file.key.is_empty() || file.key.ends_with('/') {
                add("the address of a manifest names one object");
            }
        }
        (ChannelData::AugmentedManifest { manifest, attributes }, mode) => {
            if mode != InputMode::Pipe {
                // In the words of the API's documentation.
                add("AugmentedManifestFile can only be used if the channel's input mode is Pipe");
            }
            if manifest.key.is_empty() || manifest.key.ends_with('/') {
                add("the address of a manifest names one object");
            }
            if attributes.is_empty() {
                add("AttributeNames are missing, which AugmentedManifestFile needs");
            }
            if channel.compression == Compression::Gzip {
                add("AugmentedManifestFile and Gzip do not go together");
            }
        }
    }
}

fn folder_problem(path: &Path) -> Option<&'static str> {
    if !path.is_absolute() {
        return Some("must be absolute");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Some("contains '..'");
    }
    let has_nul = path.as_os_str().as_encoded_bytes().contains(&0);
    has_nul.then_some("contains a NUL byte")
}

/// Options that its mode has not.
fn options(place: &str, channel: &Channel, problems: &mut Problems) {
    let mode = channel.mode;
    if mode == InputMode::Pipe {
        if channel.compression == Compression::Gzip
            && channel.record_wrapper == RecordWrapper::RecordIo
        {
            problems.add(
                place,
                "Gzip and RecordIO do not go together: a record begins with its length, and that \
                 of an object is not known before it is inflated",
            );
        }
        return;
    }
    if channel.compression == Compression::Gzip {
        let what = format!(
            "CompressionType Gzip is of Pipe mode only, and this is {} mode: use InputMode Pipe, \
             or CompressionType None, and decompress the files in COMMAND",
            mode.name()
        );
        problems.add(place, what);
    }
    if channel.record_wrapper == RecordWrapper::RecordIo {
        problems
            .add(place, format!("RecordIO is of Pipe mode only, and this is {} mode", mode.name()));
    }
    if channel.shuffle_seed.is_some() && channel.distribution == Distribution::ShardedByS3Key {
        let what = format!(
            "a shuffle seed with ShardedByS3Key is of Pipe mode only, and this is {} mode",
            mode.name()
        );
        problems.add(place, what);
    }
}

/// Paths that two channels would have.
fn clashes(placed: &[(String, Channel)], problems: &mut Problems) {
    let layout = Layout::default();
    let shown = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
    // Each with the place of its channel and what it is.
    let mut fixed: BTreeMap<PathBuf, (usize, &str)> = BTreeMap::new();
    for (at, (place, channel)) in placed.iter().enumerate() {
        let is_pipe = channel.mode == InputMode::Pipe;
        let (above, name) = layout.pipes(channel);
        let folder = (!is_pipe && channel.output_path.is_none())
            .then(|| (layout.channel(channel), "the folder"));
        let lock = above.join(format!(".inrush-{name}.lock"));
        let lock = is_pipe.then_some((lock, "the lock file"));
        let list = (layout.manifest(channel), "the list of the objects");
        for (path, what) in folder.into_iter().chain(lock).chain([list]) {
            match fixed.get(&path) {
                // Two channels of one name have been refused.
                Some((other, _)) if placed[*other].1.name == channel.name => {}
                Some((other, theirs)) => {
                    let other = &placed[*other].0;
                    let name = shown(&path);
                    let what = format!("{what}, {name}, has the name of {theirs} of {other}");
                    problems.add(place, what);
                }
                None => drop(fixed.insert(path, (at, what))),
            }
        }
    }
    for (place, channel) in placed.iter().filter(|(_, channel)| channel.mode == InputMode::Pipe) {
        let (above, own) = layout.pipes(channel);
        for (path, (other, theirs)) in &fixed {
            let name = shown(path);
            let is_there = path.parent() == Some(&above) && is_pipe_of(&own, &name);
            if is_there && placed[*other].1.name != channel.name {
                let other = &placed[*other].0;
                let what = format!("its pipe {name} has the name of {theirs} of {other}");
                problems.add(place, what);
            }
        }
    }
}

/// Whether a name is that of a pipe of this channel, or of the marker that its epoch is complete.
fn is_pipe_of(channel: &str, name: &str) -> bool {
    let epoch = name.strip_prefix(channel).and_then(|rest| rest.strip_prefix('_'));
    let epoch = epoch.map(|epoch| epoch.strip_suffix(".ok").unwrap_or(epoch));
    epoch.is_some_and(|epoch| epoch.parse::<u64>().is_ok_and(|number| number.to_string() == epoch))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::train::{Hosts, S3Location};

    fn location(text: &str) -> S3Location {
        S3Location::parse(text).expect("an address")
    }

    fn prefix(name: &str, mode: InputMode) -> Channel {
        Channel { mode, ..Channel::new(name, ChannelData::Prefix(location("s3://bucket/a/"))) }
    }

    fn problems_of(channels_given: Vec<Channel>) -> Vec<String> {
        let place = |at: usize| format!("channel {at}");
        let placed: Vec<_> = channels_given
            .into_iter()
            .enumerate()
            .map(|(at, channel)| (place(at), channel))
            .collect();
        let mut problems = Problems::default();
        channels(&placed, &mut problems);
        let problems = problems.settle(()).err().unwrap_or_default();
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_are_those_of_the_api() {
        let long = "x".repeat(65);
        for bad in ["", ".", "..", "a/b", "a b", "ä", "a\n", &long] {
            let found = problems_of(vec![prefix(bad, InputMode::File)]);
            assert!(found[0].contains("is not a valid channel name"), "{bad}: {found:?}");
        }
        for good in ["a", "...", "-", "_1", "A.b-c_9", &long[1..]] {
            assert_eq!(problems_of(vec![prefix(good, InputMode::File)]), [""; 0], "{good}");
        }
        let twice = problems_of(vec![prefix("a", InputMode::File), prefix("a", InputMode::Pipe)]);
        assert_eq!(twice, ["channel 1: the name 'a' is that of channel 0"]);
    }

    #[test]
    fn checkpoints_are_apart_from_the_input() {
        let problem = |path: &str| output_path(Path::new(path));
        for good in ["/opt/ml/checkpoints", "/opt/ml/inputs", "/opt/ml/in", "/data/opt/ml/input"] {
            assert_eq!(problem(good), None, "{good}");
        }
        let same = ["/opt/ml/input", "/opt//ml/./input/"];
        let near = ["/opt/ml", "/opt", "/", "/opt/ml/input/data", "/opt/ml/input/data/train"];
        for bad in same.into_iter().chain(near) {
            let what = problem(bad).expect(bad);
            assert!(what.contains("is not apart from /opt/ml/input"), "{bad}: {what}");
        }
        assert_eq!(problem("a").as_deref(), Some("must be absolute"));
        assert_eq!(problem("/opt/ml/a/../input").as_deref(), Some("contains '..'"));
    }

    #[test]
    fn paths_of_a_processing_job_are_below_its_folder() {
        let problem = |path: &str| local_path(Path::new(path));
        assert_eq!(problem("/opt/ml/processing/in/"), None);
        for bad in ["/opt/ml/processing/", "/opt/ml/processing2/a", "/opt/ml/input/data", "/data"] {
            let what = problem(bad).expect(bad);
            assert!(what.ends_with("does not begin with /opt/ml/processing/"), "{bad}: {what}");
        }
        assert_eq!(problem("in").as_deref(), Some("must be absolute"));
        assert_eq!(problem("/opt/ml/processing/../a").as_deref(), Some("contains '..'"));
        let at = |name: &str, mode: InputMode, path: &str| {
            let local_path = Some(PathBuf::from(format!("/opt/ml/processing/{path}")));
            Channel { local_path, ..prefix(name, mode) }
        };
        let (file, pipe) = (InputMode::File, InputMode::Pipe);
        // One in the other, and the same last name elsewhere.
        let apart = [at("a", file, "in"), at("b", file, "in/b"), at("c", pipe, "b")];
        assert_eq!(problems_of(apart.to_vec()), [""; 0]);
        let found = problems_of(vec![at("a", file, "in"), at("b", file, "in")]);
        assert_eq!(found, ["channel 1: the folder, in, has the name of the folder of channel 0"]);
        let found = problems_of(vec![at("a", file, "in_0"), at("b", pipe, "in")]);
        assert_eq!(found, ["channel 1: its pipe in_0 has the name of the folder of channel 0"]);
    }

    #[test]
    fn there_are_at_most_twenty_inputs() {
        let named = |at: usize| prefix(&format!("c{at}"), InputMode::File);
        let mut channels: Vec<Channel> = (0..CHANNELS_MAX).map(named).collect();
        let output_path = Some(PathBuf::from("/opt/ml/checkpoints"));
        channels.push(Channel { output_path, ..prefix("checkpoints", InputMode::File) });
        assert_eq!(problems_of(channels.clone()), [""; 0], "checkpoints are no input");
        channels.push(named(20));
        assert_eq!(problems_of(channels), ["21 channels; at most 20 are allowed"]);
    }

    #[test]
    fn no_two_channels_have_one_file() {
        let check = |channels: &[(&str, InputMode)], expected: &[&str]| {
            let given = channels.iter().map(|(name, mode)| prefix(name, *mode)).collect();
            assert_eq!(problems_of(given), expected, "{channels:?}");
        };
        use InputMode::{FastFile, File, Pipe};
        check(
            &[("train_1", File), ("train", Pipe)],
            &["channel 1: its pipe train_1 has the name of the folder of channel 0"],
        );
        check(
            &[("a_1", Pipe), ("a_1_0", FastFile)],
            &["channel 0: its pipe a_1_0 has the name of the folder of channel 1"],
        );
        check(
            &[("a_7.ok", File), ("a", Pipe)],
            &["channel 1: its pipe a_7.ok has the name of the folder of channel 0"],
        );
        check(
            &[("a", File), ("a-manifest", File)],
            &["channel 1: the folder, a-manifest, has the name of the list of the objects of \
               channel 0"],
        );
        check(
            &[(".inrush-a.lock", File), ("a", Pipe)],
            &["channel 1: the lock file, .inrush-a.lock, has the name of the folder of channel 0"],
        );
        // Pipes of two channels never have one name, and these are no numbers of epochs.
        check(&[("a", Pipe), ("a_1", Pipe), ("a-manifest", Pipe)], &[]);
        check(&[("a", Pipe), ("a_01", File), ("a_x", File), ("a_", File), ("a_1_0", File)], &[]);
        check(&[("a", File), ("a_1", File)], &[]);
    }

    #[test]
    fn each_mode_has_its_options() {
        let check = |channel: Channel, expected: &[&str]| {
            let expected: Vec<String> =
                expected.iter().map(|what| format!("channel 0: {what}")).collect();
            assert_eq!(problems_of(vec![channel]), expected);
        };
        let of = |data: &ChannelData, mode| Channel { mode, ..Channel::new("a", data.clone()) };
        let manifest = ChannelData::Manifest(location("s3://bucket/list.json"));
        let attributes = vec!["image-ref".to_owned()];
        let augmented =
            ChannelData::AugmentedManifest { manifest: location("s3://bucket/l"), attributes };
        use InputMode::{FastFile, File, Pipe};
        for mode in [File, Pipe] {
            check(of(&manifest, mode), &[]);
        }
        check(of(&manifest, FastFile), &["FastFile mode takes S3Prefix, not ManifestFile"]);
        check(of(&augmented, Pipe), &[]);
        for mode in [File, FastFile] {
            let expected =
                "AugmentedManifestFile can only be used if the channel's input mode is Pipe";
            check(of(&augmented, mode), &[expected]);
        }
        let gzip = |channel| Channel { compression: Compression::Gzip, ..channel };
        check(gzip(prefix("a", Pipe)), &[]);
        check(
            gzip(prefix("a", File)),
            &["CompressionType Gzip is of Pipe mode only, and this is File mode: use InputMode \
               Pipe, or CompressionType None, and decompress the files in COMMAND"],
        );
        check(gzip(of(&augmented, Pipe)), &["AugmentedManifestFile and Gzip do not go together"]);
        check(
            Channel { record_wrapper: RecordWrapper::RecordIo, ..gzip(prefix("a", Pipe)) },
            &["Gzip and RecordIO do not go together: a record begins with its length, and that \
                 of an object is not known before it is inflated"],
        );
        let records = Channel { record_wrapper: RecordWrapper::RecordIo, ..prefix("a", FastFile) };
        check(records, &["RecordIO is of Pipe mode only, and this is FastFile mode"]);
        let seeded = Channel { shuffle_seed: Some(1), ..prefix("a", File) };
        check(seeded.clone(), &[]);
        check(
            Channel { distribution: Distribution::ShardedByS3Key, ..seeded },
            &["a shuffle seed with ShardedByS3Key is of Pipe mode only, and this is File mode"],
        );
    }

    #[test]
    fn data_is_somewhere() {
        let check = |data, mode, expected: &[&str]| {
            let expected: Vec<String> =
                expected.iter().map(|what| format!("channel 0: {what}")).collect();
            assert_eq!(problems_of(vec![Channel { mode, ..Channel::new("a", data) }]), expected);
        };
        use InputMode::{FastFile, File, Pipe};
        let doubled = || ChannelData::Prefix(location("s3://bucket/a//b"));
        check(doubled(), File, &["the key contains '//', which no path of a file can have"]);
        check(doubled(), Pipe, &[]);
        check(
            ChannelData::Manifest(location("s3://bucket/folder/")),
            File,
            &["the address of a manifest names one object"],
        );
        let folder = |path: &str| ChannelData::Folder { path: path.into(), writable: false };
        check(folder("/mnt/data"), File, &[]);
        check(folder("mnt"), File, &["the path of a folder must be absolute"]);
        check(folder("/a/../b"), File, &["the path of a folder contains '..'"]);
        check(folder("/a"), FastFile, &["a file system is an input of File mode only"]);
        let none = ChannelData::AugmentedManifest {
            manifest: location("s3://bucket/l"),
            attributes: Vec::new(),
        };
        check(none, Pipe, &["AttributeNames are missing, which AugmentedManifestFile needs"]);
    }

    #[test]
    fn a_shard_needs_a_host() {
        let distribution = Distribution::ShardedByS3Key;
        let channels = vec![Channel { distribution, ..prefix("a", InputMode::File) }];
        let mut input = TrainingInput { channels, ..TrainingInput::default() };
        let problem = hosts(&input).expect_err("a problem").to_string();
        assert!(problem.starts_with("channel a: it is ShardedByS3Key"), "{problem}");
        input.hosts = Some(Hosts::numbered(0, 2));
        assert_eq!(hosts(&input), Ok(()));
    }
}
