//! [`crate::download::sources`] of a command: what it waits for is named when it is interrupted.

use super::interrupts;
use crate::cli::SelectionArgs;
use crate::control::Control;
use crate::download::sources;
pub(super) use crate::download::sources::Narrowed;
use crate::error::Result;
use crate::s3::uri::S3Uri;

/// Adds the sources in the file, if given, to the typed ones.
pub(super) async fn add(sources: &mut Vec<S3Uri>, selection: &SelectionArgs) -> Result<()> {
    sources::add(sources, selection, &interrupts::board()).await
}

/// Adds the manifest's objects, if there is one.
pub(super) async fn add_manifest(
    control: &Control,
    sources: &mut Vec<S3Uri>,
    selection: &SelectionArgs,
    narrowed: Narrowed,
) -> Result<Narrowed> {
    sources::add_manifest(control, sources, selection, narrowed, &interrupts::board()).await
}
