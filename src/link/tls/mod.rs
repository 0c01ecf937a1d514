//! TLS without a socket: ciphertext in, plaintext out, and the bytes that the connection must send.
//!
//! [`session`] is the layer between a connection and the ring. rustls does the handshake; records
//! after it are in [`traffic`], over the single records of [`record`]. [`explain`] makes errors.

pub mod explain;
pub mod record;
pub mod session;
pub mod traffic;
