//! The lists `NAME-manifest` of the objects of the channels in File and FastFile mode, beside their
//! folders.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;

use super::files::AllFound;
use super::input::{self, Sources};
use super::layout::{JobFolders, TEMPORARY_PREFIX, unusable};
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::control::list::channel::{ChannelObjects, ChannelSource};
use crate::error::Result;
use crate::files::whole_file::Unnamed;
use crate::plan::kept::KeptListing;
use crate::s3::is_folder_mark;
use crate::s3::uri::S3Uri;
use crate::train::{Channel, TrainingInput, files};

/// Writes the lists: all objects of each channel, not only this host's. Then records them.
///
/// # Errors
/// If one cannot be written, or a channel that is listed again cannot be listed.
pub(super) async fn write(
    control: &Rc<Control>,
    (input, layout): (&TrainingInput, &JobFolders),
    sources: &Sources,
    found: &mut AllFound,
) -> Result<()> {
    for ((channel, source), (found, _)) in input::files(input, sources).zip(found) {
        let within = |error: crate::error::Error| error.within(format!("channel {}", channel.name));
        let path = layout.manifest(channel);
        let list = match (&source.objects, found.kept.take()) {
            (ChannelObjects::List(list), kept) => {
                found.kept = kept;
                of_list(&path, channel, list.clone()).await
            }
            (ChannelObjects::Prefix(_), Some(kept)) => {
                let (written, kept) = of_kept(&path, channel, kept).await;
                found.kept = Some(kept);
                written
            }
            (ChannelObjects::Prefix(_), None) => {
                relist(control, &path, channel, source).await.map_err(within)?;
                continue;
            }
        };
        list.map_err(|error| within(unusable(&path, &error)))?;
    }
    let (layout, input) = (layout.clone(), input.clone());
    blocking(move || layout.note_lists(&input)).await
}

/// Writes the list of a ManifestFile's objects, in its order.
async fn of_list(path: &Path, channel: &Channel, list: Vec<S3Uri>) -> io::Result<()> {
    let (path, channel) = (path.to_owned(), channel.clone());
    blocking(move || {
        let bucket = list.first().map(|uri| uri.bucket.clone()).unwrap_or_default();
        whole(&path, |out| {
            let keys = list.iter().map(S3Uri::literal_key);
            files::write_manifest(&channel, &bucket, keys, out)
        })
    })
    .await
}

/// Writes the list of a retained listing, and returns the listing.
async fn of_kept(
    path: &Path,
    channel: &Channel,
    kept: KeptListing,
) -> (io::Result<()>, KeptListing) {
    let (path, channel) = (path.to_owned(), channel.clone());
    blocking(move || {
        let written = whole(&path, |out| {
            let bucket = match kept.count() {
                0 => String::new(),
                _ => kept.endpoint(0).bucket.clone(),
            };
            let keys = (0..kept.count()).map(|index| kept.key(index));
            let objects = keys.filter(|(key, size_bytes)| !is_folder_mark(key, *size_bytes));
            files::write_manifest(&channel, &bucket, objects.map(|(key, _)| key), out)
        });
        (written, kept)
    })
    .await
}

fn whole(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut Unnamed>) -> io::Result<bool>,
) -> io::Result<()> {
    let mut file = Unnamed::beside(path, TEMPORARY_PREFIX)?;
    let mut out = BufWriter::new(&mut file);
    fill(&mut out)?;
    out.flush()?;
    drop(out);
    file.sync()?;
    file.name(path).map(drop)
}

/// Writes the list of a channel that is too long to be retained.
async fn relist(
    control: &Rc<Control>,
    path: &Path,
    channel: &Channel,
    source: &ChannelSource,
) -> Result<()> {
    let refused = |error: io::Error| unusable(path, &error);
    let beside = path.to_owned();
    let file = blocking(move || Unnamed::beside(&beside, TEMPORARY_PREFIX)).await;
    let mut file = file.map_err(refused)?;
    let mut text = Vec::new();
    files::write_manifest(channel, "", [""; 0], &mut text).map_err(refused)?;
    let mut walk = control.channel_walk(source).await?;
    loop {
        let batch = walk.next_batch().await?;
        let is_last = batch.is_none();
        for entry in batch.into_iter().flatten() {
            files::write_manifest_line(&entry.endpoint.bucket, &entry.object.key, &mut text)
                .map_err(refused)?;
        }
        let bytes = std::mem::take(&mut text);
        let written = blocking(move || file.write_all(&bytes).map(|()| file)).await;
        file = written.map_err(refused)?;
        if is_last {
            break;
        }
    }
    let named = path.to_owned();
    blocking(move || file.sync().and_then(|()| file.name(&named))).await.map(drop).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::list::channel::ListingBudget;
    use crate::control::loopback::{self, Reply, Server};
    use crate::plan::epoch::Shard;
    use crate::train::{ChannelData, S3Location};

    #[test]
    fn a_list_is_the_same_whether_its_listing_was_kept_or_not() {
        let server = Server::start(|head| {
            let objects = [("a/1", 3), ("a/2/", 0), ("a/2/x", 0), ("a/3", 4)];
            let (page, next) = match head.contains("continuation-token") {
                true => (&objects[2..], None),
                false => (&objects[..2], Some("next")),
            };
            Reply::new(200, Server::page(page, next))
        });
        let key = "a".to_owned();
        let location = S3Location { bucket: "bkt".to_owned(), key };
        let channel = Channel::new("c", ChannelData::Prefix(location));
        let prefix = S3Uri::parse_prefix("s3://bkt/a").expect("an address");
        let source = ChannelSource {
            folder: "c".to_owned(),
            objects: ChannelObjects::Prefix(Box::new(prefix)),
            // All objects are listed nevertheless.
            shard: Shard { index: 1, count: 2 },
            allow_empty: false,
        };
        let folder = tempfile::tempdir().expect("a folder");
        let place = |name: &str| folder.path().join(name);
        loopback::run(async {
            let control = Rc::new(loopback::control(&server).await);
            let room = ListingBudget::new(1 << 20);
            let found = control.preflight(&source, true, 9, Some(&room)).await.expect("a look");
            let kept = found.kept.expect("there is room");
            of_kept(&place("kept"), &channel, kept).await.0.expect("a list");
            relist(&control, &place("again"), &channel, &source).await.expect("a list");
        });
        let expected = "a\ns3://bkt/a/1\ns3://bkt/a/2/x\ns3://bkt/a/3\n";
        for name in ["kept", "again"] {
            assert_eq!(std::fs::read_to_string(place(name)).expect(name), expected, "{name}");
        }
        assert_eq!(folder.path().read_dir().expect("a folder").count(), 2, "nothing temporary");
    }
}
