//! Credentials: the chain of sources that give keys, and the sessions and keys that sign with them.

mod chain_answers;
pub(super) mod chain_http;
mod container;
pub mod credentials;
pub mod customer_key;
mod environment;
pub(super) mod express;
mod fields;
pub mod grants;
pub(super) mod instance;
pub(super) mod key_refusals;
mod login;
mod own_keys;
pub(super) mod process;
mod reasons;
pub(super) mod roles;
mod services;
pub(super) mod tokens;
