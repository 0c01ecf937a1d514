//! The operands that commands share: sources and a destination.

use std::ffi::OsString;
use std::path::PathBuf;

use super::{SelectionArgs, usage};
use crate::s3::uri::{S3Uri, SCHEME};
use crate::s3::web::{is_url, location_without_query, meant_url, without_query};
use crate::text::shown::shown;

/// The operands that are sources, for the command of this name; none if a file lists them.
pub(super) fn sources(
    name: &str,
    operands: Vec<OsString>,
    discard: bool,
    selection: &SelectionArgs,
) -> Result<Vec<S3Uri>, clap::Error> {
    if operands.is_empty() && !selection.has_more() {
        let message = format!("the source is missing: give s3://BUCKET/KEY after '{name}'");
        return Err(usage(&message));
    }
    if !operands.is_empty() && selection.manifest.is_some() {
        return Err(usage("--manifest lists all objects: give no source besides"));
    }
    let sources = operands.into_iter().map(|operand| match operand.to_str() {
        Some(text) if discard && !text.contains("://") => Err(usage(&format!(
            "unexpected destination '{}': --discard writes nothing",
            shown(text)
        ))),
        Some(text) => parse_source(text, selection),
        None => Err(usage(&format!("{} is not UTF-8, but keys always are", operand.display()))),
    });
    sources.collect()
}

/// Parses an address.
pub(super) fn parse_source(text: &str, selection: &SelectionArgs) -> Result<S3Uri, clap::Error> {
    selection.read_source()(text).map_err(|error| usage(&error.to_string()))
}

/// Refuses uploads and copies within S3.
pub(super) fn check_direction(
    name: &str,
    sources: &[OsString],
    last: &OsString,
) -> Result<(), clap::Error> {
    let is_remote = |operand: &OsString| operand.as_encoded_bytes().starts_with(b"s3://");
    // Of s3://BUCKET/KEY.
    let bucket =
        |operand: &OsString| operand.to_string_lossy().split('/').nth(2).map(str::to_owned);
    match sources {
        [local, ..] if is_remote(last) && !sources.iter().any(is_remote) => Err(usage(&format!(
            "inrush does not upload, and '{}' is not an S3 address: give \
             s3://BUCKET/KEY first, then the folder or file that it goes to",
            shown(&without_query(&local.display().to_string()))
        ))),
        [.., source] if is_remote(last) && bucket(source) != bucket(last) => Err(usage(&format!(
            "inrush does not copy between buckets: give a local folder or file after the sources \
             of inrush {name}"
        ))),
        _ => Ok(()),
    }
}

/// `or_discards`: the command may do without.
pub(super) fn parse_destination(
    operand: OsString,
    or_discards: bool,
) -> Result<PathBuf, clap::Error> {
    let typed = operand.display().to_string();
    let named = shown(&without_query(&typed));
    if operand.is_empty() {
        return Err(usage("the destination is empty: give a folder or a file, such as '.'"));
    }
    if typed.starts_with(SCHEME) || is_url(&typed) {
        let discard = ", or use --discard to download and verify without writing";
        let (what, discard) =
            if or_discards { ("a folder or a file", discard) } else { ("a folder", "") };
        return Err(usage(&format!(
            "the destination is missing: add {what} after '{named}'{discard}"
        )));
    }
    if let Some(meant) = meant_url(&typed) {
        return Err(usage(&format!(
            "'{}' is not a local destination: did you mean {}, and a folder or a file after it?",
            shown(&location_without_query(&typed)),
            shown(&meant)
        )));
    }
    if operand.as_encoded_bytes().windows(3).any(|three| three == b"://") {
        return Err(usage(&format!(
            "'{named}' is not a local destination: the last argument is a folder or a file"
        )));
    }
    if operand == "-" {
        return Err(usage(
            "'-' is not a destination: 'inrush cat SOURCE' writes to standard output; \
             write './-' for a file of that name",
        ));
    }
    Ok(PathBuf::from(operand))
}
