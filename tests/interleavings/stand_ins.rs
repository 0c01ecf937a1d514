//! What the sources need of other rooms, as little as they need: no system calls, no parsers.

pub mod sys {
    //! Descriptors that a model can wait for.

    use crate::sync::{Arc, Condvar, Mutex, PoisonError};

    /// An event counter.
    #[derive(Debug, Default)]
    pub struct OwnedFd {
        is_raised: Mutex<bool>,
        changed: Condvar,
    }

    impl OwnedFd {
        pub fn set(&self, is_raised: bool) {
            *self.is_raised.lock().unwrap_or_else(PoisonError::into_inner) = is_raised;
            self.changed.notify_all();
        }

        /// Waits until it is raised, and lowers it.
        pub fn wait(&self) {
            let raised = self.is_raised.lock().unwrap_or_else(PoisonError::into_inner);
            let raised = self.changed.wait_while(raised, |is_raised| !*is_raised);
            *raised.unwrap_or_else(PoisonError::into_inner) = false;
        }
    }

    #[derive(Debug, Clone)]
    pub enum Handle {
        Descriptor(Arc<OwnedFd>),
        Simulated(u64),
    }

    pub mod descriptor {
        use super::Handle;

        pub fn event_counter() -> Result<Handle, super::Errno> {
            Ok(Handle::Descriptor(super::Arc::default()))
        }

        pub fn raise(counter: &Handle) {
            if let Handle::Descriptor(counter) = counter {
                counter.set(true);
            }
        }

        /// Waits until it is raised, and lowers it: poll(2) and [`lower`] of the program.
        pub fn wait(counter: &Handle) {
            let Handle::Descriptor(counter) = counter else { unreachable!("a counter") };
            counter.wait();
        }
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Errno(pub i32);

    impl Errno {
        pub const IO: Self = Self(5);

        pub fn new(number: i32) -> Self {
            Self(number)
        }
    }

    impl From<std::io::Error> for Errno {
        fn from(error: std::io::Error) -> Self {
            Self(error.raw_os_error().unwrap_or(5))
        }
    }

    /// A write to a file, of [`super::super::sys::readiness`].
    #[derive(Debug)]
    pub enum Op {
        Write { file: (), slot: Vec<u8>, at: u32, length: u32, offset: u64 },
        Other,
    }

    pub fn owned(file: &()) -> &() {
        file
    }

    pub fn short(count: usize) -> u32 {
        u32::try_from(count).expect("few")
    }

    pub mod uring {
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct SetupError;
    }

    pub mod choice {
        //! Rings of which io_uring is refused to who wants room for no operation.

        use super::uring::SetupError;

        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum RingKind {
            IoUring,
            Epoll,
        }

        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum RingChoice {
            Auto,
            IoUring,
            Epoll,
        }

        pub struct AnyRing {
            pub kind: RingKind,
        }

        impl AnyRing {
            pub fn new(kind: RingKind, entries: u32, _writers: usize) -> Result<Self, SetupError> {
                match kind {
                    RingKind::IoUring if entries == 0 => Err(SetupError),
                    kind => Ok(Self { kind }),
                }
            }
        }

        pub struct ChosenRing {
            pub kind: RingKind,
        }

        impl ChosenRing {
            pub fn new(_: RingChoice, refused: Option<SetupError>) -> Result<Self, SetupError> {
                let kind = if refused.is_some() { RingKind::Epoll } else { RingKind::IoUring };
                Ok(Self { kind })
            }
        }
    }

    pub mod fuse_ring {
        use super::Errno;

        #[derive(Debug)]
        pub struct FuseRequest(pub u8);

        #[derive(Debug)]
        pub struct FuseAnswer(pub u8);

        impl FuseRequest {
            pub fn memory(&mut self) -> &mut [u8] {
                &mut []
            }

            pub fn answer(self, _result: Result<usize, Errno>) -> FuseAnswer {
                FuseAnswer(self.0)
            }
        }
    }

