//! The line of an object of a stream (`pipe --report`, `cat --report`).

use serde::Serialize;

use super::{ObjectLine, STDOUT_NAME, json};

/// The result of one object of a stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamedLine<'a> {
    /// Its channel; absent for standard output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<&'a str>,
    /// Its epoch, from 0; absent for standard output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The fields of a downloaded object; its time ends with the last byte written to the pipe.
    #[serde(flatten)]
    pub object: ObjectLine<'a>,
}

impl<'a> StreamedLine<'a> {
    /// Makes the line of an object of an epoch's stream.
    #[must_use]
    pub fn new(channel: &'a str, epoch: u64, object: ObjectLine<'a>) -> Self {
        let is_named = channel != STDOUT_NAME;
        Self { channel: is_named.then_some(channel), epoch: is_named.then_some(epoch), object }
    }

    /// The line of the report.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }
}
