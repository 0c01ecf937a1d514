//! Pages of listings: whole or not at all.

use inrush::s3::OBJECT_BYTES_MAX;
use inrush::s3::list::parse_page;
use inrush::s3::uri::encode_key;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::splits;

/// A page: a cut of it is an error and never a shorter page; what it names can be asked for; and
/// any key comes through as it was listed.
pub fn list(data: &[u8]) {
    if let Ok(page) = parse_page(data) {
        for end in splits(data.len()) {
            if let Ok(other) = parse_page(&data[..end]) {
                assert_eq!(other, page, "the first {end} bytes are another page");
            }
        }
        assert!(page.next_token.as_ref().is_none_or(|token| !token.is_empty()));
        for object in &page.objects {
            assert!(!object.key.is_empty());
            assert!(object.size_bytes <= OBJECT_BYTES_MAX, "{}", object.size_bytes);
            let fits = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
            assert!(object.etag.bytes().all(fits), "not for If-Match: {:?}", object.etag);
            askable(&object.key);
        }
    }
    let key = String::from_utf8_lossy(data);
    if !key.is_empty() {
        comes_through(&key);
    }
}

/// The key's form in a request target is plain, and stands for the key.
fn askable(key: &str) {
    let target: String = encode_key(key).collect();
    assert!(target.bytes().all(|byte| byte.is_ascii_graphic()), "{target:?}");
    assert!(!target.contains(['?', '#', '&', '+']), "{target:?}");
    assert_eq!(percent_decode_str(&target).decode_utf8().as_deref(), Ok(key));
}

fn comes_through(key: &str) {
    let name = utf8_percent_encode(key, NON_ALPHANUMERIC);
    let text = format!(
        "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>\
         <Contents><Key>{name}</Key><Size>{}</Size></Contents></ListBucketResult>",
        key.len()
    );
    let page = parse_page(text.as_bytes()).expect("a good page");
    assert_eq!(page.objects.len(), 1);
    assert_eq!((page.objects[0].key.as_str(), page.objects[0].size_bytes), (key, key.len() as u64));
    assert!(parse_page(&text.as_bytes()[..text.len() - 1]).is_err(), "cut by one byte");
    askable(key);
}
