//! `--channel NAME=SOURCE[,KEY=VALUE..]`: a channel as it is typed.
//!
//! The source ends at the first comma, and names end at the first equals sign: a source with a
//! comma is described in a file for `--job`. Keys and the names of values are read in any case.

use super::check::{self, ATTRIBUTE_CHARS_MAX, ATTRIBUTES_MAX};
use super::field::{Spelling, choice};
use super::job::DataType;
use super::problem::{Problem, Problems};
use super::{
    Channel, ChannelData, Compression, Distribution, InputMode, RecordWrapper, S3Location,
    TrainingInput,
};
use crate::text::shown::shortened;

/// The keys, for messages.
const KEYS: &str = "mode, distribution, type, attributes, compression, record-wrapper, \
                    shuffle-seed, content-type, allow-empty";

/// Reads all channels. Objects that say nothing of their distribution have this one.
///
/// # Errors
/// All that is wrong with them.
pub fn parse<'a>(
    typed: impl IntoIterator<Item = &'a str>,
    distribution: Distribution,
) -> Result<TrainingInput, Vec<Problem>> {
    let mut problems = Problems::default();
    let mut channels = Vec::new();
    for text in typed {
        let name = text.split(['=', ',']).next().unwrap_or_default();
        let place = format!("--channel {}", shortened(name));
        match channel(text, distribution) {
            Ok(channel) => channels.push((place, channel)),
            Err(all) => all.into_iter().for_each(|what| problems.add(&*place, what)),
        }
    }
    check::channels(&channels, &mut problems);
    let channels = channels.into_iter().map(|(_, channel)| channel).collect();
    problems.settle(TrainingInput { channels, ..TrainingInput::default() })
}

/// What was typed behind the source.
#[derive(Default)]
struct Options<'a> {
    mode: Option<InputMode>,
    distribution: Option<Distribution>,
    kind: Option<DataType>,
    attributes: Vec<String>,
    compression: Option<Compression>,
    record_wrapper: Option<RecordWrapper>,
    shuffle_seed: Option<u64>,
    content_type: Option<&'a str>,
    allow_empty: bool,
}

fn channel(text: &str, distribution: Distribution) -> Result<Channel, Vec<String>> {
    let Some((name, rest)) = text.split_once('=') else {
        return Err(vec!["expected NAME=SOURCE, such as train=s3://BUCKET/FOLDER/".to_owned()]);
    };
    let mut pieces = rest.split(',');
    let source = pieces.next().unwrap_or_default();
    let mut options = Options::default();
    let mut wrong = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for piece in pieces.map(str::trim_start) {
        let (key, value) =
            piece.split_once('=').map_or((piece, None), |(key, value)| (key, Some(value)));
        let key = canonical(key);
        match option(&key, value, &mut options) {
            Err(what) => wrong.push(what),
            Ok(()) if seen.contains(&key) => wrong.push(format!("{key} is given twice")),
            Ok(()) => seen.push(key),
        }
    }
    let attributes = std::mem::take(&mut options.attributes);
    let data = data(source, options.kind, attributes).map_err(|what| wrong.push(what));
    let Some(data) = data.ok().filter(|_| wrong.is_empty()) else { return Err(wrong) };
    Ok(Channel {
        mode: options.mode.unwrap_or_default(),
        content_type: options.content_type.map(str::to_owned),
        distribution: options.distribution.unwrap_or(match &data {
            ChannelData::Folder { .. } => Distribution::default(),
            _ => distribution,
        }),
        compression: options.compression.unwrap_or_default(),
        record_wrapper: options.record_wrapper.unwrap_or_default(),
        shuffle_seed: options.shuffle_seed,
        allow_empty: options.allow_empty,
        ..Channel::new(name, data)
    })
}

/// The key as the table has it: in lower case; `InputMode` has the name of its field, too.
fn canonical(key: &str) -> String {
    match key.to_ascii_lowercase() {
        key if matches!(key.as_str(), "input-mode" | "inputmode") => "mode".to_owned(),
        key => key,
    }
}

/// What is said of a key that is none.
fn unknown(key: &str, has_value: bool) -> String {
    let meant = match key {
        "seed" | "shuffle" | "shuffleseed" => "shuffle-seed",
        "wrapper" | "recordwrapper" | "record-wrapper-type" | "recordwrappertype" => {
            "record-wrapper"
        }
        "compression-type" | "compressiontype" | "gzip" => "compression",
        "contenttype" => "content-type",
        "s3datatype" | "data-type" => "type",
        "s3datadistributiontype" | "sharded" => "distribution",
        "attributenames" | "attribute" => "attributes",
        "epochs" | "epoch" => {
            return format!("'{key}' is of all channels together: give --epochs N");
        }
        _ => "",
    };
    let key = shortened(key);
    match (meant, has_value) {
        ("", true) => format!("'{key}' is not a key: expected one of {KEYS}"),
        ("", false) => {
            format!(
                "'{key}' is not a key: expected one of {KEYS}; a source that has a comma in it \
                 needs --job"
            )
        }
        (meant, _) => format!("'{key}' is not a key; did you mean {meant}?"),
    }
}

