//! Credentials: the chain of sources that give keys, and the sessions and keys that sign with them.

mod chain_answers;
pub(super) mod chain_http;
pub mod credentials;
pub mod customer_key;
pub(super) mod express;
pub(super) mod instance;
mod process;
pub(super) mod roles;
mod tokens;
