//! The library as programs use it: a client and an engine in this process, against the in-repo
//! origin on loopback.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test has a clock and files of its own"
)]

use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::Range;
use std::time::{Duration, Instant};

use inrush::{
    Client, ClientOptions, Destination, Engine, EngineOptions, ErrorKind, ErrorReason, Lease,
    LimitPart, Listed, Priority, RemoteObject, Request, Requests, RingChoice,
};
use inrush_origin::{
    Config, Credentials, FaultPlan, ObjectContent, ObjectSpec, Origin, Profile, TlsConfig,
};

const BUCKET: &str = "lab";
const KEYS: (&str, &str) = ("AKIDLAB", "lab/secret+key");
/// Time limit of each wait: a longer one means that something hangs.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Bytes that differ from place to place.
fn bytes_of(length: usize, salt: u64) -> Vec<u8> {
    let mut state = salt | 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn serve(objects: &BTreeMap<&str, Vec<u8>>, faults: FaultPlan) -> Origin {
    serve_over(objects, faults, None)
}

fn serve_over(
    objects: &BTreeMap<&str, Vec<u8>>,
    faults: FaultPlan,
    tls: Option<TlsConfig>,
) -> Origin {
    let objects = objects.iter().map(|(key, bytes)| {
        ObjectSpec::new(BUCKET, *key, ObjectContent::Bytes(bytes.clone().into()))
    });
    let config = Config {
        objects: objects.collect(),
        credentials: vec![Credentials::new(KEYS.0, KEYS.1)],
        faults,
        tls,
        ..Config::default()
    };
    Origin::start(config).expect("an origin on loopback")
}

fn connect(origin: &Origin) -> Client {
    let options = ClientOptions::new().endpoint_url(origin.url()).region("us-east-1");
    let mut options = options.keys(KEYS.0, KEYS.1);
    // It is read here; the folder may go.
    let folder = tempfile::tempdir().expect("a folder");
    if let Some(certificates) = origin.ca_pem() {
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, certificates).expect("room");
        options.ca_bundle = Some(path);
    }
    Client::connect(options).expect("a client")
}

fn start(client: &Client) -> Engine {
    Engine::start(client, EngineOptions::new().workers(2)).expect("an engine")
}

fn ask(object: &RemoteObject, range: Range<u64>, into: Destination, token: u64) -> Request {
    Request { object: object.clone(), range, into, priority: Priority::Normal, token }
}

fn memory(range: &Range<u64>) -> Destination {
    Destination::Memory(vec![0; usize::try_from(range.end - range.start).expect("small")])
}

fn part(bytes: &[u8], range: &Range<u64>) -> Vec<u8> {
    let at = |place: u64| usize::try_from(place).expect("small");
    bytes[at(range.start)..at(range.end)].to_vec()
}

/// Waits until all have completed.
fn all(requests: &Requests) -> Vec<inrush::Completion> {
    let begun = Instant::now();
    let mut all = Vec::new();
    while requests.under_way() > 0 {
        assert!(begun.elapsed() < WAIT_MAX, "it hangs with {all:?}");
        all.extend(requests.wait(Duration::from_millis(100)));
    }
    all
}

/// What completes next; one at least.
fn next_completions(requests: &Requests) -> Vec<inrush::Completion> {
    let begun = Instant::now();
    loop {
        let ended = requests.wait(Duration::from_millis(100));
        if !ended.is_empty() {
            return ended;
        }
        assert!(begun.elapsed() < WAIT_MAX, "it does not complete");
    }
}

