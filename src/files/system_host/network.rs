//! The host's clock, random numbers, sockets, and signed requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use super::SystemHost;
use crate::error::{Error, ErrorKind};
use crate::files::host::{Host, Objection, OptionalHeaders};
use crate::link::object::ObjectRef;
use crate::s3::ByteRange;
use crate::s3::answer::ServerError;
use crate::s3::redirect::Elsewhere;
use crate::s3::sign::{Get, PublishedKeys};
use crate::sys::usage::ProcessorTime;
use crate::sys::{Errno, Handle, descriptor, tcp_memory};

impl SystemHost {
    /// Binds connections to these network interfaces in turn; to none if the list is empty.
    #[must_use]
    pub fn with_interfaces(self, interfaces: Vec<Arc<str>>) -> Self {
        Self { interfaces, ..self }
    }

    /// The keys that sign for this object.
    fn publisher<'a>(&'a self, object: &'a ObjectRef) -> &'a Arc<PublishedKeys> {
        object.endpoint.session.as_ref().unwrap_or(&self.published)
    }
}

impl Host for SystemHost {
    fn now_us(&mut self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn processor_time(&self) -> ProcessorTime {
        ProcessorTime::of_thread()
    }

    fn watch_machine(&mut self) {
        tcp_memory::keep_up();
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
        object: &ObjectRef,
        elsewhere: Option<&Elsewhere>,
        range: Option<ByteRange>,
        headers: OptionalHeaders,
    ) -> Result<u32, Error> {
        // Not by the method `publisher`: `self.keys` is borrowed at the same time.
        let publisher = object.endpoint.session.as_ref().unwrap_or(&self.published);
        let now = publisher.server_time(wall_clock());
        let keys = self.keys.get(publisher).filter(|_| elsewhere.is_none());
        let web = object.listed.web.as_ref().map(|web| web.current());
        let target = elsewhere.map(|elsewhere| elsewhere.url().target());
        let get = Get {
            endpoint: elsewhere.map_or(&object.endpoint, |elsewhere| &elsewhere.endpoint),
            key: &object.listed.key,
            target: target.or(web.as_ref().map(|target| target.as_str())),
            // A target has its query.
            version_id: if elsewhere.is_none() { &object.listed.version_id } else { "" },
            range,
            if_match: if headers.if_match { &object.listed.etag } else { "" },
            with_checksum: headers.with_checksum,
            accepts_gzip: headers.accept_gzip,
        };
        let length = self.writer.write_get(out, &get, keys, now);
        let length = length.map_err(|problem| {
            Error::new(ErrorKind::Usage, problem.to_string()).advise("exclude the key")
        })?;
        Ok(u32::try_from(length).expect("a request fits a control slot"))
    }

    fn keys_version(&self, object: &ObjectRef) -> u64 {
        self.publisher(object).version()
    }

    fn note_accepted(&mut self, object: &ObjectRef, keys_version: u64) {
        self.publisher(object).note_accepted(keys_version);
        object.listed.web.iter().for_each(|web| web.note_accepted());
    }

    fn wants_newer_keys(
        &self,
        object: &ObjectRef,
        refusal: &ServerError,
        keys_version: u64,
    ) -> bool {
        match object.listed.web {
            Some(_) => refusal.wants_newer_url(),
            None => refusal.wants_newer_keys(self.publisher(object), keys_version),
        }
    }

    fn keys_outlook(&self, object: &ObjectRef) -> String {
        match &object.listed.web {
            Some(web) => web.failure(),
            None => self.publisher(object).outlook(),
        }
    }

    fn on_objection(&mut self, object: &ObjectRef, objection: Objection) -> bool {
        let publisher = self.publisher(object);
        match objection {
            Objection::Expired { keys_version } => {
                // An answer to an earlier target says nothing of the current one.
                let web =
                    object.listed.web.as_ref().filter(|web| {
                        keys_version == publisher.version() || !web.failure().is_empty()
                    });
                let is_hopeful = web.is_none_or(|web| web.refuse());
                publisher.refuse(keys_version) && is_hopeful
            }
            Objection::Clock(Some(server)) => publisher.set_clock(server, wall_clock()),
            Objection::Clock(None) => false,
        }
    }
}

/// The time for signatures.
#[expect(clippy::disallowed_methods, reason = "the machine's clock; a signature's date")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}
