//! ListBuckets: builds the query string, and parses a page.
//!
//! Pure. A page is parsed completely or rejected, like those of listings.
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListBuckets.html>

use quick_xml::Reader;
use quick_xml::events::Event;

use crate::error::{Error, ErrorKind, Result};
use crate::s3::list::resolve_reference;
use crate::s3::uri::{encode_query, shown};

/// Buckets per request; S3's limit is 10,000. Without this parameter S3 does not page; servers that
/// do not know it return all buckets.
const PAGE_BUCKETS_MAX: u32 = 1_000;
/// Deepest nesting of a page's elements.
const DEPTH_MAX: usize = 16;

/// One bucket of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// Creation time in ISO 8601; empty if the server does not send it.
    pub creation_date: String,
    /// Region; empty if the server does not send it.
    pub region: String,
}

/// One page of the list of buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BucketPage {
    /// The buckets, in the server's order.
    pub buckets: Vec<Bucket>,
    /// Token for the next page; `None` on the last.
    pub next_token: Option<String>,
}

/// The query string of a page, sorted and encoded for `SigV4`.
#[must_use]
pub fn buckets_query(token: Option<&str>) -> String {
    let page = format!("max-buckets={PAGE_BUCKETS_MAX}");
    match token {
        Some(token) => format!("continuation-token={}&{page}", encode_query(token)),
        None => page,
    }
}

/// Parses one page.
///
/// # Errors
/// [`ErrorKind::Endpoint`] if it is not a complete `ListAllMyBucketsResult`.
pub fn parse_buckets(bytes: &[u8]) -> Result<BucketPage> {
    let text = std::str::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8"))?;
    let mut reader = Reader::from_str(text);
    let mut page = BucketPage::default();
    let mut path: Vec<String> = Vec::new();
    let mut piece = String::new();
    let mut current = Bucket::default();
    loop {
        match reader.read_event().map_err(unreadable)? {
            Event::Start(start) => {
                let name = start.local_name().as_ref().to_owned();
                if path.is_empty() && name != ROOT {
                    return Err(unreadable(format!("it is <{}>, not <{ROOT}>", shown(&name))));
                }
                if path.len() == DEPTH_MAX {
                    return Err(unreadable("its elements nest too deep"));
                }
                path.push(name);
                piece.clear();
            }
            Event::Empty(empty) if path.is_empty() && empty.local_name().as_ref() == ROOT => break,
            Event::Text(text) => piece.push_str(&text.xml10_content()),
            Event::CData(text) => piece.push_str(&text.xml10_content()),
            Event::GeneralRef(reference) => {
                piece.push(resolve_reference(&reference).ok_or_else(|| unreadable("a bad entity"))?)
            }
            Event::End(_) => {
                let names: Vec<&str> = path.iter().map(String::as_str).collect();
                let text = std::mem::take(&mut piece);
                match names.as_slice() {
                    [ROOT] => break,
                    [ROOT, "Buckets", "Bucket", "Name"] => current.name = text,
                    [ROOT, "Buckets", "Bucket", "CreationDate"] => current.creation_date = text,
                    [ROOT, "Buckets", "Bucket", "BucketRegion"] => current.region = text,
                    [ROOT, "Buckets", "Bucket"] => {
                        let bucket = std::mem::take(&mut current);
                        if bucket.name.is_empty() {
                            return Err(unreadable("a bucket has no Name"));
                        }
                        page.buckets.push(bucket);
                    }
                    [ROOT, "ContinuationToken"] => {
                        page.next_token = Some(text).filter(|token| !token.is_empty());
                    }
                    _ => {}
                }
                path.pop();
            }
            Event::Eof => return Err(unreadable("it is cut short")),
            _ => {}
        }
    }
    Ok(page)
}

/// The root element.
const ROOT: &str = "ListAllMyBucketsResult";

fn unreadable(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Endpoint, format!("the list of buckets cannot be read: {why}"))
        .advise("check that --endpoint-url is an S3 server that knows ListBuckets")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the format of S3's documentation.
    const PAGE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListAllMyBucketsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
<Owner><DisplayName>me</DisplayName><ID>o</ID></Owner>
<Buckets><Bucket><CreationDate>2019-12-11T23:32:47+00:00</CreationDate>
<Name>amzn-s3-demo-bucket</Name><BucketRegion>eu-west-1</BucketRegion></Bucket>
<Bucket><Name>b&amp;2</Name></Bucket></Buckets>
<ContinuationToken>1/x+y==</ContinuationToken><Prefix>a</Prefix>
</ListAllMyBucketsResult>"#;

    #[test]
    fn a_page() {
        let page = parse_buckets(PAGE.as_bytes()).expect("a good page");
        let first = Bucket {
            name: "amzn-s3-demo-bucket".to_owned(),
            creation_date: "2019-12-11T23:32:47+00:00".to_owned(),
            region: "eu-west-1".to_owned(),
        };
        let second = Bucket { name: "b&2".to_owned(), ..Bucket::default() };
        assert_eq!(page.buckets, [first, second]);
        assert_eq!(page.next_token.as_deref(), Some("1/x+y=="));
    }

    #[test]
    fn a_page_without_buckets() {
        for text in [
            "<ListAllMyBucketsResult/>",
            "<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>",
            "<ListAllMyBucketsResult><Buckets></Buckets><ContinuationToken></ContinuationToken>\
             </ListAllMyBucketsResult>",
        ] {
            assert_eq!(parse_buckets(text.as_bytes()).expect(text), BucketPage::default());
        }
    }

    #[test]
    fn every_prefix_is_an_error() {
        for end in 0..PAGE.len() {
            assert!(parse_buckets(&PAGE.as_bytes()[..end]).is_err(), "{}", &PAGE[..end]);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |from: &str, to: &str, expected: &str| {
            let error = parse_buckets(PAGE.replace(from, to).as_bytes()).expect_err("a bad page");
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(error.kind(), ErrorKind::Endpoint);
        };
        check("ListAllMyBucketsResult", "html", "it is <html>");
        check("<Name>b&amp;2</Name>", "", "no Name");
        check("b&amp;2", "b&nope;2", "bad entity");
        check("<Prefix>a</Prefix>", &"<a>".repeat(DEPTH_MAX), "nest too deep");
    }

    #[test]
    fn questions() {
        assert_eq!(buckets_query(None), "max-buckets=1000");
        assert_eq!(buckets_query(Some("x+y/=")), "continuation-token=x%2By%2F%3D&max-buckets=1000");
    }
}