#[test]
fn ranges_come_into_memory_whatever_the_server_does() {
    let objects = BTreeMap::from([("a", bytes_of(3_000_001, 1)), ("b", bytes_of(70_000, 2))]);
    let origin = serve(&objects, FaultPlan::seeded(7, Profile::Mixed));
    let client = connect(&origin);
    let engine = start(&client);
    let requests = engine.requests().expect("a descriptor");
    let found = objects.keys().map(|key| client.head(&format!("s3://{BUCKET}/{key}")));
    let found: Vec<RemoteObject> = found.map(|object| object.expect("it is there")).collect();
    let mut asked = BTreeMap::new();
    for token in 0..200u64 {
        let object = &found[usize::try_from(token % 2).expect("small")];
        let size = object.size_bytes();
        let begin = token.wrapping_mul(7919 * 131) % size;
        let range = begin..(begin + 1 + token * 977).min(size);
        requests.submit(ask(object, range.clone(), memory(&range), token)).expect("a good request");
        asked.insert(token, (object.key().to_owned(), range));
    }
    let completions = all(&requests);
    assert_eq!(completions.len(), asked.len());
    for completion in completions {
        let (key, range) = asked.remove(&completion.token).expect("each completes once");
        completion.result.expect("faults are survived");
        let Destination::Memory(bytes) = completion.into else { panic!("the buffer comes back") };
        assert!(bytes == part(&objects[key.as_str()], &range), "{key} {range:?}");
    }
    let read = engine.read(&found[0], 5..2_999_999).expect("faults are survived");
    assert!(read == part(&objects["a"], &(5..2_999_999)));
}

#[test]
fn a_long_read_is_several_requests() {
    let objects = BTreeMap::from([("a", bytes_of(20 << 20, 3))]);
    let origin = serve(&objects, FaultPlan::none());
    let client = connect(&origin);
    let engine = start(&client);
    let object = client.head(&format!("s3://{BUCKET}/a")).expect("it is there");
    let before = origin.stats().gets;
    assert!(engine.read(&object, 0..20 << 20).expect("it is there") == objects["a"]);
    assert_eq!(origin.stats().gets - before, 3);
}

fn a_pipe_has_the_bytes_in_order(tls: Option<TlsConfig>) {
    let objects = BTreeMap::from([("a", bytes_of(5_000_000, 4))]);
    let origin = serve_over(&objects, FaultPlan::seeded(3, Profile::Mixed), tls);
    let client = connect(&origin);
    let engine = start(&client);
    let object = client.head(&format!("s3://{BUCKET}/a")).expect("it is there");
    let requests = engine.requests().expect("a descriptor");
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let into = Destination::pipe(writer.into()).expect("a pipe");
    requests.submit(ask(&object, 1000..4_000_000, into, 1)).expect("a good request");
    requests.submit(ask(&object, 0..5_000_000, Destination::Nothing, 2)).expect("a good request");
    let mut bytes = vec![0; 3_999_000];
    reader.read_exact(&mut bytes).expect("all of it");
    assert!(bytes == part(&objects["a"], &(1000..4_000_000)));
    for completion in all(&requests) {
        completion.result.expect("faults are survived");
    }
    assert_eq!(reader.read(&mut [0]).expect("the end"), 0, "nobody holds the pipe any more");
}

#[test]
fn a_pipe_has_the_bytes_in_order_and_nowhere_takes_them() {
    a_pipe_has_the_bytes_in_order(None);
}

#[test]
fn over_tls_a_pipe_has_them_too() {
    a_pipe_has_the_bytes_in_order(Some(TlsConfig::default()));
}

#[test]
fn a_place_of_the_program_has_the_bytes() {
    a_place_has_the_bytes(RingChoice::Auto, None);
}

#[test]
fn without_io_uring_a_place_has_them_too() {
    a_place_has_the_bytes(RingChoice::Epoll, None);
}

#[test]
fn over_tls_a_place_has_them_too() {
    a_place_has_the_bytes(RingChoice::Auto, Some(TlsConfig::default()));
}

fn a_place_has_the_bytes(ring: RingChoice, tls: Option<TlsConfig>) {
    let objects = BTreeMap::from([("a", bytes_of(3_000_001, 4))]);
    let origin = serve_over(&objects, FaultPlan::seeded(11, Profile::Mixed), tls);
    let client = connect(&origin);
    let options = EngineOptions::new().workers(2).ring(ring);
    let engine = Engine::start(&client, options).expect("an engine");
    let requests = engine.requests().expect("a descriptor");
    let object = client.head(&format!("s3://{BUCKET}/a")).expect("it is there");
    let range = 7..2_900_000;
    let place = |length_bytes| Destination::Place(Box::new(vec![0u8; length_bytes]));
    let refused = requests.submit(ask(&object, range.clone(), place(5), 1)).expect_err("too short");
    assert_eq!(refused.kind(), ErrorKind::Usage);
    for token in 0..20 {
        let request = ask(&object, range.clone(), place(2_900_000 - 7), token);
        requests.submit(request).expect("a good request");
    }
    let expected = part(&objects["a"], &range);
    for completion in all(&requests) {
        completion.result.expect("faults are survived");
        let Destination::Place(place) = completion.into else { panic!("it comes back") };
        let place: Box<dyn std::any::Any> = place;
        let bytes = place.downcast::<Vec<u8>>().expect("the same");
        assert!(*bytes == expected);
    }
}

