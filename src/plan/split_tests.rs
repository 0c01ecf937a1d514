//! Splitting, tested against stores of keys: every key once and in order, in bounded memory, for
//! any keys and any order of the answers; and the number of requests and waits.

use super::*;

/// Keys in the server's own order, and how it answers.
struct Store {
    keys: Vec<String>,
    page_keys: usize,
    /// From the request of this number on it answers `start-after` with the first page.
    deaf_from: u64,
    /// It orders by upper case.
    folds_case: bool,
    requests: u64,
}

impl Store {
    fn new(mut keys: Vec<String>, page_keys: usize) -> Self {
        keys.sort();
        keys.dedup();
        Self { keys, page_keys, deaf_from: u64::MAX, folds_case: false, requests: 0 }
    }

    fn page(&mut self, from: &ListFrom) -> Page {
        self.requests += 1;
        let start = match from {
            ListFrom::Start => 0,
            ListFrom::Token(token) => token.parse().expect("one of ours"),
            ListFrom::After(_) if self.requests >= self.deaf_from => 0,
            ListFrom::After(after) => {
                assert!(after.len() <= 1_024);
                let is_behind = |key: &String| match self.folds_case {
                    true => key.to_uppercase() > after.to_uppercase(),
                    false => key > after,
                };
                self.keys.partition_point(|key| !is_behind(key))
            }
        };
        let end = self.keys.len().min(start + self.page_keys);
        let object = |key: &String| Object { key: key.clone(), ..Object::default() };
        Page {
            objects: self.keys[start..end].iter().map(object).collect(),
            folders: Vec::new(),
            next_token: (end < self.keys.len()).then(|| end.to_string()),
        }
    }
}

/// Result of a listing.
#[derive(Debug)]
struct Listed {
    keys: Vec<String>,
    /// Including the first page.
    requests: u64,
    /// How many times all requests in flight were answered.
    rounds: u32,
    is_single: bool,
}

/// Lists everything; with a seed answers come in random order, without one a round at a time.
fn list(store: &mut Store, limits: SplitLimits, seed: Option<u64>) -> Result<Listed> {
    let mut chance = fastrand::Rng::with_seed(seed.unwrap_or(0));
    let prefix = if store.keys.iter().all(|key| key.starts_with("p/")) { "p/" } else { "" };
    let first = store.page(&ListFrom::Start);
    let mut split = Split::new(prefix, first, limits);
    let (mut keys, mut under_way, mut rounds) = (Vec::new(), Vec::new(), 0);
    while !split.is_done() {
        while let Some(request) = split.next_request() {
            under_way.push((request.number, store.page(&request.from)));
            assert!(under_way.len() <= limits.requests + 1, "requests at once");
        }
        let answers_left = if seed.is_some() { chance.usize(..8) } else { usize::MAX };
        for _ in 0..answers_left {
            let Some(page) = split.take_page() else {
                if !split.is_done() {
                    split.note_wait();
                }
                break;
            };
            assert!(!page.is_empty());
            keys.extend(page.into_iter().map(|object| object.key));
            // Like a client: it requests more as soon as there is room.
            while let Some(request) = split.next_request() {
                under_way.push((request.number, store.page(&request.from)));
            }
        }
        assert!(split.buffered <= limits.pages.max(1) + 1, "{} pages", split.buffered);
        assert_eq!(split.buffered, split.segments.iter().map(|one| one.pages.len()).sum::<usize>());
        rounds += u32::from(!under_way.is_empty());
        let answers = match seed {
            Some(_) if under_way.is_empty() => 0,
            Some(_) => chance.usize(1..=under_way.len().min(3)),
            None => under_way.len(),
        };
        for _ in 0..answers {
            let at = if seed.is_some() { chance.usize(..under_way.len()) } else { 0 };
            let (number, page) = under_way.remove(at);
            split.answer(number, page)?;
        }
        if seed.is_some() && chance.u8(..50) == 0 {
            split.slow_down();
        }
        assert!(store.requests < 100_000, "it ends");
    }
    Ok(Listed { keys, requests: store.requests, rounds, is_single: split.is_single() })
}

