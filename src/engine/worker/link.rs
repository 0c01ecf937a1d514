//! A connection's open socket, its address, and its security.

use std::net::SocketAddr;
use std::sync::Arc;

use super::Worker;
use super::secure::{Secure, Security};
use crate::engine::endpoints::EndpointNumber;
use crate::engine::peers::{EndpointAddress, OpenConnection};
use crate::files::host::FileHost;
use crate::limits::CONNECT_TIMEOUT_US;
use crate::link::conn::Event;
use crate::link::tls::session::{Fault, Session};
use crate::s3::Endpoint;
use crate::sys::{Errno, Handle, Op, Ring};

/// An open socket.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: Handle,
    /// Its endpoint.
    pub(super) endpoint: Arc<Endpoint>,
    number: EndpointNumber,
    /// Counts as open at its address, for all workers.
    open: OpenConnection,
    /// When it was connected, and when its first answer came, by the worker's clock.
    pub(super) connected_us: Option<u64>,
    pub(super) answered_us: Option<u64>,
    pub(super) security: Security,
    /// Its low-water mark in bytes (SO_RCVLOWAT).
    low_water: u32,
    /// O_NONBLOCK is set, while a body is spliced out of it.
    pub(super) is_nonblocking: bool,
    /// Deadline of connecting, including the handshake, by the worker's clock.
    pub(super) connected_by_us: u64,
}

impl Link {
    /// Its address.
    pub(super) fn address(&self) -> SocketAddr {
        self.open.address()
    }

    /// Its address with its endpoint.
    pub(super) fn place(&self) -> EndpointAddress {
        EndpointAddress { endpoint: self.number, address: self.address() }
    }

    /// Its entry among the open connections.
    pub(super) fn open(&self) -> &OpenConnection {
        &self.open
    }

    /// Records the head of an answer.
    pub(super) fn note_answer(&mut self, clock_us: u64) {
        self.answered_us.get_or_insert(clock_us);
        self.open.note_answer(clock_us.saturating_sub(self.connected_us.unwrap_or(clock_us)));
    }

    /// True if a few bytes do not wake its receiver.
    pub(super) fn is_patient(&self) -> bool {
        self.low_water > 1
    }

    pub(super) fn leads_to(&self, endpoint: &Arc<Endpoint>) -> bool {
        Arc::ptr_eq(&self.endpoint, endpoint)
    }

    /// The TLS session of a connection's socket.
    pub(super) fn secure_mut(link: &mut Option<Self>) -> &mut Secure {
        let Some(Self { security: Security::On(secure), .. }) = link else {
            unreachable!("only asked for while there is a session")
        };
        secure
    }

    /// The TLS session, for decryption.
    pub(super) fn session_mut(link: &mut Option<Self>) -> &mut Session {
        Self::secure_mut(link).session_mut()
    }

    /// Why TLS failed on it.
    pub(super) fn fault(&self) -> Option<&Fault> {
        match &self.security {
            Security::Failed(fault) => Some(fault),
            _ => None,
        }
    }
}

impl<R: Ring, H: FileHost> Worker<R, H> {
    /// Opens a socket and connects it.
    pub(super) fn connect(&mut self, index: usize) {
        let job = self.connections[index].state.job_mut();
        let endpoint = Arc::clone(job.server());
        let number = job.endpoint;
        let other_than = job.other_than.take();
        let open = {
            let all = endpoint.addresses.read().unwrap_or_else(|poison| poison.into_inner());
            self.addresses.connect(number, &all, other_than, self.now_us)
        };
        let Some(open) = open else {
            return self.connections[index].conn.handle(Event::Failed(Errno::INVALID));
        };
        let address = open.address();
        self.connections[index].interface = self.host.next_interface();
        match self.host.socket(&address) {
            Ok(socket) => {
                let connect_us = self.retries.timeouts.connect_us.unwrap_or(CONNECT_TIMEOUT_US);
                self.connections[index].link = Some(Link {
                    socket: socket.clone(),
                    endpoint,
                    number,
                    open,
                    connected_us: None,
                    answered_us: None,
                    security: Security::Plain,
                    low_water: 1,
                    is_nonblocking: false,
                    connected_by_us: self.clock.now_us() + connect_us,
                });
                self.metrics.sent.connects += 1;
                let job = self.connections[index].state.job();
                if let Some(ticket) = job.into.ticket() {
                    ticket.inbox().note_connect(number, address);
                }
                self.submit(index, Op::Connect { socket, address });
            }
            Err(errno) => self.connections[index].conn.handle(Event::Failed(errno)),
        }
    }

    /// Closes a connection's socket, if any, and counts its out-of-order packets: one system call
    /// per socket, and none per request.
    pub(super) fn close(&mut self, index: usize) {
        if let Some(link) = self.connections[index].link.take() {
            let count = self.host.out_of_order_packets(&link.socket).unwrap_or(0);
            self.metrics.out_of_order_packets += u64::from(count);
        }
    }

    /// Closes an idle connection, which may be connected again.
    pub(super) fn hang_up(&mut self, index: usize) {
        self.connections[index].conn.reset();
        self.close(index);
    }

    /// Makes a receive wake only once this many bytes have arrived.
    pub(super) fn set_low_water(&mut self, index: usize, low_water: u32) {
        let link = self.connections[index].link_mut();
        if link.low_water != low_water {
            link.low_water = low_water;
            self.host.set_low_water(&link.socket, low_water);
        }
    }
}
