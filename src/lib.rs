//! inrush fills a training instance from S3 at line rate.
//!
//! Programs use [`Client`], [`Engine`], [`Requests`] and [`Download`]. The command is described in
//! `README.md` and, in depth, in the [`guide`].
//!
//! This page is the map: what flows where, which room does what, what the words mean, and what must
//! stay true. The rooms are no part of what programs may rely on, and are documented with
//! `RUSTDOCFLAGS="--cfg inrush_map" cargo doc --document-private-items`.
//!
//! # Bird's eye
//!
//! Two planes. The **control plane** is ordinary async Rust on one thread: it finds credentials and
//! endpoints, lists objects, and reports progress. The **data plane** moves the bytes: one pinned
//! thread per core, each with an io_uring (epoll where there is none), a share of one region of
//! memory, and a share of the connections; no async, no allocation per range. Code that decides is
//! **pure**: it names no clock, file, socket or thread, and gets the time as an argument. Code that
//! acts is small and at the edge. So the same worker runs on a seeded simulated machine in tests.
//!
//! ```text
//!          control plane                                 data plane: one per core
//!
//! main -> cli -> command -+-> control ---> plan ---> download ---> schedule <--- request
//!                         |   LIST, HEAD,  paths,    objects          | ranges      ^   |
//!                         |   keys         ranges                     v             |   v
//!                         +-> config ---> threads ---------------> worker <--> conn | stream
//!                         |                                         |   |   events, actions
//!                         |           host (clock, files) <---------+   |
//!                         |           sys (ring, slots) <-----------+   +---> files, pipes
//!                         |                                         v
//!                         +-- report <--- metrics, outcomes <-------+
//!                             out: data    progress: words
//! ```
//!
//! # Three journeys
//!
//! **One range of a download.** `Run` is in `download::run`, `Walk` in [`control::list`],
//! `Scheduler` in [`engine::schedule`], `Worker` in [`engine::worker`], `Conn` in [`link::conn`].
//! `Host` and `FileHost` are traits of [`files::host`]; [`files::system_host`] implements them.
//!
//! 1. `Run::drive` feeds the workers until each object has an outcome: `Walk::next_batch`
//!    lists the sources page by page, [`plan`] gives each key its path, and `SystemHost` finds what
//!    stands at the destination. `Scheduler::push` takes the objects that are to be fetched, as
//!    many as fit its bound.
//! 2. A worker makes turns, `Worker::turn`. `Worker::assign` takes ranges from `Scheduler::take`,
//!    which cuts them from the objects, while a connection is free and the pace allows a request:
//!    those of large objects first, a few objects at a time. `Worker::begin` gives a range to a
//!    connection. The first range of an object has the object's file created,
//!    `FileHost::begin`; the file has no name yet.
//! 3. `Worker::drive` asks the connection what is next, `Conn::poll`, and does it, `Worker::act`:
//!    connect, write the signed request into the connection's own slot (`Host::write_request`),
//!    send it, receive the head there, then the body into a data slot. What the ring completes,
//!    `Worker::turn` gives to the connection as an event, `Conn::handle`.
//! 4. When the connection has received bytes of the body, `Worker::act` calls `Worker::deliver`: it
//!    adds them to the object's checksum, and `Worker::write` submits a full slot to the ring:
//!    O_DIRECT, at its offset in the file. When that has completed, `Worker::write_done` returns
//!    the slot to its pool.
//! 5. `Worker::end_range` notes a range that is written, in the object's [`files::file_download`]
//!    and its journal. After the last one of an object `Worker::finish` compares the object's
//!    checksum, and `SystemHost::publish` gives the file its time, its mark and its name. Then
//!    `Scheduler::finish` reports the outcome to `Run`, and that to its command.
//!
//! **One epoch of a pipe.** `Feeder` and `Window` are in [`engine::stream::feeder`].
//!
//! 1. [`command::stream`] lists the channel once an epoch, and `StreamFeed::push` takes the objects
//!    in order.
//! 2. `Feeder::assign` takes the next range from `StreamFeed::next`, takes its bytes from the
//!    budget, `ChannelBudget::take`, and requests it with `Window::ask`: into a pipe of its own.
//! 3. A worker fetches it as above, but its connection moves the body, `Worker::move_on`:
//!    `Worker::splice` from the socket to that pipe.
//! 4. `Feeder::deliver` splices what has come of the front range to the reader's FIFO. Where it has
//!    all that came, `Handover::offer` lends the FIFO to the worker, which takes it,
//!    `Handover::take`, and moves the rest there itself.
//! 5. When the reader has taken every byte, `Feeder::is_marked` writes the marker of the epoch, and
//!    `Feeder::finish_epoch` closes the FIFO: its end of file.
//!
//! **One read of a mount.** `Reads` is in [`mount::serving`], `Demand` in [`mount::demand`],
//! `Inbox` in [`engine::request`].
//!
//! 1. A thread takes the kernel's request, and `Reads::read` notes whom to answer. `Demand::read`
//!    says which pieces of the file it needs, and which come next.
//! 2. `Reads::act` does what `Demand::poll` says: it requests a piece into a lease,
//!    `Scheduler::submit`.
//! 3. A worker fetches it as above. `Worker::deliver_to_client` gives the slot itself to the lease,
//!    and the request completes into the inbox, `Inbox::collect`.
//! 4. `Demand::landed` finds out which reads have all their pieces now, and `ReadReply::pieces`
//!    writes these to the kernel. A lease that is dropped gives its slot back.
//!
//! # The rooms, in the order of flow
//!
//! * [`library`]: the public face: a client, an engine and downloads for programs.
//! * [`cli`]: exactly what was typed; help, completions and the manual page from one table. Pure.
//! * [`guide`]: the pages that `inrush guide` prints. Pure.
//! * [`command`]: the story of each command, from arguments to exit code, and the small files that
//!   it writes beside its data: reports, metrics, what says that it is ready. It acts where rooms
//!   of the same name only judge: `train`, `doctor`, and `bench`, which also reads the kernel's
//!   counters. `verify` and `demo` are here as a whole. `command::mount` starts the server of
//!   [`mount`] and its refreshes. `command::train` starts the channels of a job, in all modes, and
//!   the job's command. [`command::stream`] runs the channels of Pipe mode, each on a thread: it
//!   lists an epoch, or reads the listing that is kept of an earlier one, and supplies the streams
//!   with objects. [`command::interrupts`] ends runs, [`command::log`] notes decisions.
//! * [`control`]: the control plane: requests by HTTP that move no object's bytes. It asks; which
//!   objects a run has, and where, is [`plan`]'s.
//!   * [`control::settings`]: the environment and the profile files, as they are written.
//!     [`control::auth`]: the keys that these lead to, roles, helper processes, sessions and access
//!     grants; it refreshes what expires. The AWS libraries that look them up speak HTTP through
//!     its `chain_http`, which also reads the XML of their errors.
//!   * [`control::web`]: requests the objects of URLs, and follows their redirects ([`s3::web`]
//!     has such an object, which workers share).
//!   * [`control::list`]: LIST and HEAD. `control::checksum`: requests the checksum of an object,
//!     and of its parts. [`control::dns`]: names of hosts, whose addresses it keeps fresh.
//!     [`control::endpoint`]: the URL, region and addressing style of a bucket.
//!   * `control::blocking`: calls that block, on helper threads. `control::loopback`: a small
//!     server for the tests of this room.
//!   * `control::client`: HTTP of all of these, with retries; [`control::limits`]: their limits.
//! * [`download`]: File mode: from the objects of a listing to files, below which folder or as
//!   which file, what `sync --delete` removes, and which files are the run's own. It prints nothing
//!   and knows no signal: it reports events, and is cancelled.
//!   * `download::run`: one of them, from its first listing to its summary and its error.
//! * [`s3`]: the words of S3: addresses, listings, answers, signatures; and [`s3::web`]: an object
//!   of a URL, and the servers that its redirects lead to. Pure.
//! * [`checksum`]: what S3 stores of an object's bytes, and whether fetched bytes agree. Pure.
//! * [`plan`]: which objects, under which paths, in which ranges and order: filters, manifests
//!   (augmented ones, too), shards, the order of an epoch, and how several requests share a
//!   listing. It parses and decides; [`control::list`] requests. Pure.
//! * [`mount`]: a mounted view of objects: the names that programs see, and the bytes that are
//!   fetched when they read.
//!   * [`mount::tree`]: the names of a complete listing; [`mount::lazy`]: of folders that are
//!     listed when they are used; [`mount::versions`]: which of them lead to objects that were
//!     replaced; [`mount::changes`]: what later listings add to the first, and what is gone. Pure.
//!   * [`mount::demand`]: which pieces of a file are fetched for reads, and ahead of them. Pure.
//!   * [`mount::wire`]: the kernel's requests and their answers, as bytes; [`mount::table`]: its
//!     list of mounts. Pure.
//!   * [`mount::serving`]: the server of mounts: it answers the kernel from names, workers and
//!     cache. It prints nothing and knows no signal: it reports events.
//! * [`train`]: the input of a SageMaker job: its channels, configuration files, variables. Pure.
//! * [`doctor`]: facts of a machine (processors, memory, network interfaces, limits), a destination
//!   and a service, as data, and a judgement on each. Pure: [`sys`] reads them from the kernel.
//! * [`engine`]: the data plane: requests, the workers that download them, their concurrency, and
//!   the streams into pipes.
//!   * [`engine::threads`]: starts and pins the workers, which agree on one kind of ring; gathers
//!     what they counted.
//!   * [`engine::request`]: a range that somebody asks for by itself: where its bytes go (memory, a
//!     leased slot, a pipe, nowhere), and how it ends. Pure.
//!   * [`engine::lease`]: slots that clients keep for a while: how many, and who is woken when one
//!     comes back. Pure.
//!   * [`engine::schedule`]: which range next, and for whom.
//!   * [`engine::config`]: what a run may use of this machine, resolved once.
//!   * [`engine::endpoints`]: the endpoints of an engine, and their numbers. Pure.
//!   * [`engine::worker`]: the loop: one turn is one system call. It moves a range that is
//!     redirected to its next server, and counts what it waits for. Generic over ring and host.
//!   * [`engine::pace`]: how many requests are in flight, and how many are sent a second. Workers
//!     and observers share it by atomics. Pure.
//!   * [`engine::peers`]: how connections and addresses fare beside each other: who is late, and
//!     where to connect next, by what all workers know. Pure.
//!   * [`engine::stream`]: Pipe mode: one stream per epoch, into named pipes or standard output.
//!     Its [`engine::stream::feeder`] asks the workers for ranges, each into a pipe of its own or,
//!     over TLS or to be compared with a checksum, into memory, and hands them on in order (those
//!     of memory through a pipe of the feeder's); a range whose turn it is gets the reader's pipe
//!     itself. Objects of gzip go to threads that inflate them, several at the same time. Its
//!     [`engine::stream::lock`] locks the file that says which process has a base folder.
//!   * [`engine::budget`]: the bytes that streams may have requested and not handed on, for all
//!     channels of a process. Pure.
//!   * [`engine::backlog`]: what of a stream stands in memory, ahead of its turn. Pure.
//!   * [`engine::gunzip`]: what a gzip file holds, while its bytes come in pieces. Pure.
//!   * [`engine::handover`]: the pipes of a stream's range: its own, and in its turn the reader's.
//!     Pure.
//!   * [`engine::placement`]: on which cores and over which network interfaces workers are. Pure.
//!   * [`engine::metrics`]: plain counters, a set per worker.
//!   * [`engine::snapshot`]: copies of these counters while a run goes on, for who asks. Pure.
//!   * [`engine::waited`]: how long at least one client has waited for a request.
//! * [`link`]: one connection to a server: what is sent, what comes, why it fails, and when it is
//!   tried again.
//!   * [`link::conn`]: one connection as a state machine. Pure.
//!   * [`link::http`]: heads of answers. Pure.
//!   * [`link::object`]: one version of an object on its server, shared by those who request ranges
//!     of it. Pure.
//!   * [`link::tls`]: TLS between a connection and the ring, over the connection's own buffer.
//!     Pure.
//!   * [`link::attempt`]: how often and how long a failure is retried, alike in all modes and for
//!     requests of the control plane. Pure.
//!   * [`link::failure`]: why an attempt failed, and what follows from it. Pure.
//!   * [`link::waiting`]: which server a run waits for, and why, once that takes long enough to
//!     report. Pure.
//! * [`files`]: a destination: objects on their way to files, how complete files appear, and what
//!   an earlier run left.
//!   * [`files::file_download`]: one object on its way to its file, shared by those who fetch its
//!     ranges. Pure.
//!   * [`files::host`]: what a worker needs of its machine, which tests simulate: the time, signed
//!     requests, files.
//!   * [`files::system_host`]: the real [`files::host`], with clock and files, and helper threads
//!     for calls that are slow.
//!   * [`files::mark`]: what a complete file carries so that a later run knows it.
//!   * [`files::cache`]: a mount's folder of whole objects that are kept for later.
//!   * [`files::whole_file`]: small files as a whole: read up to a limit, and replaced at once.
//!   * [`files::journal`]: which ranges of an unfinished file are there, and of which others the
//!     beginning. Pure.
//!   * [`files::sink`]: what the bytes of a download become (files, or nothing), by which steps,
//!     and whether the calls of these steps are slow. Pure.
//! * [`sys`]: rings, slots, descriptors, signals, child processes, the shape of the machine: the
//!   only `unsafe`.
//!   * [`sys::slot`]: a piece of memory that one holder has, of the engine's own ([`sys::pool`]) or
//!     of what a caller has lent ([`sys::loan`]).
//!   * [`sys::uring`]: the ring of io_uring.
//!   * [`sys::readiness`]: the same over epoll, non-blocking calls, threads that write to files.
//!   * [`sys::choice`]: which of the two, and why.
//!   * [`sys::tcp_memory`]: what all TCP sockets of the machine hold, and whether the kernel has
//!     dropped received packets for it since the last look.
//!   * [`sys::fuse_ring`]: the kernel's requests to a mount over io_uring.
//! * [`report`]: what users and their programs read of a run: progress, summary, document, data.
//!   * [`report::bench`]: what `bench` measured, as a document, a table and a page. Pure.
//!   * [`report::document`]: counters into words and JSON.
//!   * [`report::exposition`]: the numbers of a run as Prometheus reads them. Pure.
//!   * [`report::limit`]: which part of the machine was the limit of a run, and how far off. Pure.
//!   * [`report::asked`]: its facts for mounts and the library, where programs choose what is read.
//!   * [`report::log`]: decisions in lines on standard error, with `--verbose`.
//!   * [`report::progress`]: the bar and the lines on standard error.
//!   * [`report::stderr`]: the queue of standard error, which a thread writes.
//!   * [`report::stages`]: how far each stage of a run is, below the bar. Pure.
//!   * [`report::out`]: data on standard output.
//! * [`text`]: text as people write and read it: names, patterns, sizes, times.
//!   * [`text::shown`]: names of the world, fit for a terminal.
//!   * [`text::glob`]: patterns of names, matched by characters. Pure.
//!   * [`text::size`]: bytes as people write them.
//! * [`limits`]: every bound of the program but the control plane's, and the relations between
//!   them, checked at compile time.
//! * [`error`]: the world's failures, with advice and exit codes; what caused one, without secrets.
//!
//! Beside `src/`: `tools/origin` is the S3 server of the demo and of tests, and shares no code with
//! this crate; `tests/sim` compares the workers with a model; `tests/s3s.rs` runs the program
//! against a server of another project; `tools/check.py` lists what else is checked from outside:
//! servers and command lines of others, what people install under other processors, kernels and
//! restrictions; `tools/bench.py` lists what is measured; both share `tools/lab`; `tools/fuzz`
//! says what must hold of the parsers whatever comes in; `tools/hosts` says what would limit larger
//! machines; `tools/package` makes what people install; `tools/python` is the Python package, over
//! [`library`], [`command`] and the options of [`cli`]; its `src/host` is the engine that the
//! processes of a host share.
//!
//! # The words
//!
//! * **object**: a bucket, a key, an ETag, a size.
//! * **range**: contiguous bytes of one object; one GET.
//! * **slot**: one piece of memory that one holder has: an aligned piece of the engine's own, which
//!   is registered, or part of a loan. Bodies are received into **data slots**; each connection has
//!   a small one of its own, for requests and heads.
//! * **loan**: memory of a caller that bytes are received into, until it is given back.
//! * **endpoint**: a host and port as they are addressed, over TLS or not.
//! * **lease**: a data slot with the bytes of a request, which its client has until it drops it.
//! * **sink**: what the bytes of a download become: files, or nothing.
//! * **file job**: what is done at the file system for one object or range besides writes through
//!   the ring: create, write whole, note, publish. A worker begins it, and sees its end in a later
//!   turn.
//! * **worker**: one thread, one ring, one loop. **turn**: one pass of that loop.
//! * **job** of a connection: the range that it has. **hedge**: a second request of a range that is
//!   late, on another connection; the two are **rivals** until one of them receives bytes.
//! * **pace**: how many requests are in flight, and how many are sent a second.
//! * **mark**: what a complete file carries; **marker**: the file that says that an epoch was read.
//! * **origin**: an S3-compatible server.
//! * **channel**: a named input of a job. **epoch**: one pass over it, one named pipe.
//! * **request**: one range that a client asked for by itself; a GET or, after failures, several.
//! * **recipient**: whom a range is fetched for: its object's file, or the client of a request.
//! * **backlog**: bytes of a stream in memory, before they are handed on in order.
//! * **ceiling**: what one stage could do alone.
//!
//! # What must stay true, and what holds it
//!
//! * `unsafe` is in [`sys`] alone, each block with its reason: `unsafe_code = "deny"` and
//!   clippy in `Cargo.toml`, `tests/tidy`.
//! * The parts of a command share what is handed on to them ([`command::context`]); what belongs to
//!   the whole process is in [`sys::process_state`], with its reasons: `tests/tidy`.
//! * Rooms that say that they are pure are: `clippy.toml` and `tests/tidy`.
//! * Rooms use only rooms below them, as a table says that names each exception, and so do the
//!   folders: `tests/tidy`.
//! * The pace settles within two seconds near the best number of requests, gives way and wins back;
//!   a server that asks for less gets less, and no object fails for it: tests of [`engine::pace`].
//! * While the reader of a stream is the limit, requests in flight shrink to what it needs and do
//!   not grow: tests of [`engine::pace`], `tests/sim`, `tests/pipe/slow_reader.rs`.
//! * The bytes of all streams of a process that are on their way, buffers of sockets included, stay
//!   within one bound: tests of [`engine::budget`], `tests/sim` at every step of every run. A range
//!   that is late and requested twice is counted once.
//! * What one endpoint refuses slows no other endpoint, and holds no connection that another could
//!   use: `tests/sim`, `tests/get`.
//! * The kernel owns a slot while an operation on it is in flight: [`sys::Op`] owns its
//!   [`sys::Slot`], which cannot be copied, and the ring keeps the operation until its completion.
//! * Memory that a caller has lent is given back when no part of it is out, so not before the
//!   kernel has given back what it receives there; and two connections never receive into the same
//!   bytes of it: [`sys::Loan`] gives no byte twice, each part of it keeps the memory, and a
//!   request does not complete while a connection that lost it has one in flight: tests of
//!   [`sys::loan`], `tests/sim`, `tests/ring`.
//! * Operations end alike over io_uring and over epoll: `tests/ring`, for every seed.
//! * Every operation in flight is in the ring's slab; a run ends with none, and each slot back
//!   in its pool: `tests/sim`, for every seed. A ring that goes earlier waits for them.
//! * A listing gives every key once and in order, however many requests it is made by, whatever the
//!   keys are: tests of [`plan::split`] and [`control::list::walk`], `tests/list`. A server whose
//!   order is another is listed by one request at a time, or refused; a key that it lists twice is
//!   one object: tests of [`plan::repeats`].
//! * Every byte of every object is delivered exactly once, at its place: the model of `tests/sim`,
//!   over thousands of seeded faults; with real sockets and disks, `inrush demo`.
//! * No connection is late because its worker paused, or because the reader of a pipe does; no
//!   lost wake-up makes one wait for ever: `tests/sim`, `tests/interleavings`.
//! * Who has nothing to do is not woken: no thread of an idle command or engine makes a system call
//!   more than once a second: `tests/idle`.
//! * Every request completes once, one that is cancelled too: tests of [`engine::schedule`],
//!   `tests/sim`.
//! * A client that keeps its leases holds up nothing but requests for more; one that drops a lease
//!   wakes who waits for it: tests of [`engine::lease`], `tests/sim`, `tests/library.rs`.
//! * Connections go where all workers together have the fewest, and none goes where one of them has
//!   just failed, while there is a choice: tests of [`engine::peers`], `tests/sim`.
//! * Connections go over the network interfaces that were named and over no other, each of which
//!   has its share of the workers, on its NUMA node while there are cores: tests of
//!   [`engine::placement`], `tests/interfaces`.
//! * One process serves a channel, and touches no pipe that it did not make: tests of
//!   [`engine::stream::lock`], `tests/pipe/lock.rs`.
//! * An epoch's bytes are its objects in order, as they were listed for it, none twice, none lost,
//!   whatever reader and network do: `tests/sim` and `tests/pipe`.
//! * The marker of an epoch appears before its end of file, and only when its reader has taken
//!   every byte; with `--on-failure hold` a failed stream has no end: `tests/sim`, `tests/pipe`.
//! * An epoch that cannot be had whole fails when its reader comes, the first at once; the epochs
//!   before are whole: tests of [`command`], `tests/train`.
//! * One run prepares a base folder, and no channel takes another's connections: `tests/train`; nor
//!   its part of a bandwidth that the user bounds: tests of [`engine::pace`].
//! * The command of `train` sees no end of an epoch that failed, and nothing of it is left when it
//!   has ended: `tests/train`.
//! * A read of a mount ends once, with bytes of the version that was opened or with an error; no
//!   more leases are taken than there are, and what is read in order is fetched once: tests of
//!   [`mount::demand`], `tests/mount.rs`.
//! * An inode of a mount is of one version for ever, and a name leads to the newest that is known:
//!   tests of [`mount::versions`], `tests/mount_more`.
//! * A mount that was listed again shows what a new mount would show; what has not changed keeps
//!   its inode and its position in its folder: tests of [`mount::changes`], `tests/mount_more`.
//! * A folder of a lazy mount is listed once, for all who wait for it, each of whom is answered
//!   once; its numbers are no other's: tests of [`mount::lazy`], `tests/mount_more`.
//! * A stream that is verified has no whole object that differs from its checksum: tests of
//!   [`engine::stream::feeder`], `tests/sim`, `tests/pipe/verified.rs`.
//! * A gzip file that is damaged or cut short is no short epoch, and what is decompressed ahead of
//!   a reader is bounded, however small its objects are: tests of [`engine::gunzip`] and
//!   [`engine::stream::inflate`], `tests/pipe/gzip.rs`, `tests/pipe/slow.rs`.
//! * A shard is the same objects for every command that takes one: `tests/pipe/parts.rs`. Hosts of
//!   a job have each object of a channel once: tests of [`control::list::channel`].
//! * A name appears at the destination only when all its bytes are there: tests of
//!   [`files::system_host`], `tests/sim`.
//! * What an earlier run left counts only where it is surely of this object, in this version, and
//!   of this user: tests of [`files::mark`], [`files::journal`] and [`files::system_host`],
//!   `tests/resume`; whenever a run is killed: `tests/kill.rs`.
//! * A file has the time of its object before it has its name, and then a mark, too. What has a
//!   mark is known by it alone; what surely never had one by its size and time: tests of
//!   [`files::system_host`], `tests/resume/times.rs`.
//! * `verify --adopt` marks no file that has changed since it was read: tests of
//!   [`files::system_host`].
//! * Of several destinations one has an object: the one that had it before, else the one that
//!   would have written it first, one run at a time; one that cannot be written to gets no more:
//!   tests of [`download`], `tests/spread`.
//! * Signals and the deadline end the process, whatever its run waits for: `tests/ending.rs`.
//! * Nothing is removed that the source has, or that is not below the destination, whatever names
//!   the file system takes for one: tests of [`files::system_host`], `tests/resume`.
//! * No object takes the place of a file that its run writes, and no file goes that names the keys
//!   of a user: `tests/resume`.
//! * No key leads out of the destination, whatever links are in it: tests of [`plan`] and
//!   [`files::system_host`].
//! * One object is of one version: `If-Match`, and the ETags of all answers agree: `tests/sim`.
//! * Everything is bounded: by name in [`limits`] and [`control::limits`]. Memory does not grow
//!   with the size or the number of objects: `tools/bench.py rss`. The exceptions are named and
//!   bounded, by bytes per object: listings that are put in order ([`plan::listing`]), those
//!   that `train` keeps for its downloads ([`plan::kept`]; at most a share of the memory of the
//!   control group), the paths that `sync --delete` remembers, those of a destination that takes
//!   several names for one ([`plan::folding`]), the index of marks, sources that are given one by
//!   one ([`control::limits::SOURCES_MAX`]), and augmented manifests, which are kept whole
//!   ([`limits::AUGMENTED_BYTES_MAX`]) with what is listed of their objects
//!   ([`control::limits::LISTED_BYTES_MAX`]).
//! * What a listing says of a manifest's objects changes nothing but the number of requests:
//!   order, bytes and errors are those of HEADs: tests of [`control::list::heads`],
//!   `tests/pipe/lines.rs`.
//! * The keys of an access grant sign requests for what it includes, and no others; with them the
//!   run's own keys sign no request to a bucket: tests of [`control::auth::grants`], `tests/tls`.
//! * Requests to a multi-region access point are signed for all regions and go to its host alone:
//!   tests of [`s3::sign`], `tests/proxy`.
//! * A server of a URL gets the URL that leads to it, and nothing else that is secret; no query is
//!   printed or written: tests of [`s3::web`] and [`control::web`], `tests/web`.
//! * A server to which a redirect of a signed request leads gets no credentials: tests of
//!   [`s3::redirect`], `tests/web`.
//! * No secret is printed: `Debug` of keys is written by hand, tested in [`s3::sign`]. Ours are
//!   wiped when they are dropped (`zeroize`).
//! * No worker logs: events are of the control plane's thread, and have no secret: `tests/get`.
//! * However a run ends, `--json` prints one document: `tests/errors`.
//! * No name of the world reaches a terminal but through [`text::shown`]: `tests/tidy`.
//! * A worker makes calls of the file system itself only while they are quick. Where they are slow,
//!   it waits for none, they overlap, and each object's come in order: tests of
//!   [`files::sink::calls`] and [`files::system_host`], `tests/sim`.
//! * No thread but its own waits for the reader of standard error: tests of [`report::stderr`],
//!   `tests/interrupt.rs`.
//! * The control plane's thread waits for no disk: helper threads do, and the runtime's ring where
//!   there is one; unit tests of [`control`] and [`report::out`], `tests/interrupt.rs`. All
//!   commands run without io_uring: `tests/errors/host.rs`, `tests/errors/ring.rs`.
//! * Fields of the JSON report are added, never renamed: tests of [`report::document`].