/// About `count` keys of some kind.
fn keys(kind: u64, count: usize, chance: &mut fastrand::Rng) -> Vec<String> {
    let word = |chance: &mut fastrand::Rng, letters: &str, length: usize| -> String {
        let letters: Vec<char> = letters.chars().collect();
        (0..length).map(|_| letters[chance.usize(..letters.len())]).collect()
    };
    let numbered = |prefix: &str, count: usize| -> Vec<String> {
        (0..count).map(|number| format!("{prefix}{number:06}.bin")).collect()
    };
    let base = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    match kind {
        0 => numbered("p/", count),
        1 => (0..count).map(|at| format!("p/{:02}/{:06}.bin", at * 20 / count, at)).collect(),
        2 => (0..count).map(|_| format!("p/{}", word(chance, "0123456789abcdef", 16))).collect(),
        3 => (0..count).map(|_| word(chance, base, 22)).collect(),
        // One large folder between small ones.
        4 => {
            [numbered("p/a/", count / 20), numbered("p/m/hot/", count), numbered("p/z/", count / 9)]
                .concat()
        }
        5 => (0..count).map(|number| format!("p/img_{number}.jpg")).collect(),
        6 => (0..count).map(|_| format!("p/{}", word(chance, "aé日本\u{10ffff}z/", 8))).collect(),
        // As long as keys may be, and different only at the end.
        7 => (0..count).map(|at| format!("p/{}{at:06}", "k".repeat(992))).collect(),
        8 => (0..count).map(|at| format!("p/{:03}/{at}/", at % 37)).collect(),
        // Classes whose names have no order, with unequal numbers of files.
        9 => (0..1 + count / 130)
            .flat_map(|_| {
                let class = format!("n{:08}", chance.u32(1_400_000..15_000_000));
                let files = chance.usize(10..250);
                (0..files)
                    .map(move |at| format!("p/{class}/{class}_{}.JPEG", at * 37))
                    .collect::<Vec<_>>()
            })
            .collect(),
        // A dense range, an empty one, another dense one.
        10 => [numbered("p/0000", count / 2), numbered("p/zzzz", count / 2)].concat(),
        11 => (0..count).map(|at| format!("p/{}", "\u{1}".repeat(at % 1_000 + 1))).collect(),
        _ => (0..count)
            .map(|at| {
                format!("p/2024-{:02}-{:02}T{}", at % 12 + 1, at % 28 + 1, word(chance, base, 5))
            })
            .collect(),
    }
}

const KINDS: u64 = 13;

#[test]
fn every_key_comes_once_and_in_order() {
    for seed in 0..2_600 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let count = [0, 1, 9, 40, 400, 1_500][chance.usize(..6)];
        let keys = keys(seed % KINDS, count, &mut chance);
        let mut store = Store::new(keys, [1, 2, 7, 10][chance.usize(..4)]);
        if seed % 10 == 9 {
            store.deaf_from = chance.u64(..30);
        }
        let limits = SplitLimits { requests: chance.usize(1..12), pages: chance.usize(2..40) };
        let listing = list(&mut store, limits, Some(seed)).expect("a listing");
        let is_same = listing.keys == store.keys;
        assert!(is_same, "seed {seed}: {} of {} keys", listing.keys.len(), store.keys.len());
        // If every answer is right, none may be judged wrong.
        assert!(seed % 10 == 9 || !listing.is_single, "seed {seed} was given up");
    }
}

/// Large listings, whose pages arrive in any order, with waits in between.
#[test]
fn a_listing_in_order_is_never_given_up() {
    for seed in 0..65 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut store = Store::new(keys(seed % KINDS, 20_000, &mut chance), 20);
        let limits = SplitLimits { requests: 16, pages: 128 };
        let listing = list(&mut store, limits, Some(seed)).expect("a listing");
        assert!(listing.keys == store.keys && !listing.is_single, "seed {seed}");
    }
}

