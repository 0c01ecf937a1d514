//! Heads of answers, the one header whose numbers decide where bytes go, and chunks of bodies.

use inrush::limits::HEAD_BYTES_MAX;
use inrush::link::chunks::Chunks;
use inrush::link::http::{ContentRange, Head, drop_headers, parse};

use crate::splits;

/// The head of an answer: a cut of it is incomplete and never another head, what follows and
/// headers that are dropped change nothing, and what is refused stays refused.
pub fn head(data: &[u8]) {
    match parse(data) {
        Ok(Some(head)) => accepted(data, &head),
        Ok(None) => {
            assert!(data.len() < HEAD_BYTES_MAX as usize, "an endless head is waited for");
            for end in splits(data.len()) {
                assert_eq!(parse(&data[..end]), Ok(None), "the first {end} bytes");
            }
        }
        Err(_) => {
            let mut longer = data.to_vec();
            longer.extend_from_slice(b"\r\n\r\n");
            assert!(parse(&longer).is_err(), "more bytes made a head of what was none");
        }
    }
}

fn accepted(data: &[u8], head: &Head<'_>) {
    let length = head.length as usize;
    assert!(length <= data.len() && length <= HEAD_BYTES_MAX as usize);
    assert!(data[..length].ends_with(b"\n"));
    assert!(head.status < 1000);
    for end in splits(length) {
        assert_eq!(parse(&data[..end]), Ok(None), "the first {end} bytes of {length}");
    }
    assert_eq!(parse(&data[..length]).as_ref(), Ok(&Some(*head)), "without the body");
    let mut longer = data[..length].to_vec();
    longer.extend_from_slice(b"HTTP/1.1 500 x\r\nContent-Length: 1\r\n\r\n");
    assert_eq!(parse(&longer).as_ref(), Ok(&Some(*head)), "with another body");
    for end in splits(length) {
        let mut less = data[..end].to_vec();
        let left = drop_headers(&mut less);
        less.truncate(left);
        less.extend_from_slice(&data[end..]);
        let short = parse(&less).expect("a head").expect("complete");
        assert_eq!(short, Head { length: short.length, ..*head }, "dropped at {end} of {length}");
        let body = &less[short.length as usize..];
        assert_eq!(body, &data[length..], "dropped at {end} of {length}");
    }
    for value in [head.etag, head.request_id].into_iter().flatten() {
        let plain = |byte: &u8| !matches!(byte, b'\r' | b'\n' | 0);
        assert!(value.iter().all(plain), "a value goes beyond its line");
    }
    if let Some(range) = head.content_range {
        sound(range);
    }
}

fn sound(range: ContentRange) {
    assert!(range.first <= range.last, "{range:?}");
    assert!(range.size.is_none_or(|size| range.last < size), "{range:?}");
}

/// A body in chunks: the same body whatever the pieces it comes in, and no longer than those.
pub fn chunks(data: &[u8]) {
    let decode = |chunks: &mut Chunks, piece: &[u8]| {
        let mut piece = piece.to_vec();
        let count = chunks.decode(&mut piece) as usize;
        piece.truncate(count);
        piece
    };
    let mut whole = Chunks::BEGIN;
    let body = decode(&mut whole, data);
    assert!(!(whole.is_complete() && whole.is_damaged()));
    for end in splits(data.len()) {
        let mut chunks = Chunks::BEGIN;
        let mut pieces = decode(&mut chunks, &data[..end]);
        pieces.extend(decode(&mut chunks, &data[end..]));
        assert_eq!(pieces, body, "split at {end}");
        let seen = (chunks.is_complete(), chunks.is_damaged());
        assert_eq!(seen, (whole.is_complete(), whole.is_damaged()), "split at {end}");
    }
}

/// `Content-Range`: as text, where what is accepted is sound and can be written again; and as
/// three numbers, of which exactly those are accepted that name bytes of an object.
pub fn content_range(data: &[u8]) {
    if let Some(range) = range_of(data) {
        sound(range);
        let size = range.size.map_or_else(|| "*".to_owned(), |size| size.to_string());
        let text = format!("bytes {}-{}/{size}", range.first, range.last);
        assert_eq!(range_of(text.as_bytes()), Some(range), "{text}");
    }
    let mut words = data.chunks_exact(8).map(|word| {
        let word: [u8; 8] = word.try_into().expect("eight bytes");
        u64::from_le_bytes(word)
    });
    let (Some(first), Some(last), Some(size)) = (words.next(), words.next(), words.next()) else {
        return;
    };
    // Small numbers meet more often than large ones, and that is where mistakes are.
    let width = data.last().map_or(0, |byte| u32::from(byte % 64));
    let [first, last, size] = [first, last, size].map(|number| number >> width);
    let exact = |text: &str, size, fits: bool| {
        let expected = fits.then_some(ContentRange { first, last, size });
        assert_eq!(range_of(text.as_bytes()), expected, "{text}");
    };
    let inside = first <= last && last < size;
    exact(&format!("bytes {first}-{last}/{size}"), Some(size), inside);
    exact(&format!("bytes {first}-{last}/*"), None, first <= last);
}

/// The range that an answer with this header has; `None` where the answer is refused.
fn range_of(value: &[u8]) -> Option<ContentRange> {
    let mut answer = b"HTTP/1.1 206 Partial Content\r\nContent-Range: ".to_vec();
    answer.extend_from_slice(value);
    answer.extend_from_slice(b"\r\n\r\n");
    parse(&answer).ok()??.content_range
}
