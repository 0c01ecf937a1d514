//! TLS without a socket: ciphertext in, plaintext out, and what a connection must send.
//!
//! [`session`] is the seat between a connection and the ring; [`explain`] says what went wrong.

pub mod explain;
pub mod session;
