use inrush::config::*;
use inrush::engine::*;
use inrush::s3::sign::PublishedKeys;
use inrush::s3::*;
use inrush::transfer::Transfer;
use std::sync::{Arc, RwLock};
use std::time::Instant;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let workers: usize = a[1].parse().unwrap();
    let connections: usize = a[2].parse().unwrap();
    let dest = a.get(3).filter(|d| *d != "-").cloned();
    let config = Config::resolve(
        Wishes { workers: Some(workers), connections: Some(connections), ..Wishes::default() },
        HostFacts::read(),
    )
    .unwrap();
    eprintln!("{config:?}");
    let begun = Instant::now();
    let destination = dest.map(|d| inrush::machine::open_destination(d.as_ref()).unwrap());
    let engine = Engine::start(Order {
        config,
        destination,
        keys: Arc::new(PublishedKeys::new(None)),
        attempts_max: 3,
        begun,
    })
    .unwrap();
    let endpoint = Arc::new(Endpoint {
        bucket: "bucket".into(),
        tls: false,
        host: "127.0.0.1:18080".into(),
        path_prefix: "/bucket/".into(),
        region: "us-east-1".into(),
        addresses: RwLock::new(vec!["127.0.0.1:18080".parse().unwrap()]),
    });
    if a.get(4).is_some() {
        let n: usize = a[4].parse().unwrap();
        let mut i = 0;
        let mut out = Vec::new();
        while i < n {
            let room = engine.scheduler.room().min(n - i);
            engine.scheduler.push((i..i + room).map(|k| {
                let key = format!("small/{:02x}/{:06}", k % 256, k);
                Transfer::new(
                    Object {
                        key: key.clone(),
                        etag: String::new(),
                        size_bytes: 39000,
                        last_modified: String::new(),
                    },
                    endpoint.clone(),
                    key,
                    config.cut(),
                )
            }));
            i += room;
            std::thread::sleep(std::time::Duration::from_millis(5));
            engine.scheduler.collect(&mut out);
            for o in out.drain(..) {
                if let Err(e) = o.result {
                    eprintln!("{e}");
                }
            }
        }
    } else {
        engine.scheduler.push((0..4).map(|k| {
            let key = format!("big/obj{k}");
            Transfer::new(
                Object {
                    key: key.clone(),
                    etag: String::new(),
                    size_bytes: 1 << 30,
                    last_modified: String::new(),
                },
                endpoint.clone(),
                key,
                config.cut(),
            )
        }));
    }
    engine.scheduler.complete();
    while !engine.has_ended() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let t = begun.elapsed().as_secs_f64();
    let mut out = Vec::new();
    engine.scheduler.collect(&mut out);
    for o in out {
        if let Err(e) = o.result {
            eprintln!("{e}");
        }
    }
    let m = engine.join().unwrap();
    let mut all = inrush::metrics::WorkerMetrics::default();
    for x in &m {
        all.add(x);
    }
    let cpu = inrush::sys::usage::process_cpu_seconds();
    println!(
        "{:.2} GB/s cpu {:.3} s/GB rss {} MiB objects {} ({:.0}/s, {:.0} us cpu)",
        all.bytes as f64 / t / 1e9,
        cpu / (all.bytes as f64 / 1e9),
        inrush::sys::usage::peak_rss_bytes() >> 20,
        all.objects,
        all.objects as f64 / t,
        cpu / all.objects as f64 * 1e6
    );
    eprintln!("{all:?}");
}
