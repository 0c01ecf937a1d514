//! inrush fills a training instance from S3 at line rate.

pub mod catalog;
pub mod cli;
pub mod command;
pub mod config;
pub mod conn;
pub mod engine;
pub mod error;
pub mod failure;
pub mod host;
pub mod http;
pub mod limits;
pub mod machine;
pub mod metrics;
pub mod out;
pub mod pipe;
pub mod plan;
pub mod progress;
pub mod report;
pub mod s3;
pub mod schedule;
pub mod sink;
pub mod size;
#[expect(unsafe_code, reason = "the only room that talks to the kernel and owns slot memory")]
pub mod sys;
pub mod transfer;
pub mod worker;
