//! A program's client: a thread with the control plane, which looks up and lists objects.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::SystemTime;

use rustls::ClientConfig;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{LocalSet, spawn_local};

use super::feed::Ended;
use super::listing::{self, Listing, Pages};
use super::options::ClientOptions;
use super::order::{NamedFiles, Order};
use crate::control::list::sources::Depth;
use crate::control::list::walk::Walk;
use crate::control::refresh::{keep_helper, refresh};
use crate::control::{Control, ControlOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::ENDING_GRACE;
use crate::link::object::ObjectRef;
use crate::plan::filter::Filter;
use crate::s3::grants::GrantTarget;
use crate::s3::sign::PublishedKeys;
use crate::s3::uri::{KEY_BYTES_MAX, KeyPattern, S3Uri, quote_etag, shown};
use crate::s3::{Endpoint, OBJECT_BYTES_MAX, Object};
use crate::sys::topology::Interface;

/// Maximum number of questions queued for the client's thread.
const QUESTIONS_MAX: usize = 64;
/// Maximum number of batches queued for the reader of a listing.
const BATCHES_MAX: usize = 4;

/// One version of an object on the server. Requests fail if the object has been replaced since.
#[derive(Debug, Clone)]
pub struct RemoteObject {
    pub(super) object: Arc<ObjectRef>,
    /// The signing keys and TLS configuration of the client that found it.
    pub(super) shared: Arc<Shared>,
}

impl RemoteObject {
    /// Its bucket.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.object.endpoint.bucket
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.object.listed.key
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.object.listed.size_bytes
    }

    /// Its ETag; empty if the server sent none.
    #[must_use]
    pub fn etag(&self) -> &str {
        &self.object.listed.etag
    }

    /// When it was last modified, as precisely as the server sends it: milliseconds from a listing,
    /// seconds from a HEAD. `None` if the server sent no valid time.
    #[must_use]
    pub fn modified(&self) -> Option<SystemTime> {
        humantime::parse_rfc3339(&self.object.listed.last_modified).ok()
    }
}

/// A bucket with its endpoint, for objects whose size and ETag the caller already knows.
#[derive(Debug, Clone)]
pub struct Bucket {
    endpoint: Arc<Endpoint>,
    shared: Arc<Shared>,
}

impl Bucket {
    /// Makes an object from the result of an earlier listing or HEAD, without a request. With an
    /// empty ETag, the ETag of the first response is used.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an invalid key, size or ETag.
    pub fn object(&self, key: &str, size_bytes: u64, etag: &str) -> Result<RemoteObject> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let message = format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len());
            return Err(Error::new(ErrorKind::Usage, message));
        }
        if size_bytes > OBJECT_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("{size_bytes} bytes: no such object"),
            ));
        }
        let etag = quote_etag(etag).ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("'{}' is not an ETag", shown(etag)))
        })?;
        let object = Object { key: key.to_owned(), etag, size_bytes, ..Object::default() };
        Ok(remote((object, Arc::clone(&self.endpoint)), &self.shared))
    }
}

/// The callback of a question. It is called on the client's thread.
pub(super) struct Answer<T> {
    then: Option<Box<dyn FnOnce(Result<T>) + Send>>,
}

impl<T> Answer<T> {
    pub(super) fn new(then: impl FnOnce(Result<T>) + Send + 'static) -> Self {
        Self { then: Some(Box::new(then)) }
    }

    fn give(mut self, answer: Result<T>) {
        if let Some(then) = self.then.take() {
            then(answer);
        }
    }
}

impl<T> Drop for Answer<T> {
    /// Reports [`gone`] if the client ends before there is an answer.
    fn drop(&mut self) {
        if let Some(then) = self.then.take() {
            then(Err(gone()));
        }
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

/// A question for the client's thread.
#[derive(Debug)]
enum Question {
    Head(S3Uri, Answer<RemoteObject>),
    Bucket(S3Uri, Answer<Bucket>),
    List(S3Uri, mpsc::Sender<Result<Vec<RemoteObject>>>),
    Pages(S3Uri, Depth, Pages),
    Download(Box<Order>, Answer<Ended>),
}

/// What the client's thread shares with the engine's workers.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) keys: Arc<PublishedKeys>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// Network interfaces to connect over; if empty, the routing table decides.
    pub(super) interfaces: Vec<Interface>,
}

/// Lists and looks up the objects of a server. Its methods block: do not call them from an
/// asynchronous task.
///
/// ```no_run
/// # fn main() -> inrush::Result<()> {
/// use inrush::{Client, ClientOptions};
///
/// let client = Client::connect(ClientOptions::new().region("us-west-2"))?;
/// let object = client.head("s3://bucket/train/part-0.parquet")?;
/// println!("{} has {} bytes", object.key(), object.size_bytes());
/// for object in client.list("s3://bucket/train/")? {
///     println!("{}", object?.key());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    thread: Arc<ControlThread>,
    pub(super) shared: Arc<Shared>,
}

