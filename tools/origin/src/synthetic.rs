//! Bytes of objects that nobody stores: a pure function of key and offset.
//!
//! The function: every key has a 64-bit seed; page `p` (4 KiB) of the object is one fixed table of
//! 512 random words, each xor-ed with `mix(seed + (p + 1) * GOLDEN)`, little-endian. Any two pages
//! of any two keys differ in every word (but for 64-bit collisions), and every word of a page
//! differs from its neighbours, so a byte that lands in the wrong place is noticed. One xor a word
//! is what makes it faster than a socket.
//!
//! Not here: which objects exist (`store.rs`), or the buffers that bodies are made of (`body.rs`).

use std::sync::LazyLock;

/// One page of the pattern: small enough to stay in the nearest cache beside its target.
const PAGE_BYTES: usize = 4096;
const WORDS: usize = PAGE_BYTES / 8;
/// 2^64 divided by the golden ratio: the step of splitmix64, which spreads counters over all bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

static TABLE: LazyLock<[u64; WORDS]> = LazyLock::new(|| {
    let mut state = 0_u64;
    std::array::from_fn(|_| {
        state = state.wrapping_add(GOLDEN);
        mix(state)
    })
});

/// Fills `out` with the bytes of the synthetic object `key` that begin at `offset`.
///
/// The bytes depend on nothing else: not on the bucket, the object's size or the run.
///
/// ```
/// let mut whole = [0; 100];
/// inrush_origin::synthetic_bytes("a/b.bin", 4090, &mut whole);
/// let mut part = [0; 10];
/// inrush_origin::synthetic_bytes("a/b.bin", 4095, &mut part);
/// assert_eq!(whole[5..15], part);
/// ```
pub fn synthetic_bytes(key: &str, offset: u64, out: &mut [u8]) {
    fill(seed_of(key), offset, out);
}

/// The seed of a key, so that a body need not hold or hash the key again for each frame.
pub(crate) fn seed_of(key: &str) -> u64 {
    fingerprint(key.as_bytes(), 0)
}

/// [`synthetic_bytes`] with the key already hashed.
pub(crate) fn fill(seed: u64, offset: u64, out: &mut [u8]) {
    let mut page = offset / PAGE_BYTES as u64;
    let within = index(offset % PAGE_BYTES as u64);
    let head = if within == 0 { 0 } else { out.len().min(PAGE_BYTES - within) };
    let (first, rest) = out.split_at_mut(head);
    if head > 0 {
        first.copy_from_slice(&whole_page(seed, page)[within..within + head]);
        page += 1;
    }
    let mut pages = rest.chunks_exact_mut(PAGE_BYTES);
    for target in &mut pages {
        fill_page(seed, page, target);
        page += 1;
    }
    let last = pages.into_remainder();
    if !last.is_empty() {
        last.copy_from_slice(&whole_page(seed, page)[..last.len()]);
    }
}

/// 64 bits of identity of some bytes and a number; not cryptographic, and the same on every run.
pub(crate) fn fingerprint(bytes: &[u8], number: u64) -> u64 {
    // FNV-1a: a key is short, and the mixing below repairs its weak high bits.
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(hash ^ mix(number.wrapping_add(GOLDEN)))
}

/// The finaliser of splitmix64: every bit of the input changes half the bits of the output.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// An offset or length that is known to fit memory as an index.
pub(crate) fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("bounded by a buffer that exists")
}

fn whole_page(seed: u64, page: u64) -> [u8; PAGE_BYTES] {
    let mut bytes = [0; PAGE_BYTES];
    fill_page(seed, page, &mut bytes);
    bytes
}

fn fill_page(seed: u64, page: u64, target: &mut [u8]) {
    let page_word = mix(seed.wrapping_add(page.wrapping_add(1).wrapping_mul(GOLDEN)));
    for (bytes, word) in target.chunks_exact_mut(8).zip(TABLE.iter()) {
        bytes.copy_from_slice(&(word ^ page_word).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_and_length_agrees_with_one_pass() {
        let mut whole = vec![0; 3 * PAGE_BYTES];
        synthetic_bytes("key", 0, &mut whole);
        for offset in (0..whole.len()).step_by(97) {
            for length in [0, 1, 7, 8, 9, 4095, 4096, 4097, 8000] {
                let length = length.min(whole.len() - offset);
                let mut part = vec![0; length];
                synthetic_bytes("key", offset as u64, &mut part);
                assert_eq!(part, whole[offset..offset + length], "offset {offset} length {length}");
            }
        }
    }

    #[test]
    fn keys_pages_and_words_differ() {
        let page = |key: &str, page: u64| whole_page(seed_of(key), page);
        assert_ne!(page("a", 0), page("b", 0));
        assert_ne!(page("a", 0), page("a", 1));
        let bytes = page("a", 0);
        let words: std::collections::HashSet<_> = bytes.chunks_exact(8).collect();
        assert_eq!(words.len(), WORDS);
        // A page of a terabyte object costs the same as the first.
        assert_ne!(page("a", 1 << 28), page("a", 1 << 20));
    }

    #[test]
    fn the_pattern_never_changes() {
        let mut bytes = [0; 8];
        synthetic_bytes("prefix/00/000000.bin", 0, &mut bytes);
        let word = mix(GOLDEN) ^ mix(seed_of("prefix/00/000000.bin").wrapping_add(GOLDEN));
        assert_eq!(u64::from_le_bytes(bytes), word);
    }
}
