//! inrush fills a training instance from S3 at line rate.

pub mod conn;
pub mod error;
pub mod failure;
pub mod host;
pub mod http;
pub mod limits;
pub mod metrics;
pub mod plan;
pub mod s3;
pub mod schedule;
pub mod sink;
#[expect(unsafe_code, reason = "the only room that talks to the kernel and owns slot memory")]
pub mod sys;
pub mod transfer;
pub mod worker;
