//! Guesses the key at which a later page of a listing begins.
//!
//! Pure. Every position in a key has an alphabet: the characters seen there and, until the position
//! has cycled through all of them, likely neighbours. So keys become numbers, two keys of a listing
//! give the density of keys, and the key `n` keys further on is one addition away. A guess need not
//! be a key, nor accurate: listing from it returns whatever follows.

use crate::s3::Object;

/// Longest key in bytes (Amazon S3 User Guide, "Naming Amazon S3 objects").
const KEY_BYTES_MAX: usize = 1_024;
/// Every seventh key of a page is sampled. A prime, so that it meets all final digits in turn.
const SAMPLE_STEP: usize = 7;
/// Folder depth up to which positions are distinguished; deeper folders share one alphabet.
const DEPTH_MAX: usize = 16;
/// Most non-ASCII characters recorded per position.
const OTHERS_MAX: usize = 32;
/// Numbers have at least this many values if the keys are long enough.
const STEPS_MIN: u128 = 1 << 48;

/// The characters seen at each position in the keys of one listing.
#[derive(Debug, Default)]
pub struct Alphabet {
    /// By depth, then by position in the name.
    places: Vec<Vec<NamePosition>>,
    prefix_bytes: usize,
}

/// One position in a name.
#[derive(Debug, Clone, Default)]
struct NamePosition {
    /// The ASCII characters seen, one bit each.
    ascii: u128,
    /// Other characters, in order.
    others: Vec<char>,
    /// An earlier position has advanced, so this one has gone through all its characters.
    cycled: bool,
}

/// Density of keys: two keys of one listing, and the number of keys from one to the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Density {
    first: String,
    last: String,
    steps: u64,
}

impl Density {
    /// The density of a page; `None` if it has fewer than two keys.
    #[must_use]
    pub fn of(objects: &[Object]) -> Option<Self> {
        let [first, .., last] = objects else { return None };
        let steps = objects.len() as u64 - 1;
        Some(Self { first: first.key.clone(), last: last.key.clone(), steps })
    }

    /// The density of this page and the next one together.
    #[must_use]
    pub fn with(mut self, next: &Self) -> Self {
        self.steps += next.steps + 1;
        self.last.clone_from(&next.last);
        self
    }
}

impl NamePosition {
    fn see(&mut self, found: char) {
        if found.is_ascii() {
            self.ascii |= 1 << u32::from(found);
        } else if let Err(at) = self.others.binary_search(&found)
            && self.others.len() < OTHERS_MAX
        {
            self.others.insert(at, found);
        }
    }
}

/// Converts keys to numbers: the positions that are digits, and their characters.
struct Scale {
    /// The first position.
    start: usize,
    digits: Vec<Vec<char>>,
}

impl Scale {
    fn steps(&self) -> u128 {
        self.digits.iter().map(|digit| digit.len() as u128).product()
    }

    fn value(&self, key: &[char]) -> u128 {
        let places = (self.start..).zip(&self.digits);
        places.fold(0, |value, (place, digit)| {
            let rank = key.get(place).map_or(0, |found| rank(digit, *found));
            value * digit.len() as u128 + rank as u128
        })
    }

    fn write(&self, mut value: u128, key: &mut Vec<char>) {
        key.truncate(self.start);
        for digit in self.digits.iter().rev() {
            let radix = digit.len() as u128;
            key.push(digit[usize::try_from(value % radix).expect("less than a length")]);
            value /= radix;
        }
        key[self.start..].reverse();
    }
}

/// A digit's index of a character, or of the next one if it is not among them.
fn rank(digit: &[char], found: char) -> usize {
    digit.partition_point(|known| *known < found).min(digit.len() - 1)
}