fn option<'a>(key: &str, value: Option<&'a str>, options: &mut Options<'a>) -> Result<(), String> {
    const ANY: Spelling = Spelling::Any;
    let given = || {
        let value = value.filter(|value| !value.is_empty());
        value.ok_or_else(|| format!("{key} has no value: expected {key}=VALUE"))
    };
    let within = |what: String| format!("{key}: {what}");
    match key {
        "mode" => options.mode = Some(choice(given()?, &InputMode::ALL, ANY).map_err(within)?),
        "distribution" => {
            options.distribution = Some(choice(given()?, &Distribution::ALL, ANY).map_err(within)?);
        }
        "type" => options.kind = Some(choice(given()?, &DataType::ALL, ANY).map_err(within)?),
        "compression" => {
            options.compression = Some(choice(given()?, &Compression::ALL, ANY).map_err(within)?);
        }
        "record-wrapper" => {
            let wrapper = choice(given()?, &RecordWrapper::ALL, ANY).map_err(within)?;
            options.record_wrapper = Some(wrapper);
        }
        "attributes" => {
            let names: Vec<String> = given()?.split('+').map(str::to_owned).collect();
            let fits = |name: &String| (1..=ATTRIBUTE_CHARS_MAX).contains(&name.chars().count());
            if names.len() > ATTRIBUTES_MAX || !names.iter().all(fits) {
                return Err(format!(
                    "attributes: expected 1 to {ATTRIBUTES_MAX} names with '+' between them, each \
                     of at most {ATTRIBUTE_CHARS_MAX} characters"
                ));
            }
            options.attributes = names;
        }
        "shuffle-seed" => options.shuffle_seed = Some(seed(given()?).map_err(within)?),
        "content-type" => {
            let (text, most) = (given()?, check::CONTENT_TYPE_CHARS_MAX);
            if text.chars().count() > most {
                return Err(format!("content-type: at most {most} characters are allowed"));
            }
            options.content_type = Some(text);
        }
        "allow-empty" => {
            let all = [("true", true), ("false", false)];
            options.allow_empty = choice(value.unwrap_or("true"), &all, ANY).map_err(within)?;
        }
        _ => return Err(unknown(key, value.is_some())),
    }
    Ok(())
}

/// A seed as `ShuffleConfig.Seed` has it, or as `--shuffle-seed` does: the bits are the same.
fn seed(text: &str) -> Result<u64, String> {
    let signed = text.parse::<i64>().map(i64::cast_unsigned);
    signed
        .or_else(|_| text.parse())
        .map_err(|_| format!("'{}' is not a whole number of 64 bits", shortened(text)))
}