/// The client's thread. It answers questions and renews credentials and addresses until the client
/// and all its engines are dropped.
#[derive(Debug)]
pub(super) struct ControlThread {
    questions: Option<mpsc::Sender<Question>>,
    handle: Option<JoinHandle<()>>,
}

impl Client {
    /// Reads the profile and the environment, and gets credentials.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for invalid options, [`ErrorKind::Access`] if there are no credentials.
    pub fn connect(options: ClientOptions) -> Result<Self> {
        let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
        let (ready, readiness) = std::sync::mpsc::sync_channel(1);
        let files = [&options.ca_bundle, &options.sse_c_key_file].into_iter().flatten().cloned();
        let own = NamedFiles { profile: options.profile.clone(), files: files.collect() };
        let options = options.control()?;
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => {
                    let message = format!("cannot start a runtime: {error}");
                    let _ = ready.send(Err(Error::new(ErrorKind::Host, message)));
                    return;
                }
            };
            LocalSet::new().block_on(&runtime, async {
                let opened = async {
                    keep_helper()?;
                    open(options).await
                };
                match opened.await {
                    Ok((control, shared)) => {
                        let shared = Arc::new(shared);
                        let _ = ready.send(Ok(Arc::clone(&shared)));
                        answer(control, shared, own, asked).await;
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            });
            // A helper thread may wait for a file system that does not answer, or for a pipe.
            runtime.shutdown_timeout(ENDING_GRACE);
        };
        let thread = std::thread::Builder::new().name("inrush-control".to_owned()).spawn(work);
        let thread = thread.map_err(Error::no_thread)?;
        let shared = readiness.recv().unwrap_or_else(|_| Err(gone()))?;
        let thread = ControlThread { questions: Some(questions), handle: Some(thread) };
        Ok(Self { thread: Arc::new(thread), shared })
    }

    fn ask(&self, question: Question) -> Result<()> {
        let questions = self.thread.questions.as_ref().ok_or_else(gone)?;
        questions.blocking_send(question).map_err(|_| gone())
    }

    /// The thread that renews credentials and addresses; an engine holds it to keep it running.
    pub(super) fn thread(&self) -> Arc<ControlThread> {
        Arc::clone(&self.thread)
    }

    /// Starts a download.
    pub(super) fn download(&self, order: Order, answer: Answer<Ended>) -> Result<()> {
        self.ask(Question::Download(Box::new(order), answer))
    }

    /// Looks up one object (HEAD).
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist, and other errors of the server.
    pub fn head(&self, uri: &str) -> Result<RemoteObject> {
        let (answer, answered) = oneshot::channel();
        let answer = Answer::new(move |found| drop(answer.send(found)));
        self.ask(Question::Head(S3Uri::parse(uri)?, answer))?;
        answered.blocking_recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Looks up one object (HEAD) without blocking. The key is taken literally. `then` is called
    /// once, on the client's thread or on this one, and must return soon.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an invalid address. Errors of the server are passed to `then`.
    pub fn head_then(
        &self,
        uri: &str,
        then: impl FnOnce(Result<RemoteObject>) + Send + 'static,
    ) -> Result<()> {
        self.ask(Question::Head(S3Uri::parse_exact(uri, 0)?, Answer::new(then)))
    }

    /// Finds the endpoint of a bucket without blocking, with one HEAD of the object in `uri`, which
    /// need not exist. `then` is called as by [`Client::head_then`].
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an invalid address. Errors of the server are passed to `then`.
    pub fn bucket_then(
        &self,
        uri: &str,
        then: impl FnOnce(Result<Bucket>) + Send + 'static,
    ) -> Result<()> {
        self.ask(Question::Bucket(S3Uri::parse_exact(uri, 0)?, Answer::new(then)))
    }

    /// Lists the keys that start with a prefix, in key order; the prefix is taken literally.
    /// Without `recursive`, it lists the objects up to the next slash and the common prefixes
    /// beyond it. `notify` is called on the client's thread whenever [`Listing::try_next`] has
    /// something to return; it must return at once.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an invalid address. Errors of the server come as pages.
    pub fn pages(
        &self,
        uri: &str,
        recursive: bool,
        notify: impl Fn() + Send + 'static,
    ) -> Result<Listing> {
        let (pages, listing) = listing::channel(notify);
        let depth = if recursive { Depth::All } else { Depth::Level };
        self.ask(Question::Pages(S3Uri::parse_prefix(uri)?, depth, pages))?;
        Ok(listing)
    }

    /// Lists the objects under a prefix, in the server's order. It requests pages while the
    /// iterator is read.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an invalid address. Errors of the server are items of the iterator.
    pub fn list(&self, uri: &str) -> Result<impl Iterator<Item = Result<RemoteObject>> + use<>> {
        let (batches, mut listed) = mpsc::channel(BATCHES_MAX);
        self.ask(Question::List(S3Uri::parse(uri)?, batches))?;
        let mut is_over = false;
        let batches = std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            // An empty batch marks the end. A closed channel without one means that the client has
            // ended.
            let batch = listed.blocking_recv().unwrap_or_else(|| Err(gone()));
            is_over = batch.as_ref().map_or(true, Vec::is_empty);
            Some(batch)
        });
        Ok(batches.flat_map(|batch| match batch {
            Ok(objects) => objects.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(error) => vec![Err(error)],
        }))
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.questions = None;
        if let Some(thread) = self.handle.take() {
            // A thread that panicked has already reported it.
            let _ = thread.join();
        }
    }
}

