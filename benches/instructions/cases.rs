//! What is counted: each case does the same work again and again, with inputs that never change.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use inrush::engine::endpoints::EndpointSet;
use inrush::engine::metrics::Gauge;
use inrush::engine::pace::{Bounds, Controller, Pacer, Totals};
use inrush::engine::peers::SharedAddresses;
use inrush::engine::schedule::{Recipient, Room, Scheduler, Supply};
use inrush::engine::worker::{Parts, Worker};
use inrush::files::file_download::{Cut, FileDownload, Outcome};
use inrush::files::sink::Sink;
use inrush::limits::{CONTROL_SLOT_BYTES, PACE_TICK_US, PART_BYTES_DEFAULT, SLOT_BYTES_MAX};
use inrush::link::attempt::RetryPolicy;
use inrush::link::http;
use inrush::plan::filter::Filter;
use inrush::plan::path::RelativePath;
use inrush::plan::prefix::path_start;
use inrush::plan::ranges::PartSize;
use inrush::s3::list::parse_page;
use inrush::s3::sign::{Get, REQUEST_HEAD_BYTES_MAX, RequestWriter, SigningKeys};
use inrush::s3::{ByteRange, Endpoint, Object};
use inrush::sys::{Pool, Region, descriptor};

use super::machine::{InstantHost, InstantRing, network};

/// Something that is counted.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What one unit is.
    pub(crate) unit: &'static str,
    /// Units in one go.
    pub(crate) units: u64,
    /// Prepares the case, and runs its work as many times as the argument says.
    pub(crate) run: fn(u64),
}

/// All cases, in the order in which a download needs them.
pub(crate) const CASES: [Case; 6] = [
    Case { name: "planning", unit: "object", units: 1000, run: planning },
    Case { name: "hand_out", unit: "range", units: 64 * RANGES, run: hand_out },
    Case { name: "signing", unit: "request", units: 100, run: signing },
    Case { name: "head_parsing", unit: "head", units: 1000, run: head_parsing },
    Case { name: "pace", unit: "tick", units: 1000, run: pace },
    Case { name: "range", unit: "range", units: 16 * RANGES, run: ranges },
];

/// Ranges of each large object.
const RANGES: u64 = 8;
const PART: u64 = PART_BYTES_DEFAULT;
const CONNECTIONS: usize = 16;
const SLOTS: usize = 64;
const ETAG: &str = "\"9bb58f26192e4ba00f01e2e7b136bbd8-32\"";

fn cut() -> Cut {
    Cut { part: PartSize::new(PART).expect("aligned"), slot_length_bytes: SLOT_BYTES_MAX }
}

fn endpoint() -> Arc<Endpoint> {
    Arc::new(Endpoint::new(
        "training-data",
        false,
        "training-data.s3.eu-central-1.amazonaws.com",
        "/",
        "eu-central-1",
        vec!["127.0.0.1:80".parse().expect("an address")],
    ))
}

/// Keys of a role, and a time that they sign at.
pub(crate) fn keys() -> (SigningKeys, SystemTime) {
    let token = "IQoJb3JpZ2luX2VjEJr".repeat(40);
    let keys = SigningKeys::new("ASIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI", Some(&token), None);
    (keys.expect("keys"), UNIX_EPOCH + Duration::from_secs(1_700_000_000))
}

/// An answer of S3.
pub(crate) fn answer_head(first: u64, length: u64, size: u64) -> String {
    format!(
        "HTTP/1.1 206 Partial Content\r\n\
         x-amz-id-2: 0AyZ4ZkEr5n1SHi6QDsw0rO0kd9wRXY3kOG3MbTrsJYzyBsLvEv9pNGt0XhMgpGJqQKk=\r\n\
         x-amz-request-id: 4442587FB7D0A2F9\r\n\
         Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n\
         Last-Modified: Mon, 13 Nov 2023 10:00:00 GMT\r\n\
         x-amz-server-side-encryption: AES256\r\n\
         ETag: {ETAG}\r\n\
         Accept-Ranges: bytes\r\n\
         Content-Range: bytes {first}-{}/{size}\r\n\
         Content-Type: application/octet-stream\r\n\
         Server: AmazonS3\r\n\
         Content-Length: {length}\r\n\r\n",
        first + length - 1
    )
}

/// A page of a listing.
fn page(objects: u64, size: u64) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\
                    \"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>training-data</Name><Prefix>\
                    set/</Prefix><KeyCount>1000</KeyCount><MaxKeys>1000</MaxKeys><EncodingType>\
                    url</EncodingType><IsTruncated>false</IsTruncated>"
        .to_owned();
    for index in 0..objects {
        write!(
            text,
            "<Contents><Key>set/part-{:03}/shard+{index:06}.tar</Key><LastModified>\
             2023-11-13T10:00:00.000Z</LastModified><ETag>&quot;{}&quot;</ETag><ChecksumAlgorithm>\
             CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType><Size>{size}\
             </Size><StorageClass>STANDARD</StorageClass></Contents>",
            index / 100,
            ETAG.trim_matches('"'),
        )
        .expect("room");
    }
    text + "</ListBucketResult>"
}

/// From the text of a page to what is fetched to where.
fn plan(page: &str, filter: &Filter, endpoint: &Arc<Endpoint>) -> Vec<FileDownload> {
    let page = parse_page(page.as_bytes()).expect("a page");
    let downloads = page.objects.into_iter().filter_map(|object| {
        let relative = &object.key[path_start("set/", &object.key)..];
        let path = RelativePath::parse(relative).expect("a path").as_str().to_owned();
        let is_taken = filter.takes(&path);
        is_taken.then(|| FileDownload::new(object, Arc::clone(endpoint), path, cut()))
    });
    downloads.collect()
}

