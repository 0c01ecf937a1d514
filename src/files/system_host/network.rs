//! The host's clock, random numbers, sockets, and signed requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use super::SystemHost;
use crate::error::{Error, ErrorKind};
use crate::files::host::{Host, Objection, OptionalHeaders};
use crate::files::transfer::Transfer;
use crate::s3::ByteRange;
use crate::s3::answer::ServerError;
use crate::s3::habit::Habit;
use crate::s3::sign::{Get, PublishedKeys};
use crate::sys::usage::ProcessorTime;
use crate::sys::{Errno, Handle, descriptor};

impl SystemHost {
    /// Binds connections to these network interfaces in turn; to none if the list is empty.
    #[must_use]
    pub fn with_interfaces(self, interfaces: Vec<Arc<str>>) -> Self {
        Self { interfaces, ..self }
    }

    /// The keys that sign for this object.
    fn publisher<'a>(&'a self, transfer: &'a Transfer) -> &'a Arc<PublishedKeys> {
        transfer.endpoint.session.as_ref().unwrap_or(&self.published)
    }
}

impl Host for SystemHost {
    fn now_us(&mut self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn processor_time(&self) -> ProcessorTime {
        ProcessorTime::of_thread()
    }

    fn random(&mut self) -> u64 {
        self.chance.next_word()
    }

    fn next_interface(&self) -> Option<Arc<str>> {
        self.interfaces.first().cloned()
    }

    fn socket(&mut self, address: &SocketAddr) -> Result<Handle, Errno> {
        let socket = descriptor::tcp_socket(address)?;
        if let Some(name) = self.interfaces.first() {
            descriptor::bind_worker_socket(&socket, name)?;
            self.interfaces.rotate_left(1);
        }
        Ok(socket)
    }

    fn set_low_water(&mut self, socket: &Handle, bytes: u32) {
        descriptor::set_low_water(socket, bytes);
    }

    fn write_request(
        &mut self,
        out: &mut [u8],
        transfer: &Transfer,
        range: Option<ByteRange>,
        headers: OptionalHeaders,
    ) -> Result<u32, Error> {
        // Not by the method `publisher`: `self.keys` is borrowed at the same time.
        let publisher = transfer.endpoint.session.as_ref().unwrap_or(&self.published);
        let now = publisher.server_time(wall_clock());
        let keys = self.keys.get(publisher);
        let get = Get {
            endpoint: &transfer.endpoint,
            key: &transfer.object.key,
            version_id: &transfer.object.version_id,
            range,
            if_match: if headers.if_match { &transfer.object.etag } else { "" },
            with_checksum: range.is_none()
                && transfer.verification.asks()
                && !transfer.endpoint.habits.has(Habit::RefusesChecksumMode),
            accepts_gzip: headers.accept_gzip,
        };
        let length = self.writer.write_get(out, &get, keys, now);
        let length = length.map_err(|problem| {
            Error::new(ErrorKind::Usage, problem.to_string()).advise("exclude the key")
        })?;
        Ok(u32::try_from(length).expect("a request fits a control slot"))
    }

    fn keys_version(&self, transfer: &Transfer) -> u64 {
        self.publisher(transfer).version()
    }

    fn note_accepted(&mut self, transfer: &Transfer, keys_version: u64) {
        self.publisher(transfer).note_accepted(keys_version);
    }

    fn wants_newer_keys(&self, of: &Transfer, refusal: &ServerError, keys_version: u64) -> bool {
        refusal.wants_newer_keys(self.publisher(of), keys_version)
    }

    fn keys_outlook(&self, transfer: &Transfer) -> String {
        self.publisher(transfer).outlook()
    }

    fn on_objection(&mut self, transfer: &Transfer, objection: Objection) -> bool {
        let publisher = self.publisher(transfer);
        match objection {
            Objection::Expired { keys_version } => publisher.refuse(keys_version),
            Objection::Clock(Some(server)) => publisher.set_clock(server, wall_clock()),
            Objection::Clock(None) => false,
            Objection::ChecksumMode => {
                transfer.endpoint.note_habit(Habit::RefusesChecksumMode);
                true
            }
        }
    }
}

/// The time for signatures.
#[expect(clippy::disallowed_methods, reason = "the machine's clock; a signature's date")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}
