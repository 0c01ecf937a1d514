//! Both rings side by side: the same seeded operations on real sockets, pipes and files must end
//! alike. What depends on timing alone (how much a short receive brings) is compared with what is
//! sure instead: all bytes, in order. No case waits for a time to pass.

mod bench;
mod cases;

use bench::Bench;
use inrush::sys::choice::RingKind;

/// Seeds that are run; `INRUSH_RING_TIMES` times as many where that is given.
const SEEDS: u64 = 200;

/// What a seed comes to with one ring.
fn transcript(kind: RingKind, seed: u64) -> Vec<String> {
    let mut plan = fastrand::Rng::with_seed(seed);
    let mut bench = Bench::new(kind, plan.u64(..));
    let bystanders = cases::bystanders(&mut bench);
    for _ in 0..plan.u32(4..12) {
        let (name, case) = cases::CASES[plan.usize(..cases::CASES.len())];
        // How often a case asks for chance may depend on timing.
        bench.reseed(plan.u64(..));
        bench.record(format!("-- {name}"));
        case(&mut bench);
    }
    cases::bystanders_end(&mut bench, bystanders);
    bench.finish()
}

#[test]
fn both_rings_end_alike() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = SEEDS * number("INRUSH_RING_TIMES").unwrap_or(1);
    let seeds = number("INRUSH_RING_SEED").map_or(0..count, |seed| seed..seed + 1);
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| {
            let ours = transcript(RingKind::Epoll, seed);
            assert_eq!(ours, transcript(RingKind::IoUring, seed), "epoll and io_uring differ");
        });
        if let Err(panic) = outcome {
            eprintln!("repeat with: INRUSH_RING_SEED={seed} cargo test --test ring");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Each case by itself, so that none is left out by chance.
#[test]
fn every_case_ends_alike() {
    for (name, case) in cases::CASES {
        for seed in 0..8 {
            let logs = [RingKind::Epoll, RingKind::IoUring].map(|kind| {
                let mut bench = Bench::new(kind, seed);
                case(&mut bench);
                bench.finish()
            });
            assert_eq!(logs[0], logs[1], "{name}, seed {seed}: epoll and io_uring differ");
            assert!(!logs[0].is_empty(), "{name} says nothing");
        }
    }
}