fn planning(times: u64) {
    let (page, endpoint) = (page(1000, RANGES * PART), endpoint());
    let filter = Filter::new(&[]).expect("no rules");
    for _ in 0..times {
        let downloads = plan(black_box(&page), &filter, &endpoint);
        assert_eq!(downloads.len(), 1000);
        black_box(downloads);
    }
}

fn hand_out(times: u64) {
    let counters = vec![descriptor::event_counter().expect("a descriptor")];
    let scheduler = Scheduler::new(counters);
    let endpoint = endpoint();
    let (mut ready, mut outcomes) = (VecDeque::new(), Vec::new());
    for _ in 0..times {
        scheduler.push((0..64).map(|index| {
            let key = format!("set/{index}");
            let size_bytes = RANGES * PART;
            let object = Object { key, etag: ETAG.to_owned(), size_bytes, ..Object::default() };
            let path = index.to_string();
            FileDownload::new(object, Arc::clone(&endpoint), path, cut())
        }));
        let room = Room { ranges: 16, all: 16 };
        let mut taken = 0;
        while scheduler.take(0, room, EndpointSet::EMPTY, &mut ready) == Supply::Given {
            for assignment in ready.drain(..) {
                taken += 1;
                let Recipient::File(download) = assignment.recipient else {
                    unreachable!("there is no client")
                };
                if download.settle() {
                    scheduler.finish(Outcome { download, elapsed_us: 1, result: Ok(()) });
                }
            }
        }
        assert_eq!(taken, 64 * RANGES);
        scheduler.collect(&mut outcomes);
        outcomes.clear();
    }
}

fn signing(times: u64) {
    let (endpoint, (keys, now)) = (endpoint(), keys());
    let mut writer = RequestWriter::new();
    let mut out = vec![0; REQUEST_HEAD_BYTES_MAX];
    for _ in 0..times {
        for index in 0..100 {
            let get = Get {
                endpoint: &endpoint,
                key: "set/part-000/shard 000001.tar",
                target: None,
                version_id: "",
                range: Some(ByteRange { offset: index * PART, length: PART }),
                if_match: ETAG,
                with_checksum: false,
                accepts_gzip: false,
            };
            let length = writer.write_get(&mut out, black_box(&get), Some(&keys), now);
            assert!(length.expect("it fits") > 500);
        }
    }
}

fn head_parsing(times: u64) {
    let head = answer_head(PART, PART, RANGES * PART);
    for _ in 0..times * 1000 {
        let parsed = http::parse(black_box(head.as_bytes())).expect("HTTP").expect("all of it");
        assert_eq!(black_box(parsed).status, 206);
    }
}

/// A controller on a network that brings more with more requests, up to 100 of them.
fn pace(times: u64) {
    let bounds = Bounds { least: 1, start: 16, ..Bounds::fixed(1024) };
    let mut controller = Controller::new(bounds);
    let (mut now_us, mut totals) = (0, Totals { is_bound: true, ..Totals::default() });
    for _ in 0..times * 1000 {
        now_us += PACE_TICK_US;
        let requests = controller.limits(now_us).requests_in_flight;
        totals.busy = requests;
        totals.bytes += u64::from(requests.min(100)) * 100 * PACE_TICK_US;
        totals.answers += u64::from(requests.min(100)) / 10;
        totals.first_byte_us += u64::from(requests.min(100)) / 10 * 20_000;
        controller.handle(now_us, totals);
    }
    assert!(controller.limits(now_us).requests_in_flight > 16, "it climbs");
}

/// The whole way of a range, from the listing to the file: the page is read, the range handed out,
/// asked for with a signature, answered, received and written. Network and disk cost nothing.
fn ranges(times: u64) {
    let endpoint = endpoint();
    let network = network(RANGES, PART);
    let counter = descriptor::event_counter().expect("a descriptor");
    let scheduler = Arc::new(Scheduler::new(vec![counter.clone()]));
    let lengths = CONNECTIONS * CONTROL_SLOT_BYTES as usize + SLOTS * SLOT_BYTES_MAX as usize;
    let region = Region::new(lengths).expect("memory");
    let data = region.carve(SLOTS * SLOT_BYTES_MAX as usize).expect("room");
    let control = region.carve(CONNECTIONS * CONTROL_SLOT_BYTES as usize).expect("room");
    let filter = Filter::new(&[]).expect("no rules");
    let page = page(16 * times, RANGES * PART);
    let fixed = u32::try_from(CONNECTIONS).expect("few");
    let mut worker = Worker::new(Parts {
        ring: InstantRing::new(Rc::clone(&network)),
        host: InstantHost::new(network),
        data: Pool::new(data, SLOT_BYTES_MAX),
        control: Pool::new(control, CONTROL_SLOT_BYTES),
        tls: None,
        connections: CONNECTIONS,
        pacer: Arc::new(Pacer::new(Bounds::fixed(fixed), 1)),
        retries: RetryPolicy::default(),
        sink: Sink::File,
        scheduler: Arc::clone(&scheduler),
        number: 0,
        counter,
        gauge: Arc::new(Gauge::default()),
        addresses: Arc::new(SharedAddresses::default()),
    });
    scheduler.push(plan(&page, &filter, &endpoint));
    scheduler.complete();
    worker.run().expect("this ring does not fail");
    let (metrics, ..) = worker.into_parts();
    let count = 16 * RANGES * times;
    assert_eq!((metrics.bytes, metrics.answers), (count * PART, count));
    let mut outcomes = Vec::new();
    scheduler.collect(&mut outcomes);
    assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()));
}