#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod checksum;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod cli;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod command;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod control;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod doctor;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod download;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod engine;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod error;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod files;
pub mod guide;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod library;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod limits;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod link;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod mount;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod plan;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod report;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod s3;
#[expect(unsafe_code, reason = "the only room that talks to the kernel and owns slot memory")]
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod sys;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod text;
#[cfg_attr(not(inrush_map), doc(hidden))]
pub mod train;

pub use cli::{
    Durability, KeepArgs, ManifestPlace, OnChange, Overwrite, SelectionArgs, VerifyMode,
};
pub use control::endpoint::AddressingStyle;
pub use engine::lease::Lease;
pub use engine::request::{Completion, Destination, Priority};
pub use error::{Error, ErrorKind, ErrorReason, Result};
pub use library::{
    Bucket, Client, ClientOptions, Download, DownloadError, DownloadEvent, DownloadEvents,
    DownloadHandle, DownloadObject, DownloadProgress, DownloadSummary, Engine, EngineOptions,
    Listed, Listing, RemoteObject, Request, Requests, Waker,
};
pub use plan::epoch::Shard;
pub use plan::filter::Rule as FilterRule;
pub use plan::manifest::Layout as ManifestLayout;
pub use report::limit::{Limit, Part as LimitPart};
pub use sys::Place;
pub use sys::choice::{RingChoice, RingKind};
