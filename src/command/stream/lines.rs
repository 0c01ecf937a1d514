//! Streams the lines of an augmented manifest: read and checked once, then walked in the order of
//! each epoch.

use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::framing::{Framer, check_record};
use super::supply::EpochOrder;
use crate::cli::ManifestPlace;
use crate::control::Control;
use crate::control::blocking::blocking;
use crate::control::list::heads::{Found, HeadsAhead};
use crate::error::{Error, ErrorKind, Result};
use crate::files::whole_file;
use crate::limits::{AUGMENTED_BYTES_MAX, INLINE_AHEAD_BYTES_MAX};
use crate::link::object::ObjectRef;
use crate::plan::augmented::{AugmentedManifest, Value};
use crate::plan::epoch::permutation;
use crate::s3::uri::{S3Uri, shown};

/// Reads a manifest.
///
/// # Errors
/// [`ErrorKind::Usage`] if it cannot be read or a line is wrong; those of
/// [`Control::augmented_manifest`] if it is an object.
pub(in crate::command) async fn read(
    control: &Control,
    manifest: &ManifestPlace,
    attributes: &[String],
) -> Result<Arc<AugmentedManifest>> {
    let (name, text) = match manifest {
        ManifestPlace::File(path) => {
            let (name, path) = (path.display().to_string(), path.clone());
            // The file may be a pipe without a writer.
            (name, blocking(move || read_file(&path)).await?)
        }
        ManifestPlace::S3(bucket, key) => {
            let text = control.augmented_manifest(bucket, key).await?;
            (format!("s3://{bucket}/{}", shown(key)), text)
        }
    };
    let attributes = attributes.to_vec();
    // Many lines take long.
    blocking(move || AugmentedManifest::new(name, text, attributes)).await.map(Arc::new)
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let unreadable = |why: String| {
        Error::new(ErrorKind::Usage, format!("cannot read {}: {why}", path.display()))
            .advise("give --augmented-manifest a file of JSON Lines, or s3://BUCKET/KEY")
    };
    let text = whole_file::read(path, AUGMENTED_BYTES_MAX);
    let text =
        text.map_err(|errno| unreadable(errno.to_string()).caused_by(std::io::Error::from(errno)))?;
    if text.len() as u64 > AUGMENTED_BYTES_MAX {
        return Err(unreadable(format!("it has more than {AUGMENTED_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// A value of a line, in the order of the stream.
#[derive(Debug)]
enum Item {
    Text(String),
    /// The next of the requested objects.
    Object {
        line: u32,
        attribute: usize,
    },
}

/// The lines of one epoch: their values are read, and their objects requested, ahead of the stream.
#[derive(Debug)]
pub(in crate::command) struct LineWalk {
    manifest: Arc<AugmentedManifest>,
    order: EpochOrder,
    permuted: Option<Vec<u32>>,
    /// The position of the next line in the epoch.
    place: u32,
    /// Values of the current line, the last one first.
    rest: Vec<(Item, Option<S3Uri>)>,
    heads: HeadsAhead,
    ahead: VecDeque<Item>,
    text_bytes: usize,
    /// The first object, which is awaited before anything else.
    first: Option<Found>,
    wraps: Option<&'static str>,
}

impl LineWalk {
    /// Begins an epoch, unless its first object cannot be resolved.
    ///
    /// # Errors
    /// Why that failed, with its line and attribute.
    pub(in crate::command) async fn begin(
        control: &Rc<Control>,
        manifest: &Arc<AugmentedManifest>,
        wraps: Option<&'static str>,
        order: EpochOrder,
        epoch: u64,
    ) -> Result<Self> {
        let permuted = order.shuffle_seed.map(|seed| permutation(seed, epoch, manifest.count()));
        let hosts = u64::from(order.shard.count);
        let mut walk = Self {
            manifest: Arc::clone(manifest),
            order,
            permuted,
            place: 0,
            rest: Vec::new(),
            heads: HeadsAhead::new(Rc::clone(control)).listing(manifest.named(), hosts),
            ahead: VecDeque::new(),
            text_bytes: 0,
            first: None,
            wraps,
        };
        walk.fill();
        walk.first = match walk.ahead.iter().find(|item| matches!(item, Item::Object { .. })) {
            Some(&Item::Object { line, attribute }) => Some(walk.found(line, attribute).await?),
            _ => None,
        };
        Ok(walk)
    }

    /// Reads lines ahead, up to the limits.
    fn fill(&mut self) {
        while self.text_bytes < INLINE_AHEAD_BYTES_MAX {
            let Some((item, uri)) = self.rest.pop() else {
                if !self.read_line() {
                    return;
                }
                continue;
            };
            match (&item, uri) {
                (_, Some(uri)) => {
                    if let Some(uri) = self.heads.ask(uri) {
                        self.rest.push((item, Some(uri)));
                        return;
                    }
                }
                (Item::Text(text), None) => self.text_bytes += text.len() + size_of::<Item>(),
                (Item::Object { .. }, None) => unreachable!("an object has an address"),
            }
            self.ahead.push_back(item);
        }
    }

    /// Reads the next line of this shard; false after the last.
    fn read_line(&mut self) -> bool {
        let shard = self.order.shard;
        let mut places = self.place..self.manifest.count();
        let Some(place) = places.find(|place| shard.takes(u64::from(*place))) else { return false };
        self.place = place + 1;
        let line = self.permuted.as_ref().map_or(place, |permuted| permuted[place as usize]);
        let values = self.manifest.values(line).into_iter().enumerate();
        let items = values.map(|(attribute, value)| match value {
            Value::Text(text) => (Item::Text(text.into_owned()), None),
            Value::Reference(uri) => (Item::Object { line, attribute }, Some(*uri)),
        });
        self.rest.extend(items.rev());
        true
    }

    /// Adds the whole epoch to the feed; returns its number of objects.
    ///
    /// # Errors
    /// Why one of its objects cannot be resolved, with its line and attribute.
    pub(super) async fn hand_on(mut self, mut framer: Framer<'_>) -> Result<u64> {
        let mut objects = 0;
        loop {
            self.fill();
            match self.ahead.pop_front() {
                None => break,
                Some(Item::Text(text)) => {
                    self.text_bytes -= text.len() + size_of::<Item>();
                    framer.text(&text).await?;
                }
                Some(Item::Object { line, attribute }) => {
                    let (object, endpoint) = match self.first.take() {
                        Some(first) => first,
                        None => {
                            if !self.heads.is_ready() {
                                framer.send().await?;
                            }
                            self.found(line, attribute).await?
                        }
                    };
                    framer.object(Arc::new(ObjectRef::new(object, endpoint))).await?;
                    objects += 1;
                }
            }
        }
        framer.finish().await?;
        Ok(objects)
    }

    /// The next requested object.
    async fn found(&mut self, line: u32, attribute: usize) -> Result<Found> {
        let checked = async {
            let found = self.heads.next().await?.expect("it was asked about");
            if let Some(advice) = self.wraps {
                check_record(&found.0, &found.1, advice)?;
            }
            Ok(found)
        };
        let found: Result<Found> = checked.await;
        found.map_err(|error| error.within(self.manifest.place(line, attribute)))
    }
}
