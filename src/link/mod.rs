//! One connection to a server: requests, answers, failures, and when they are retried.

pub mod attempt;
pub mod chunks;
pub mod conn;
pub mod failure;
pub mod http;
pub mod object;
pub mod tls;
pub mod waiting;