    pub mod tcp_memory {
        #[derive(Debug, Clone, Copy, Default)]
        pub struct TcpMemory;

        impl TcpMemory {
            pub fn is_under_pressure(&self, _before: &Self) -> bool {
                false
            }
        }
    }
}

pub mod rustix {
    //! Of the crate of this name: event counters, and writes that succeed.

    pub mod event {
        use crate::sys::{Errno, OwnedFd};

        pub struct EventfdFlags;

        impl EventfdFlags {
            pub const CLOEXEC: u32 = 1;
            pub const NONBLOCK: u32 = 2;
        }

        pub fn eventfd(_first: u64, _flags: u32) -> Result<OwnedFd, Errno> {
            Ok(OwnedFd::default())
        }
    }

    pub mod io {
        use crate::sys::{Errno, OwnedFd};

        pub fn write(counter: &OwnedFd, _bytes: &[u8]) -> Result<(), Errno> {
            counter.set(true);
            Ok(())
        }

        pub fn read(counter: &OwnedFd, _bytes: &mut [u8]) -> Result<(), Errno> {
            counter.set(false);
            Ok(())
        }

        pub fn retry_on_intr<T>(call: impl Fn() -> T) -> T {
            call()
        }

        pub fn pwrite(_file: &(), bytes: &[u8], _offset: u64) -> Result<usize, Errno> {
            Ok(bytes.len())
        }
    }
}

pub mod fuser {
    //! Of the crate of this name.

    pub struct Errno(pub i32);

    impl Errno {
        pub fn code(&self) -> i32 {
            self.0
        }
    }
}

pub mod tokio {
    //! Of the crate of this name.

    pub mod sync {
        use crate::sync::{Condvar, Mutex, PoisonError};

        /// One permit, which its waiter blocks for.
        #[derive(Debug, Default)]
        pub struct Notify {
            has_permit: Mutex<bool>,
            changed: Condvar,
        }

        impl Notify {
            pub fn new() -> Self {
                Self::default()
            }

            pub fn notify_one(&self) {
                *self.has_permit.lock().unwrap_or_else(PoisonError::into_inner) = true;
                self.changed.notify_one();
            }

            pub async fn notified(&self) {
                let permit = self.has_permit.lock().unwrap_or_else(PoisonError::into_inner);
                let permit = self.changed.wait_while(permit, |has_permit| !*has_permit);
                *permit.unwrap_or_else(PoisonError::into_inner) = false;
            }
        }
    }
}

pub mod s3 {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ByteRange {
        pub offset: u64,
        pub length: u64,
    }

    #[derive(Debug, Default)]
    pub struct Endpoint {
        pub host: String,
        pub tls: bool,
    }

    #[derive(Debug, Default)]
    pub struct Object {
        pub key: String,
        pub size_bytes: u64,
    }

    impl Object {
        pub fn is_whole_only(&self) -> bool {
            false
        }
    }

    pub mod web {
        //! A URL is its server.

        use std::fmt;

        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct WebUrl(pub u8);

        impl WebUrl {
            pub fn follow(&self, _location: &str) -> Result<Self, String> {
                Ok(self.clone())
            }

            pub fn server(&self) -> Self {
                self.clone()
            }

            pub fn is_of_server_of(&self, other: &Self) -> bool {
                self == other
            }

            pub fn origin(&self) -> String {
                self.to_string()
            }
        }

        impl fmt::Display for WebUrl {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "http://{}", self.0)
            }
        }
    }
}

pub fn no_ring(_error: &sys::uring::SetupError) -> crate::error::Error {
    crate::error::Error::new(crate::error::ErrorKind::Host, "no ring")
}

pub mod download {
    pub type DownloadError = crate::error::Error;
    pub type DownloadSummary = ();
}

pub mod object {
    use std::sync::Arc;

    use crate::s3::{Endpoint, Object};

    #[derive(Debug, Default)]
    pub struct ObjectRef {
        pub listed: Object,
        pub endpoint: Arc<Endpoint>,
    }

