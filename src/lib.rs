//! inrush fills a training instance from S3 at line rate.

pub mod catalog;
pub mod error;
pub mod plan;
pub mod s3;
