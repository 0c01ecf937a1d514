//! `inrush load`: chooses the files of a model before they are downloaded.

mod weights;

use std::rc::Rc;

use crate::control::Control;
use crate::control::limits::MODEL_FILES_MAX;
use crate::control::list::walk::Walk;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::filter::Filter;
use crate::report::progress::Progress;
use crate::s3::uri::S3Uri;
use crate::text::size::{Decimal, counted};
use weights::ModelFiles;

/// Adds to the filter what a loader of safetensors does not read, and says how much that is.
///
/// # Errors
/// Those of a listing; [`ErrorKind::NotFound`] if a file that an index names is missing.
pub(super) async fn narrow(
    control: &Rc<Control>,
    sources: &[S3Uri],
    filter: Filter,
    progress: &Progress,
) -> Result<Filter> {
    // One that is not there is the download's error.
    let (found, _) = control.resolve_there(sources).await?;
    if found.is_empty() {
        return Ok(filter);
    }
    let mut walk = Walk::new(Rc::clone(control), found, filter.clone())?;
    let mut files = ModelFiles::default();
    let (mut indexes, mut contents) = (Vec::new(), Vec::new());
    while let Some(batch) = walk.next_batch().await? {
        for entry in batch {
            let Ok(path) = &entry.path else { continue };
            if files.add(path.as_str(), entry.object.size_bytes) {
                indexes.push((entry.endpoint.bucket.clone(), entry.object.key));
            }
        }
        if files.count() > MODEL_FILES_MAX {
            let message = format!("{}: it has more than {MODEL_FILES_MAX} weights", sources[0]);
            return Err(Error::new(ErrorKind::Usage, message)
                .advise("give the folder of one model, or use get"));
        }
    }
    for (bucket, key) in indexes {
        contents.push(control.model_index(&bucket, &key).await?);
    }
    let left_out = files.left_out(&contents)?;
    if left_out.paths.is_empty() {
        return Ok(filter);
    }
    progress.note(format!(
        "left out {}, {}, that loaders of safetensors do not read; get downloads everything",
        counted(left_out.paths.len() as u64, "file", "files"),
        Decimal(left_out.bytes)
    ));
    Ok(filter.except(left_out.paths))
}