/// Length of the common prefix of two keys, in characters.
fn shared(one: &[char], other: &[char]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// Depth and position in the name of every character.
fn places(key: &[char]) -> impl Iterator<Item = (usize, usize)> {
    key.iter().scan((0, 0), |next, found| {
        let at = *next;
        *next = match found {
            '/' => ((at.0 + 1).min(DEPTH_MAX), 0),
            _ => (at.0, at.1 + 1),
        };
        Some(at)
    })
}

impl Alphabet {
    /// For keys that all begin with `prefix`.
    #[must_use]
    pub const fn new(prefix: &str) -> Self {
        Self { places: Vec::new(), prefix_bytes: prefix.len() }
    }

    /// Learns from a page of ordered keys.
    pub fn learn(&mut self, objects: &[Object]) {
        let mut before = Vec::new();
        let last = objects.len().saturating_sub(1);
        let sampled = |at: &usize| at.is_multiple_of(SAMPLE_STEP) || *at == last;
        for (_, object) in (0..).zip(objects).filter(|(at, _)| sampled(at)) {
            let key = self.chars(&object.key);
            let alike = shared(&before, &key);
            for at in places(&before).skip(alike + 1) {
                self.place(at).cycled = true;
            }
            for (at, found) in places(&key).zip(&key).skip(alike) {
                self.place(at).see(*found);
            }
            before = key;
        }
    }

    /// The key that is `keys` keys after `base`, which has the listing's prefix, at this density;
    /// `None` if that is beyond all keys. Also returns whether it lies outside the common prefix of
    /// the density's two keys, so that the density may not apply there.
    #[must_use]
    pub fn advance(&self, density: &Density, base: &str, keys: u64) -> Option<(String, bool)> {
        let (first, last) = (self.chars(&density.first), self.chars(&density.last));
        let prefix = base.get(..self.prefix_bytes)?;
        let mut key = self.chars(base);
        let start = shared(&first, &last);
        if key.len() < start {
            return None;
        }
        let scale = self.scale(&last, start, None)?;
        let step = scale.value(&last).saturating_sub(scale.value(&first)).max(1);
        let far = step.checked_mul(u128::from(keys))?.div_ceil(u128::from(density.steps));
        let value = scale.value(&key).checked_add(far)?;
        let (mut carry, value) = (value / scale.steps(), value % scale.steps());
        let is_beyond = carry > 0;
        let above: Vec<_> = places(&key[..start]).collect();
        for (place, at) in above.into_iter().enumerate().rev() {
            if carry == 0 {
                break;
            }
            let digit = self.digit(at, key[place]);
            let radix = digit.len() as u128;
            let sum = rank(&digit, key[place]) as u128 + carry;
            key[place] = digit[usize::try_from(sum % radix).expect("less than a length")];
            carry = sum / radix;
        }
        if carry > 0 {
            return None;
        }
        scale.write(value, &mut key);
        let guess: String = prefix.chars().chain(key).collect();
        (guess.as_str() > base && guess.len() <= KEY_BYTES_MAX).then_some((guess, is_beyond))
    }

    /// The probable number of keys between two keys at this density; `None` if they are too far
    /// apart. Also returns whether they are further apart than the common prefix of the density's
    /// two keys.
    #[must_use]
    pub fn keys_between(&self, density: &Density, from: &str, to: &str) -> Option<(u64, bool)> {
        let (first, last) = (self.chars(&density.first), self.chars(&density.last));
        let (from, to) = (self.chars(from), self.chars(to));
        let fine = shared(&first, &last);
        let end = fine + self.scale(&last, fine, None)?.digits.len();
        let alike = shared(&from, &to);
        let scale = self.scale(&last, fine.min(alike), Some(end))?;
        let step = scale.value(&last).saturating_sub(scale.value(&first)).max(1);
        let far = scale.value(&to).saturating_sub(scale.value(&from));
        let keys = u64::try_from(far.checked_mul(u128::from(density.steps))? / step).ok()?;
        Some((keys, alike < fine))
    }

    /// The positions of `key` from `start` up to `end`, or as many as a number needs; `None` if
    /// there are none or too many.
    fn scale(&self, key: &[char], start: usize, end: Option<usize>) -> Option<Scale> {
        let mut digits = Vec::new();
        let mut steps = 1u128;
        for (place, at) in places(key).enumerate().skip(start) {
            if end.map_or(steps >= STEPS_MIN, |end| place >= end) {
                break;
            }
            let digit = self.digit(at, key[place]);
            steps = steps.checked_mul(digit.len() as u128).filter(|steps| *steps < 1 << 100)?;
            digits.push(digit);
        }
        (!digits.is_empty()).then_some(Scale { start, digits })
    }

    /// The possible characters at a position where `found` was seen, in order.
    fn digit(&self, at: (usize, usize), found: char) -> Vec<char> {
        let place = |offset| self.places.get(at.0).and_then(|places| places.get(at.1 + offset));
        let mut known = place(0).cloned().unwrap_or_default();
        known.see(found);
        if !known.cycled {
            // Add the rest of its class; if it is near digits (hexadecimal), only the letters of
            // its right neighbours.
            let seen = known.ascii;
            for class in [('0', '9'), ('a', 'z'), ('A', 'Z')].map(|(from, to)| bits(from, to)) {
                let neighbours = [1, 2].into_iter().filter_map(place);
                let near = neighbours.fold(0, |near, place| near | place.ascii);
                if seen & class != 0 && class != bits('0', '9') && near & bits('0', '9') != 0 {
                    known.ascii |= near & class;
                } else if seen & class != 0 {
                    known.ascii |= class;
                } else if seen & bits('0', '9') != 0 && near & bits('0', '9') != 0 {
                    known.ascii |= near & class;
                }
            }
        }
        let ascii = (0..128u8).filter(|code| known.ascii >> code & 1 == 1).map(char::from);
        let mut digit: Vec<char> = ascii.chain(known.others.iter().copied()).collect();
        if digit.binary_search(&found).is_err() {
            digit.insert(digit.partition_point(|known| *known < found), found);
        }
        digit
    }

    fn place(&mut self, (depth, offset): (usize, usize)) -> &mut NamePosition {
        if self.places.len() <= depth {
            self.places.resize_with(depth + 1, Vec::new);
        }
        let places = &mut self.places[depth];
        if places.len() <= offset {
            places.resize_with(offset + 1, NamePosition::default);
        }
        &mut places[offset]
    }

    /// A key's characters after the listing's prefix.
    fn chars(&self, key: &str) -> Vec<char> {
        key.get(self.prefix_bytes..).unwrap_or("").chars().collect()
    }
}

/// The bits of a range of characters.
fn bits(from: char, to: char) -> u128 {
    (from..=to).fold(0, |bits, found| bits | 1 << u32::from(found))
}