#[test]
fn who_must_not_wait_is_called_and_woken() {
    let objects = BTreeMap::from([("a", bytes_of(1000, 5)), ("b*/c", bytes_of(10, 6))]);
    let origin = serve(&objects, FaultPlan::none());
    let client = connect(&origin);
    let engine = start(&client);
    let requests = engine.requests().expect("a descriptor");
    let (sender, answers) = std::sync::mpsc::channel();
    for key in ["a", "b*/c", "none"] {
        let (sender, waker) = (sender.clone(), requests.waker());
        let then = move |found: inrush::Result<RemoteObject>| {
            let found = found.map(|object| object.size_bytes());
            let _ = sender.send((key, found.map_err(|error| error.kind())));
            waker.wake();
        };
        client.head_then(&format!("s3://{BUCKET}/{key}"), then).expect("an address");
    }
    // It would last an hour, if nobody woke it.
    assert!(requests.wait(Duration::from_secs(3600)).is_empty());
    let answers: BTreeMap<_, _> = (0..3).map(|_| answers.recv().expect("an answer")).collect();
    let expected = [("a", Ok(1000)), ("b*/c", Ok(10)), ("none", Err(ErrorKind::NotFound))];
    assert_eq!(answers, BTreeMap::from(expected));
    // What is known from elsewhere is not asked for.
    let (sender, answer) = std::sync::mpsc::channel();
    let then = move |bucket| drop(sender.send(bucket));
    client.bucket_then(&format!("s3://{BUCKET}/none"), then).expect("an address");
    let bucket = answer.recv().expect("an answer").expect("it is there");
    let object = bucket.object("b*/c", 10, "").expect("an object");
    assert_eq!(engine.read(&object, 0..10).expect("it is there"), objects["b*/c"]);
    let other = bucket.object("a", 1000, "another").expect("an object");
    let changed = engine.read(&other, 0..10).expect_err("another version");
    assert_eq!(changed.reason(), ErrorReason::Changed);
    assert!(changed.attempts().is_some(), "{changed}");
    assert!(bucket.object("", 10, "").is_err() && bucket.object("a", u64::MAX, "").is_err());
}