#[test]
fn another_order_is_kept_or_refused() {
    let (mut kept, mut refused) = (0, 0);
    for seed in 0..1_000 {
        let mut chance = fastrand::Rng::with_seed(seed);
        // Equal in both orders up to some key.
        let mut keys: Vec<String> =
            (0..chance.usize(..600)).map(|_| letters(&mut chance, "abc")).collect();
        let tail = if seed % 2 == 0 { "a_Bd" } else { "ab_{" };
        keys.extend((0..200).map(|_| format!("c{}", letters(&mut chance, tail))));
        let mut store = Store::new(keys, 10);
        store.keys.sort_by_key(|key| key.to_uppercase());
        store.keys.dedup_by_key(|key| key.to_uppercase());
        store.folds_case = true;
        let limits = SplitLimits { requests: chance.usize(2..12), pages: chance.usize(4..40) };
        match list(&mut store, limits, Some(seed)) {
            Ok(listing) => {
                assert!(listing.keys == store.keys, "seed {seed}: {}", listing.keys.len());
                assert!(listing.is_single, "seed {seed}");
                kept += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("changes its order"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(kept > 50, "{kept} kept, {refused} refused");
}

/// A page of numbers, with more to come.
fn numbers(numbers: impl Iterator<Item = u32>) -> Page {
    let object = |number| Object { key: format!("{number:05}"), ..Object::default() };
    let objects: Vec<_> = numbers.map(object).collect();
    let next_token = objects.last().map(|last| format!("behind {}", last.key));
    Page { objects, folders: Vec::new(), next_token }
}

/// A listing of numbers of which two pages were received, and two more requested: by a token and
/// after 39.
fn split_behind_39() -> (Split, u64, u64) {
    let mut split = Split::new("", numbers(0..10), LIMITS);
    assert!(split.take_page().is_some());
    let second = split.next_request().expect("one page ahead");
    split.note_wait();
    assert_eq!(split.next_request(), None, "two pages come one after the other");
    split.answer(second.number, numbers(10..20)).expect("in order");
    assert!(split.take_page().is_some());
    let third = split.next_request().expect("a page");
    assert_eq!(third.from, ListFrom::Token("behind 00019".to_owned()));
    assert_eq!(split.next_request(), None, "nobody has waited");
    split.note_wait();
    let guess = split.next_request().expect("another one");
    assert_eq!(guess.from, ListFrom::After("00039".to_owned()));
    (split, third.number, guess.number)
}

/// All keys that can be taken.
fn take(split: &mut Split) -> Vec<u32> {
    let pages = std::iter::from_fn(|| split.take_page());
    pages.flatten().map(|object| object.key.parse().expect("a number")).collect()
}

#[test]
fn pages_that_meet_agree_on_the_key_that_follows() {
    for lacks_40 in [false, true] {
        let (mut split, third, guess) = split_behind_39();
        split.answer(guess, numbers(40 + u32::from(lacks_40)..50)).expect("in order");
        split.answer(third, numbers(20..45)).expect("in order");
        assert_eq!(split.is_single(), lacks_40);
        let expected: Vec<u32> = if lacks_40 { vec![] } else { (20..50).collect() };
        assert_eq!(take(&mut split), expected);
        if lacks_40 {
            let again = split.next_request().expect("a page");
            assert_eq!(again.from, ListFrom::Token("behind 00019".to_owned()));
            split.answer(again.number, numbers(20..45)).expect("in order");
            assert_eq!(take(&mut split), Vec::from_iter(20..45));
        }
    }
}

#[test]
fn a_page_that_comes_late_begins_with_what_is_known() {
    for lacks_49 in [false, true] {
        let (mut split, third, guess) = split_behind_39();
        split.answer(third, numbers(20..50)).expect("in order");
        assert_eq!(take(&mut split), Vec::from_iter(20..50));
        let late = (40..60).filter(|number| !lacks_49 || *number != 49);
        split.answer(guess, numbers(late)).expect("in order");
        assert_eq!(split.is_single(), lacks_49);
        let expected: Vec<u32> = if lacks_49 { vec![] } else { (50..60).collect() };
        assert_eq!(take(&mut split), expected);
    }
}

/// A word of six of these letters.
fn letters(chance: &mut fastrand::Rng, letters: &str) -> String {
    let letters: Vec<char> = letters.chars().collect();
    (0..6).map(|_| letters[chance.usize(..letters.len())]).collect()
}

const LIMITS: SplitLimits = SplitLimits { requests: 16, pages: 128 };

#[test]
fn many_requests_at_once_and_few_in_vain() {
    // For about a thousand pages: most requests, and most rounds; one by one takes a round per
    // page. Measured, plus a tenth.
    let most = [
        (1_100, 76),
        (1_170, 81),
        (1_170, 87),
        (1_170, 97),
        (1_300, 88),
        (1_400, 116),
        (1_250, 175),
        (1_100, 76),
        (1_270, 94),
        (1_710, 140),
        (1_110, 76),
        (11, 10),
        (1_500, 118),
    ];
    for (kind, (requests, rounds)) in (0..KINDS).zip(most) {
        let mut chance = fastrand::Rng::with_seed(kind);
        let mut store = Store::new(keys(kind, 100_000, &mut chance), 100);
        let listing = list(&mut store, LIMITS, None).expect("a listing");
        assert!(listing.keys == store.keys && !listing.is_single, "kind {kind}");
        let found = (listing.requests, listing.rounds);
        assert!(found.0 <= requests && found.1 <= rounds, "kind {kind}: {found:?}");
    }
}

#[test]
fn a_guess_is_a_page_away() {
    let page = |numbers: std::ops::Range<u32>| -> Vec<Object> {
        let key = |number| format!("p/{:02}/{number:06}.bin", number / 50_000);
        numbers.map(|number| Object { key: key(number), ..Object::default() }).collect()
    };
    let mut alphabet = Alphabet::new("p/");
    alphabet.learn(&page(0..1_000));
    let density = Density::of(&page(1_000..2_000)).expect("two keys");
    // The common prefix of these keys ends with their thousands.
    let guess = |keys| alphabet.advance(&density, "p/00/001999.bin", keys);
    assert_eq!(guess(1_000), Some(("p/00/002999.bin".to_owned(), true)));
    assert_eq!(guess(8_000), Some(("p/00/009999.bin".to_owned(), true)));
    // The next folder follows the numbers of six digits.
    assert_eq!(guess(1_000_000), Some(("p/01/001999.bin".to_owned(), true)));
    assert_eq!(guess(1_000_000_000), None, "beyond p/99/");
    let between = |to| alphabet.keys_between(&density, "p/00/001999.bin", to);
    assert_eq!(between("p/00/004999.bin"), Some((3_000, true)));
    assert_eq!(between("p/01/001999.bin"), Some((1_000_000, true)));
}

/// Milliseconds that a listing takes if the server answers after 20 ms and sends its pages one
/// after the other, a page in 1.3 ms, and the client needs about as long for each.
fn listed_in_ms(store: &mut Store, seed: u64) -> u64 {
    let mut chance = fastrand::Rng::with_seed(seed);
    let first = store.page(&ListFrom::Start);
    let mut split = Split::new("p/", first, LIMITS);
    let (mut now_us, mut server_free_us) = (0u64, 0u64);
    // When a page will arrive.
    let mut under_way: Vec<(u64, u64, Page)> = Vec::new();
    while !split.is_done() {
        under_way.sort_by_key(|one| one.0);
        let there = under_way.partition_point(|one| one.0 <= now_us);
        for (_, number, page) in under_way.drain(..there) {
            split.answer(number, page).expect("in order");
        }
        let is_received = split.take_page().is_some();
        if !is_received {
            split.note_wait();
        }
        while let Some(request) = split.next_request() {
            server_free_us = server_free_us.max(now_us + 20_000) + chance.u64(1_000..1_600);
            let there_us = server_free_us + chance.u64(..4_000);
            under_way.push((there_us, request.number, store.page(&request.from)));
        }
        now_us = match under_way.iter().map(|one| one.0).min() {
            Some(next_us) if !is_received => next_us.max(now_us),
            _ => now_us + chance.u64(900..1_500),
        };
    }
    now_us / 1_000
}

/// Folders whose numbers continue those of the previous one: cuts estimated from the gap between
/// folders must not be empty repeatedly.
#[test]
fn numbers_that_go_on_from_folder_to_folder_are_listed_at_the_servers_speed() {
    let numbered = (0..200_000).map(|at| format!("p/{:02}/{at:06}.bin", at / 10_000)).collect();
    let mut store = Store::new(numbered, 200);
    let times: Vec<u64> = (0..10).map(|seed| listed_in_ms(&mut store, seed)).collect();
    // A thousand pages take the server 1,300 ms.
    assert!(times.iter().all(|ms| *ms < 2_700), "{times:?} ms");
}