fn data(
    source: &str,
    kind: Option<DataType>,
    attributes: Vec<String>,
) -> Result<ChannelData, String> {
    if source.starts_with('/') {
        if kind.is_some() || !attributes.is_empty() {
            return Err("type and attributes are of sources in S3".to_owned());
        }
        return Ok(ChannelData::Folder { path: source.into(), writable: false });
    }
    if let Some(path) = source.strip_prefix("file://").filter(|path| path.starts_with('/')) {
        let (source, path) = (shortened(source), shortened(path));
        return Err(format!("'{source}' is a URL: give the path alone, {path}"));
    }
    if !source.contains("://") {
        let source = shortened(source);
        let plain = source.strip_prefix("./").unwrap_or(&source);
        let hint = match plain {
            "" => String::new(),
            plain => format!(": for the local folder give \"$PWD/{plain}\""),
        };
        return Err(format!("'{source}' is neither s3://BUCKET/KEY nor an absolute path{hint}"));
    }
    let location = S3Location::parse(source)?;
    let kind = kind.unwrap_or(DataType::Prefix);
    kind.data(location, attributes).map_err(|what| format!("attributes: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Channel {
        let input = parse([text], Distribution::default()).expect("a channel");
        assert_eq!(input.channels.len(), 1);
        input.channels[0].clone()
    }

    fn problems(typed: &[&str]) -> Vec<String> {
        let problems = parse(typed.iter().copied(), Distribution::default()).expect_err("problems");
        problems.iter().map(ToString::to_string).collect()
    }

    fn location(key: &str) -> S3Location {
        S3Location { bucket: "bucket".to_owned(), key: key.to_owned() }
    }

    #[test]
    fn channels_are_typed() {
        let prefix = |key: &str| ChannelData::Prefix(location(key));
        assert_eq!(one("a=s3://bucket/x=1/y"), Channel::new("a", prefix("x=1/y")));
        let all = "train=s3://bucket/k/,Mode=pipe,distribution=shardedbys3key,compression=GZIP,\
                   SHUFFLE-SEED=-1,content-type=text/csv; header=present,allow-empty";
        let expected = Channel {
            mode: InputMode::Pipe,
            content_type: Some("text/csv; header=present".to_owned()),
            distribution: Distribution::ShardedByS3Key,
            compression: Compression::Gzip,
            shuffle_seed: Some(u64::MAX),
            allow_empty: true,
            ..Channel::new("train", prefix("k/"))
        };
        assert_eq!(one(all), expected);
        for mode in ["InputMode=Pipe", " input-mode=PIPE", "  mode=pipe"] {
            let channel = one(&format!("a=s3://bucket/k/,content-type=x,{mode}"));
            assert_eq!(channel.mode, InputMode::Pipe, "{mode}");
        }
        let records = "train=s3://bucket/k/,mode=Pipe,record-wrapper=recordio";
        assert_eq!(one(records).record_wrapper, RecordWrapper::RecordIo);
        let manifest = ChannelData::Manifest(location("m.json"));
        assert_eq!(one("a=s3://bucket/m.json,type=manifestfile"), Channel::new("a", manifest));
        let attributes = vec!["image-ref".to_owned(), "class".to_owned()];
        let data = ChannelData::AugmentedManifest { manifest: location("l"), attributes };
        let typed =
            "a=s3://bucket/l,mode=Pipe,type=AugmentedManifestFile,attributes=image-ref+class";
        assert_eq!(one(typed), Channel { mode: InputMode::Pipe, ..Channel::new("a", data) });
        let folder = ChannelData::Folder { path: "/mnt/a=b".into(), writable: false };
        assert_eq!(one("a=/mnt/a=b"), Channel::new("a", folder));
        assert_eq!(
            one("a=s3://bucket/,shuffle-seed=18446744073709551615").shuffle_seed,
            Some(u64::MAX)
        );
        assert!(!one("a=s3://bucket/,allow-empty=false").allow_empty);
    }

    #[test]
    fn all_problems_are_found_at_once() {
        let typed = [
            "train",
            "a=s3://bucket/x,y/,mode=Fast,mode=Pipe,mode=File,type",
            "b=./folder",
            "b2=file:///mnt/b",
            "b3=s3://bucket/b,epochs=3,seed=1, wrapper=RecordIO,modus=Pipe",
            "c=s3://buc?et/",
            "d=/mnt/d,type=S3Prefix",
            "e=s3://bucket/e,attributes=x",
            "f=s3://bucket/f,shuffle-seed=0x1,attributes=,compression=zip",
            "g=s3://bucket/g,compression=gzip",
            "g=s3://bucket/h",
        ];
        let expected = [
            "--channel train: expected NAME=SOURCE, such as train=s3://BUCKET/FOLDER/",
            "--channel a: 'y/' is not a key: expected one of mode, distribution, type, attributes, \
             compression, record-wrapper, shuffle-seed, content-type, allow-empty; a source that \
             has a comma in it needs --job",
            "--channel a: mode: invalid value 'Fast': expected File, Pipe or FastFile",
            "--channel a: mode is given twice",
            "--channel a: type has no value: expected type=VALUE",
            "--channel b: './folder' is neither s3://BUCKET/KEY nor an absolute path: for the \
             local folder give \"$PWD/folder\"",
            "--channel b2: 'file:///mnt/b' is a URL: give the path alone, /mnt/b",
            "--channel b3: 'epochs' is of all channels together: give --epochs N",
            "--channel b3: 'seed' is not a key; did you mean shuffle-seed?",
            "--channel b3: 'wrapper' is not a key; did you mean record-wrapper?",
            "--channel b3: 'modus' is not a key: expected one of mode, distribution, type, \
             attributes, compression, record-wrapper, shuffle-seed, content-type, allow-empty",
            "--channel c: 's3://buc?et/' is not an S3 address: the bucket name cannot contain a \
             wildcard",
            "--channel d: type and attributes are of sources in S3",
            "--channel e: attributes: only AugmentedManifestFile has attributes",
            "--channel f: shuffle-seed: '0x1' is not a whole number of 64 bits",
            "--channel f: attributes has no value: expected attributes=VALUE",
            "--channel f: compression: invalid value 'zip': expected None or Gzip",
            "--channel g: CompressionType Gzip is of Pipe mode only, and this is File mode: use \
             InputMode Pipe, or CompressionType None, and decompress the files in COMMAND",
            "--channel g: is given twice",
        ];
        assert_eq!(problems(&typed), expected);
    }
}