#[test]
fn pages_come_as_they_are_asked_for() {
    let names: Vec<String> = (0..2500).map(|at| format!("t/{at:05}/x")).collect();
    let mut objects: BTreeMap<&str, Vec<u8>> =
        names.iter().map(|name| (name.as_str(), Vec::new())).collect();
    objects.extend([("t*", vec![1]), ("u", vec![2])]);
    let origin = serve(&objects, FaultPlan::none());
    let client = connect(&origin);
    let list = |prefix: &str, recursive: bool| -> inrush::Result<Vec<String>> {
        let (rung, bell) = std::sync::mpsc::channel();
        let uri = format!("s3://{BUCKET}/{prefix}");
        let notify = move || {
            let _ = rung.send(());
        };
        let mut listing = client.pages(&uri, recursive, notify).expect("an address");
        let mut names = Vec::new();
        loop {
            match listing.try_next() {
                std::task::Poll::Pending => bell.recv_timeout(WAIT_MAX).expect("it is rung"),
                std::task::Poll::Ready(None) => return Ok(names),
                std::task::Poll::Ready(Some(page)) => names.extend(page?.into_iter().map(named)),
            }
        }
    };
    let expected: Vec<String> = ["t*"].map(str::to_owned).into_iter().chain(names).collect();
    assert_eq!(list("t", true).expect("it is there"), expected);
    assert_eq!(list("t*", true).expect("it is there"), ["t*"]);
    assert_eq!(list("", false).expect("it is there"), ["t*", "t/", "u"]);
    assert_eq!(list("t/", false).expect("it is there").len(), 2500);
    assert!(list("none", true).expect("the bucket is").is_empty());
    assert!(list("none", false).expect("the bucket is").is_empty());
    let gone = client.pages("s3://no-such-bucket/", true, || ()).map(|mut listing| {
        loop {
            match listing.try_next() {
                std::task::Poll::Pending => std::thread::sleep(Duration::from_millis(5)),
                std::task::Poll::Ready(page) => return page.map(|page| page.map(|_| ())),
            }
        }
    });
    let gone = gone.expect("an address").expect("an error").expect_err("no bucket");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

fn named(listed: Listed) -> String {
    match listed {
        Listed::Object(object) => object.key().to_owned(),
        Listed::Prefix(prefix) => prefix,
    }
}

#[test]
fn errors_are_values_and_what_is_wrong_is_refused() {
    let objects = BTreeMap::from([("a", bytes_of(1000, 5))]);
    let origin = serve(&objects, FaultPlan::none());
    let client = connect(&origin);
    let engine = start(&client);
    let kind = |result: inrush::Result<_>| result.map(|_: RemoteObject| ()).map_err(|e| e.kind());
    assert_eq!(kind(client.head("s3://lab/b")), Err(ErrorKind::NotFound));
    assert_eq!(kind(client.head("s3://lab/")), Err(ErrorKind::Usage));
    assert_eq!(kind(client.head("http://lab/")), Err(ErrorKind::Usage));
    let object = client.head("s3://lab/a").expect("it is there");
    let requests = engine.requests().expect("a descriptor");
    for (range, into) in
        [(0..1001, memory(&(0..1001))), (7..7, memory(&(0..0))), (0..10, memory(&(0..9)))]
    {
        let refused = requests.submit(ask(&object, range, into, 1)).expect_err("it is wrong");
        assert_eq!(refused.kind(), ErrorKind::Usage, "{refused}");
    }
    // A pipe that nobody reads any more.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let into = Destination::pipe(writer.into()).expect("a pipe");
    requests.submit(ask(&object, 0..1000, into, 1)).expect("a good request");
    assert!(all(&requests)[0].result.is_err());
    assert!(
        Destination::pipe(std::fs::File::open("/dev/null").expect("it is there").into()).is_err()
    );
    // An object of another client.
    let other = connect(&origin).head("s3://lab/a").expect("it is there");
    let refused = requests.submit(ask(&other, 0..9, Destination::Nothing, 1));
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::Usage));
    // Another version than the one that was found.
    let other = ObjectSpec::new(BUCKET, "a", ObjectContent::Bytes(bytes_of(1000, 6).into()));
    origin.put_object(&other).expect("room for it");
    requests.submit(ask(&object, 0..1000, memory(&(0..1000)), 1)).expect("a good request");
    let error = all(&requests).remove(0).result.expect_err("it was replaced");
    assert_eq!(error.kind(), ErrorKind::Objects, "{error}");
}

#[test]
fn what_is_cancelled_completes_and_so_does_all_when_the_engine_ends() {
    let objects = BTreeMap::from([("a", bytes_of(4_000_000, 7))]);
    let origin = serve(&objects, FaultPlan::none());
    let client = connect(&origin);
    let engine = start(&client);
    let object = client.head("s3://lab/a").expect("it is there");
    let requests = engine.requests().expect("a descriptor");
    // Nobody reads these pipes: they fill, and wait.
    let pipes: Vec<_> = (0..8).map(|_| std::io::pipe().expect("a pipe")).collect();
    for (token, (_, writer)) in (0..).zip(&pipes) {
        let writer = writer.try_clone().expect("a descriptor");
        let into = Destination::pipe(writer.into()).expect("a pipe");
        requests.submit(ask(&object, 0..4_000_000, into, token)).expect("a good request");
    }
    let again = Destination::Nothing;
    assert!(requests.submit(ask(&object, 0..9, again, 3)).is_err(), "the token is under way");
    assert!(requests.cancel(3) && !requests.cancel(99));
    let ended = next_completions(&requests);
    assert_eq!(ended.len(), 1);
    let outcome = ended[0].result.as_ref().map_err(inrush::Error::kind);
    assert_eq!((ended[0].token, outcome), (3, Err(ErrorKind::Interrupted)));
    drop(engine);
    let rest = all(&requests);
    assert_eq!(rest.len(), 7);
    assert!(rest.iter().all(|completion| completion.result.is_err()));
    requests.submit(ask(&object, 0..9, Destination::Nothing, 1)).expect("it is taken");
    assert!(all(&requests)[0].result.is_err(), "nobody is there any more");
}

