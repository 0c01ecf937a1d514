//! One connection to a server: what is sent, what comes, why it fails, and when it is tried
//! again.

pub mod attempt;
pub mod chunks;
pub mod conn;
pub mod failure;
pub mod http;
pub mod tls;
pub mod waiting;
