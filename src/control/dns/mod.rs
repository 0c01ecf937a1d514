//! From host names to addresses: name servers, a cache, and the interfaces that connections use.

mod cache;
pub(super) mod hosts;
pub mod interfaces;
pub(super) mod resolver;