    impl ObjectRef {
        pub fn of_bytes(size_bytes: u64) -> Self {
            Self { listed: Object { size_bytes, ..Object::default() }, ..Self::default() }
        }

        pub fn begun_us(&self) -> Option<u64> {
            None
        }
    }
}

pub mod failure {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RetryReason {
        SlowDown,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Failure {
        ConnectTimeout,
    }
}

pub mod metrics {
    use std::net::SocketAddr;

    use crate::engine::endpoints::EndpointNumber;

    #[derive(Debug, Clone, Copy)]
    pub struct AddressCount {
        pub endpoint: EndpointNumber,
        pub address: SocketAddr,
        pub connects: u64,
        pub failures: u64,
        pub refused: u64,
    }

    impl AddressCount {
        pub fn new(endpoint: EndpointNumber, address: SocketAddr) -> Self {
            Self { endpoint, address, connects: 0, failures: 0, refused: 0 }
        }

        pub fn add(&mut self, _other: &Self) {}

        pub fn is_of_same(&self, other: &Self) -> bool {
            (self.endpoint, self.address) == (other.endpoint, other.address)
        }

        pub fn brought(&mut self, _bytes: u64, _times: (u64, u64), _now_us: u64) {}
    }

    #[derive(Debug, Clone, Default)]
    pub struct RequestCounts {
        pub requests: u64,
        pub connects: u64,
        pub moves: u64,
        pub hedges: u64,
        pub retries: [u64; 1],
        addresses: Vec<AddressCount>,
    }

    impl RequestCounts {
        pub fn address(&mut self, endpoint: EndpointNumber, at: SocketAddr) -> &mut AddressCount {
            self.addresses.push(AddressCount::new(endpoint, at));
            self.addresses.last_mut().expect("it was pushed")
        }
    }
}

pub mod gunzip {
    //! Each byte is one byte of what it holds.

    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Fault;

    #[derive(Debug, Default)]
    pub struct Gunzip;

    pub struct Inflated {
        pub taken: usize,
        pub written: usize,
        pub result: Result<(), Fault>,
    }

    impl Gunzip {
        pub fn inflate(&mut self, input: &[u8], output: &mut [u8]) -> Inflated {
            let count = input.len().min(output.len());
            output[..count].copy_from_slice(&input[..count]);
            Inflated { taken: count, written: count, result: Ok(()) }
        }

        pub fn is_pending(&self) -> bool {
            false
        }

        pub fn finish(&self) -> Result<(), Fault> {
            Ok(())
        }
    }
}

pub mod file_download {
    use std::sync::Arc;

    use crate::error::Error;
    use crate::link::object::ObjectRef;
    use crate::plan::ranges::{PartSize, Ranges};
    use crate::s3::ByteRange;
    use crate::sync::atomic::{AtomicU64, Ordering};

    #[derive(Debug, PartialEq, Eq)]
    pub enum Shape {
        Ranges,
    }

    #[derive(Debug)]
    pub struct FileDownload {
        pub object: ObjectRef,
        pub shape: Shape,
        part: PartSize,
        unsettled: AtomicU64,
    }

    #[derive(Debug)]
    pub struct Outcome {
        pub download: Arc<FileDownload>,
        pub result: Result<(), Error>,
    }

    impl FileDownload {
        /// An object of this many ranges.
        pub fn of_ranges(count: u64) -> Self {
            let part = PartSize::new(4096).expect("aligned");
            let object = ObjectRef::of_bytes(count * part.bytes());
            Self { object, shape: Shape::Ranges, part, unsettled: AtomicU64::new(count) }
        }

        pub fn ranges(&self) -> Ranges {
            Ranges::new(self.object.listed.size_bytes, self.part)
        }

        pub fn whole_range(&self) -> ByteRange {
            ByteRange { offset: 0, length: self.object.listed.size_bytes }
        }

        pub fn again(&self) -> Option<()> {
            None
        }

        // SETTLE
    }
}
