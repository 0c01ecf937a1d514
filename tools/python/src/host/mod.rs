//! One engine for all processes of a user on a host.
//!
//! The first client starts the engine as a process of its own, and all clients connect to it by a
//! Unix socket. Each connection has memory that both processes map. A client says where in this
//! memory a range is to be; the engine receives the range there, straight from the network, and
//! answers; the client copies it to where its caller wants it, and uses the place again.
//!
//! * [`message`]: what is sent over the socket, and in which packets.
//! * [`shared`]: the memory. It and [`peer`], whose process is at the other end, have all the
//!   `unsafe` of these files.
//! * [`room`]: which parts of it are free.
//! * [`attach`]: how a client comes to a connection; [`link`]: its end of one.
//! * [`server`]: the engine's end of all connections; [`guest`]: of one of them.
//!
//! Who starts the engine, and under which name, is in `../../inrush/_host.py`.

pub(crate) mod attach;
mod guest;
pub(crate) mod link;
mod message;
#[expect(unsafe_code, reason = "the call of the kernel has no safe form that takes every answer")]
mod peer;
mod room;
pub(crate) mod server;
#[expect(unsafe_code, reason = "the only file that touches memory that processes share")]
mod shared;
