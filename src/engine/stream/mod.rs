//! Pipe mode: one stream of bytes per epoch, objects in order, for the reader of each named pipe.
//!
//! [`feed`] is the content of a stream, filled by the control plane; [`feeder`] is the loop that
//! requests many ranges at once from the workers and passes them on in order, with our own bytes
//! ([`inline`]) between objects; [`place`] is the real host: named pipes ([`fifos`], served by one
//! process at a time, see [`lock`]) and standard output. Without TLS no object is copied to user
//! memory: splice(2) moves bytes from socket to pipe. Only gzip objects are inflated on their way
//! ([`inflate`]), by threads of their own.

pub mod feed;
pub mod feeder;
pub mod fifos;
pub mod inflate;
pub mod inline;
pub mod lock;
mod opener;
pub mod place;