#[test]
fn a_listing_goes_on_while_its_objects_are_taken() {
    let names: Vec<String> = (0..2500).map(|number| format!("k/{number:05}")).collect();
    let objects = names.iter().map(|name| (name.as_str(), vec![1])).collect();
    let origin = serve(&objects, FaultPlan::none());
    let client = connect(&origin);
    let listed = client.list("s3://lab/k/").expect("an address");
    let keys: Vec<String> =
        listed.map(|object| object.expect("it is listed").key().to_owned()).collect();
    assert_eq!(keys, names);
    let few = client.list("s3://lab/k/").expect("an address").take(3).count();
    assert_eq!(few, 3);
    let cut = connect(&origin).list("s3://lab/k/").expect("an address");
    let end = cut.last().expect("something is said");
    assert!(end.is_err(), "a client that has gone is no end of the listing");
    assert!(client.list("s3://lab/none/").expect("an address").all(|object| object.is_err()));
}

/// The bytes of a lease that has come, and of its range.
struct Leased {
    lease: Lease,
    expected: Vec<u8>,
}

impl Leased {
    fn assert_right(&self) {
        assert!(*self.lease == self.expected, "{:?} of {}", self.lease, self.expected.len());
    }
}

/// Takes leases as they come, until `is_enough`; all else must be right as well.
fn take_leases(
    requests: &Requests,
    asked: &BTreeMap<u64, (Vec<u8>, bool)>,
    leases: &mut Vec<Leased>,
    is_enough: impl Fn(&[Leased], usize) -> bool,
) {
    let begun = Instant::now();
    let mut others = 0;
    while !is_enough(leases, others) {
        assert!(begun.elapsed() < WAIT_MAX, "{} leases and {others} others came", leases.len());
        for completion in requests.wait(Duration::from_millis(100)) {
            completion.result.expect("faults are survived");
            let (expected, for_lease) = asked[&completion.token].clone();
            match completion.into {
                Destination::Lease(lease) if for_lease => leases.push(Leased { lease, expected }),
                Destination::Memory(bytes) if !for_lease => {
                    assert!(bytes == expected);
                    others += 1;
                }
                into => panic!("{into:?} was not asked for"),
            }
        }
    }
}

fn leases_hold_up_nothing(tls: Option<TlsConfig>) {
    let objects = BTreeMap::from([("a", bytes_of(9_000_001, 8))]);
    let origin = serve_over(&objects, FaultPlan::seeded(11, Profile::Mixed), tls);
    let client = connect(&origin);
    let options = EngineOptions::new().workers(2).connections(6);
    let engine = Engine::start(&client, options).expect("an engine");
    let (most, longest) = (engine.leases_max(), engine.lease_bytes_max());
    assert!(most >= 2 && longest >= 64 << 10, "{most} of {longest} bytes");
    let object = client.head("s3://lab/a").expect("it is there");
    let requests = engine.requests().expect("a descriptor");
    let mut asked = BTreeMap::new();
    for token in 0..4 * most as u64 {
        let begin = token * 77_777 % (object.size_bytes() - longest);
        let length = if token % 3 == 0 { longest } else { 1 + token * 9_973 % longest };
        let range = begin..begin + length;
        asked.insert(token, (part(&objects["a"], &range), true));
        let into = Destination::Lease(Lease::new());
        requests.submit(ask(&object, range, into, token)).expect("a good request");
    }
    let mut leases = Vec::new();
    take_leases(&requests, &asked, &mut leases, |leases, _| leases.len() == most);
    // All are kept: others come, more leases do not.
    for token in 1000..1040 {
        let range = token..token + 2_000_000;
        asked.insert(token, (part(&objects["a"], &range), false));
        let into = memory(&range);
        requests.submit(ask(&object, range, into, token)).expect("a good request");
    }
    take_leases(&requests, &asked, &mut leases, |_, others| others == 40);
    assert_eq!((leases.len(), requests.under_way()), (most, 3 * most), "no more than that");
    // Another thread reads them and gives them back: each makes room for one more.
    let (give, taken) = std::sync::mpsc::channel::<Leased>();
    let reader = std::thread::spawn(move || taken.iter().map(|one| one.assert_right()).count());
    for come in most + 1..=4 * most {
        give.send(leases.remove(0)).expect("it reads");
        take_leases(&requests, &asked, &mut leases, |leases, _| leases.len() == most);
        assert_eq!(requests.under_way(), 4 * most - come);
    }
    drop(give);
    assert_eq!(reader.join().expect("they are right"), 3 * most);
    drop(engine);
    drop(requests);
    leases.iter().for_each(Leased::assert_right);
}

