//! Pipe mode: one stream of bytes per epoch, objects in order, to whoever opens the named pipe.
//!
//! [`feed`] is the list of what comes next, filled by the control plane; [`feeder`] is the loop
//! that requests many ranges at once from the workers and hands them on in order, with bytes of our
//! own ([`inline`]) where the feed has them between objects; [`place`] is the real machine: named
//! pipes ([`fifos`], which one process at a time may serve, see [`lock`]) and standard output.
//! Without TLS no object is copied to user memory: bytes go from socket to pipe by splice(2). But
//! objects of gzip are inflated on their way ([`inflate`]), by threads of their own.

pub mod feed;
pub mod feeder;
pub mod fifos;
pub mod inflate;
pub mod inline;
pub mod lock;
mod opener;
pub mod place;
