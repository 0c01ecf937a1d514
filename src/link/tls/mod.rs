//! TLS without a socket: ciphertext in, plaintext out, and what a connection must send.
//!
//! [`session`] is the seat between a connection and the ring. rustls makes the handshake; what
//! comes after it is in [`traffic`], over the single records of [`record`]. [`explain`] says what
//! went wrong.

pub mod explain;
pub mod record;
pub mod session;
pub mod traffic;
