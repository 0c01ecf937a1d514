//! TLS without a socket: ciphertext in, plaintext out, and what a connection must send.
//!
//! [`session`] is the seat between a connection and the ring.

pub mod session;