#[test]
fn who_keeps_leases_holds_up_nothing_but_requests_for_more() {
    leases_hold_up_nothing(None);
}

#[test]
fn leases_over_tls_are_no_different() {
    leases_hold_up_nothing(Some(TlsConfig::default()));
}

#[test]
fn a_request_that_waits_for_a_lease_can_be_cancelled_and_outlived() {
    let objects = BTreeMap::from([("a", bytes_of(3_000_000, 9))]);
    let origin = serve(&objects, FaultPlan::none());
    let client = connect(&origin);
    let options = EngineOptions::new().workers(2).connections(4);
    let engine = Engine::start(&client, options).expect("an engine");
    let (most, longest) = (engine.leases_max(), engine.lease_bytes_max());
    let object = client.head("s3://lab/a").expect("it is there");
    let requests = engine.requests().expect("a descriptor");
    let lease = || Destination::Lease(Lease::new());
    let refused = requests.submit(ask(&object, 0..longest + 1, lease(), 0)).expect_err("too long");
    assert_eq!(refused.kind(), ErrorKind::Usage);
    assert!(refused.to_string().contains(&longest.to_string()), "{refused}");
    let all_tokens = 0..most as u64 + 2;
    let asked: BTreeMap<u64, (Vec<u8>, bool)> =
        all_tokens.map(|token| (token, (part(&objects["a"], &(token..longest)), true))).collect();
    let mut leases = Vec::new();
    for token in 0..most as u64 {
        requests.submit(ask(&object, token..longest, lease(), token)).expect("a good request");
    }
    take_leases(&requests, &asked, &mut leases, |leases, _| leases.len() == most);
    let (cancelled, outlived) = (most as u64, most as u64 + 1);
    for token in [cancelled, outlived] {
        requests.submit(ask(&object, token..longest, lease(), token)).expect("a good request");
    }
    assert!(requests.wait(Duration::from_millis(50)).is_empty(), "they wait");
    assert!(requests.cancel(cancelled));
    let ended = next_completions(&requests);
    let [inrush::Completion { token, into: Destination::Lease(empty), result: Err(error) }] =
        &ended[..]
    else {
        panic!("{ended:?}")
    };
    assert_eq!((*token, error.kind()), (cancelled, ErrorKind::Interrupted));
    assert!(empty.is_empty() && requests.under_way() == 1);
    drop(engine);
    let rest = all(&requests);
    assert_eq!((rest.len(), rest[0].token), (1, outlived));
    assert!(rest[0].result.is_err());
    let reader = std::thread::spawn(move || leases.iter().for_each(Leased::assert_right));
    reader.join().expect("they outlive the engine");
}

#[test]
fn what_the_limit_was_is_reported_while_it_runs() {
    let objects = BTreeMap::from([("small", bytes_of(1000, 3))]);
    let origin = serve(&objects, FaultPlan::none());
    let client = connect(&origin);
    let engine = start(&client);
    let object = client.head("s3://lab/small").expect("it is there");
    let begun = Instant::now();
    engine.read(&object, 0..1000).expect("its bytes");
    let limit = engine.limit();
    assert!(limit.bytes_per_second.is_some_and(|speed| speed > 0), "{limit:?}");
    // Nobody asks for anything, four times as long.
    std::thread::sleep(begun.elapsed() * 4 + Duration::from_millis(100));
    let limit = engine.limit();
    assert!(limit.shares[&LimitPart::Reader] > 0.5, "{limit:?}");
    assert!(limit.sentence.starts_with("the limit: "), "{limit:?}");
}
