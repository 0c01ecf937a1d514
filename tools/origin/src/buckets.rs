//! ListBuckets: the names of all buckets and a query in, one page of XML out. Pure.

use crate::error::{Code, S3Error, element};
use crate::request::Query;

/// S3's cap on buckets of one page.
const MAX_BUCKETS: usize = 10_000;
/// When every bucket was "made": as all objects that are no files.
const CREATED: &str = "2024-01-01T00:00:00.000Z";

/// The parameters of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketsRequest {
    prefix: String,
    /// The last name of the page before; it is the token, too.
    after: Option<String>,
    max_buckets: usize,
}

impl BucketsRequest {
    pub(crate) fn parse(query: &Query) -> Result<Self, S3Error> {
        let text = |name: &str| query.get(name).filter(|text| !text.is_empty());
        let max_buckets = match text("max-buckets") {
            None => MAX_BUCKETS,
            Some(number) => {
                let number =
                    number.parse().ok().filter(|number| (1..=MAX_BUCKETS).contains(number));
                number.ok_or_else(|| {
                    let why = "max-buckets must be from 1 to 10000";
                    S3Error::new(Code::InvalidArgument, why).with("ArgumentName", "max-buckets")
                })?
            }
        };
        Ok(Self {
            prefix: text("prefix").unwrap_or_default().to_owned(),
            after: text("continuation-token").map(str::to_owned),
            max_buckets,
        })
    }

    /// The whole answer, from names in order.
    pub(crate) fn answer<'a>(&self, names: impl Iterator<Item = &'a str>, region: &str) -> String {
        let is_next = |name: &&str| self.after.as_deref().is_none_or(|after| *name > after);
        let mut rest = names.filter(is_next).filter(|name| name.starts_with(&self.prefix));
        let page: Vec<&str> = rest.by_ref().take(self.max_buckets).collect();
        let mut xml = String::with_capacity(512 + 160 * page.len());
        xml.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        xml.push_str("<ListAllMyBucketsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
        xml.push_str("<Owner><ID>origin</ID></Owner><Buckets>");
        for name in &page {
            xml.push_str("<Bucket>");
            element(&mut xml, "Name", name);
            element(&mut xml, "CreationDate", CREATED);
            element(&mut xml, "BucketRegion", region);
            xml.push_str("</Bucket>");
        }
        xml.push_str("</Buckets>");
        if let Some(last) = page.last().filter(|_| rest.next().is_some()) {
            element(&mut xml, "ContinuationToken", last);
        }
        if !self.prefix.is_empty() {
            element(&mut xml, "Prefix", &self.prefix);
        }
        xml.push_str("</ListAllMyBucketsResult>");
        xml
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(query: &str) -> String {
        let request = BucketsRequest::parse(&Query::parse(query)).unwrap();
        let names = ["a", "b", "b2", "c"];
        request.answer(names.into_iter(), "r-1")
    }

    fn names(page: &str) -> Vec<&str> {
        let names = page.split("<Name>").skip(1);
        names.filter_map(|rest| rest.split_once("</Name>")).map(|(name, _)| name).collect()
    }

    #[test]
    fn pages_follow_each_other() {
        assert_eq!(names(&page("")), ["a", "b", "b2", "c"]);
        assert!(!page("max-buckets=4").contains("ContinuationToken"));
        let first = page("max-buckets=3");
        assert_eq!(names(&first), ["a", "b", "b2"]);
        assert!(first.contains("<ContinuationToken>b2</ContinuationToken>"), "{first}");
        assert_eq!(names(&page("max-buckets=3&continuation-token=b2")), ["c"]);
        assert_eq!(names(&page("prefix=b")), ["b", "b2"]);
        assert!(page("").contains("<BucketRegion>r-1</BucketRegion>"));
    }

    #[test]
    fn a_page_has_at_least_one_bucket() {
        for number in ["0", "10001", "x", "-1"] {
            let query = Query::parse(&format!("max-buckets={number}"));
            let error = BucketsRequest::parse(&query).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument, "{number}");
        }
    }
}