async fn open(options: ControlOptions) -> Result<(Rc<Control>, Shared)> {
    let control = Rc::new(Control::new(options).await?);
    let tls = if control.is_tls() { Some(control.tls_config()?) } else { None };
    let interfaces = control.interfaces();
    let shared = Shared { keys: control.keys(), tls, interfaces };
    Ok((control, shared))
}

/// Answers questions until all senders are dropped.
async fn answer(
    control: Rc<Control>,
    shared: Arc<Shared>,
    own: NamedFiles,
    mut asked: mpsc::Receiver<Question>,
) {
    let (refresh, own) = (spawn_local(refresh(Rc::clone(&control))), Rc::new(own));
    while let Some(question) = asked.recv().await {
        let (control, shared, own) = (Rc::clone(&control), Arc::clone(&shared), Rc::clone(&own));
        spawn_local(async move {
            match question {
                // Sending to a caller that no longer waits fails, which is ignored.
                Question::Head(uri, answer) => {
                    let found = head(&control, &uri).await;
                    answer.give(found.map(|found| remote(found, &shared)));
                }
                Question::Bucket(uri, answer) => answer.give(bucket(&control, shared, &uri).await),
                Question::Download(order, answer) => {
                    answer.give(Ok(order.run(control, &own).await))
                }
                Question::Pages(uri, depth, pages) => {
                    pages.fill(&control, &shared, uri, depth).await;
                }
                Question::List(uri, batches) => {
                    let listed = list(&control, &shared, uri, &batches).await;
                    let _ = batches.send(listed.map(|()| Vec::new())).await;
                }
            }
        });
    }
    refresh.abort();
}

async fn head(control: &Control, uri: &S3Uri) -> Result<FoundObject> {
    let (KeyPattern::Key(key) | KeyPattern::Exact { key, .. }) = &uri.key else {
        return Err(Error::new(ErrorKind::Usage, format!("{uri} names no single object"))
            .advise("give a bucket and a key, or list it"));
    };
    let found = control.head(&uri.bucket, key, &uri.version_id).await?;
    let object = found.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("{uri} is not there"))
            .advise("check bucket and key")
    })?;
    // The requests above may have found another region.
    Ok((object, control.endpoint(&uri.bucket, GrantTarget::Object(key)).await?))
}

/// Finds the bucket's endpoint: a HEAD follows redirects to its region.
async fn bucket(control: &Control, shared: Arc<Shared>, uri: &S3Uri) -> Result<Bucket> {
    let KeyPattern::Exact { key, .. } = &uri.key else { unreachable!("it was parsed so") };
    let _ = control.head(&uri.bucket, key, "").await?;
    let endpoint = control.endpoint(&uri.bucket, GrantTarget::Object(key)).await?;
    Ok(Bucket { endpoint, shared })
}

async fn list(
    control: &Rc<Control>,
    shared: &Arc<Shared>,
    uri: S3Uri,
    batches: &mpsc::Sender<Result<Vec<RemoteObject>>>,
) -> Result<()> {
    let found = control.resolve_all(&[uri]).await?;
    let mut walk = Walk::new(Rc::clone(control), found, Filter::default())?;
    while let Some(batch) = walk.next_batch().await? {
        let batch = batch.into_iter().map(|entry| remote((entry.object, entry.endpoint), shared));
        if batches.send(Ok(batch.collect())).await.is_err() {
            // The reader has dropped the iterator.
            return Ok(());
        }
    }
    Ok(())
}

/// An object and its endpoint.
pub(super) type FoundObject = (Object, Arc<Endpoint>);

pub(super) fn remote((object, endpoint): FoundObject, shared: &Arc<Shared>) -> RemoteObject {
    let object = Arc::new(ObjectRef::new(object, endpoint));
    RemoteObject { object, shared: Arc::clone(shared) }
}

pub(super) fn gone() -> Error {
    Error::new(ErrorKind::Host, "the client has ended")
}
