//! Listings compared with a model that filters and groups all keys at once.

use std::collections::BTreeSet;

use percent_encoding::percent_encode;

use super::*;
use crate::config::{Config, ObjectSpec, SyntheticSet};
use crate::store::Store;

const KEYS: [&str; 12] = [
    "a/b/1",
    "a/b/2",
    "a/c",
    "a",
    "a b+c%2F&<x>",
    "photos/2024/x.jpg",
    "photos/2025/y.jpg",
    "photos0",
    ".hidden",
    "é/1",
    "日本/語",
    "\u{10ffff}/z",
];

fn store(keys: &[&str], synthetic: Option<SyntheticSet>) -> Store {
    let mut config = Config::default();
    for key in keys {
        config.objects.push(ObjectSpec::new("b", *key, &b"x"[..]));
    }
    config.synthetic.extend(synthetic);
    Store::new(&config).unwrap()
}

fn page(store: &Store, query: &str) -> Page {
    ListRequest::parse(&Query::parse(query)).unwrap().page(store.bucket("b").unwrap())
}

/// All pages: keys, common prefixes, and how many pages there were.
fn all_pages(store: &Store, query: &str) -> (Vec<String>, Vec<String>, usize) {
    let (mut keys, mut prefixes, mut pages) = (Vec::new(), Vec::new(), 0);
    let mut token = String::new();
    loop {
        let page = page(store, &format!("{query}{token}"));
        pages += 1;
        keys.extend(page.objects.into_iter().map(|(key, _)| key));
        prefixes.extend(page.common_prefixes);
        if !page.truncated {
            return (keys, prefixes, pages);
        }
        let next = page.last.unwrap().to_token();
        let encoded = percent_encode(next.as_bytes(), NON_ALPHANUMERIC);
        token = format!("&continuation-token={encoded}");
        assert!(pages < 10_000);
    }
}

#[test]
fn every_combination_agrees_with_the_model() {
    let store = store(&KEYS, None);
    for prefix in ["", "a", "a/", "photos/", "é", "nothing", "\u{10ffff}"] {
        for delimiter in ["", "/", "/b", "1"] {
            for start_after in
                ["", "a", "a/b/1", "a/b/", "photos/2024", "é/1", "\u{10ffff}\u{10ffff}"]
            {
                let mut keys = Vec::new();
                let mut prefixes = BTreeSet::new();
                let sorted: BTreeSet<_> = KEYS.iter().copied().collect();
                for key in sorted {
                    let Some(rest) = key.strip_prefix(prefix) else { continue };
                    if !start_after.is_empty() && key <= start_after {
                        continue;
                    }
                    match rest.find(delimiter).filter(|_| !delimiter.is_empty()) {
                        Some(at) => {
                            let end = prefix.len() + at + delimiter.len();
                            prefixes.insert(key[..end].to_owned());
                        }
                        None => keys.push(key.to_owned()),
                    }
                }
                let prefixes: Vec<_> = prefixes.into_iter().collect();
                for max_keys in [1, 2, 3, 1000] {
                    let query = format!(
                        "prefix={prefix}&delimiter={delimiter}&start-after={start_after}\
                         &max-keys={max_keys}"
                    );
                    let (got_keys, got_prefixes, pages) = all_pages(&store, &query);
                    assert_eq!((&got_keys, &got_prefixes), (&keys, &prefixes), "{query}");
                    assert_eq!(pages, (keys.len() + prefixes.len()).div_ceil(max_keys).max(1));
                }
            }
        }
    }
}

#[test]
fn many_synthetic_keys() {
    let mut set = SyntheticSet::new("b", "p/", 200_000, 39 << 10);
    set.folders = 20;
    let store = store(&[], Some(set));
    let (keys, _, pages) = all_pages(&store, "");
    assert_eq!((keys.len(), pages), (200_000, 200));
    assert!(keys.is_sorted());
    let (keys, prefixes, _) = all_pages(&store, "prefix=p/&delimiter=/");
    assert_eq!((keys.len(), prefixes.len()), (0, 20));
    assert_eq!(prefixes[19], "p/19/");
}

#[test]
fn zero_keys_is_an_empty_page() {
    let page = page(&store(&KEYS, None), "max-keys=0");
    assert!(page.objects.is_empty() && !page.truncated);
}

#[test]
fn bad_arguments_are_refused() {
    let good = Last::Key("a".to_owned()).to_token();
    assert!(Last::from_token(&good).is_some());
    let damaged = good.replacen(|c: char| c.is_ascii_lowercase(), "Z", 1);
    for query in [
        "continuation-token=".to_owned(),
        "continuation-token=abc".to_owned(),
        format!("continuation-token={}", percent_encode(damaged.as_bytes(), NON_ALPHANUMERIC)),
        "max-keys=-1".to_owned(),
        "max-keys=x".to_owned(),
        "encoding-type=base64".to_owned(),
    ] {
        let error = ListRequest::parse(&Query::parse(&query)).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument, "{query}");
    }
    let query = Query::parse("max-keys=5000");
    assert_eq!(ListRequest::parse(&query).unwrap().max_keys, 1000);
}

#[test]
fn the_answer_is_well_formed() {
    let store = store(&["a b+c%2F&<x>/é"], None);
    let bucket = store.bucket("b").unwrap();
    let answer = |query: &str| {
        ListRequest::parse(&Query::parse(query)).unwrap().answer(&store, "b", bucket).unwrap()
    };
    let plain = answer("");
    for expected in [
        "<Name>b</Name><Prefix></Prefix>",
        "<KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>",
        "<Key>a b+c%2F&amp;&lt;x&gt;/é</Key>",
        "<LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>&quot;",
        "&quot;</ETag><Size>1</Size><StorageClass>STANDARD</StorageClass></Contents>",
    ] {
        assert!(plain.contains(expected), "{expected} in {plain}");
    }
    let encoded = answer("encoding-type=url&prefix=a%20b");
    assert!(encoded.contains("<EncodingType>url</EncodingType>"), "{encoded}");
    assert!(encoded.contains("<Prefix>a+b</Prefix>"), "{encoded}");
    assert!(encoded.contains("<Key>a+b%2Bc%252F%26%3Cx%3E/%C3%A9</Key>"), "{encoded}");
    let grouped = answer("delimiter=/");
    assert!(grouped.contains("<CommonPrefixes><Prefix>a b+c%2F&amp;&lt;x&gt;/</Prefix>"));
    assert!(grouped.contains("<Delimiter>/</Delimiter>"), "{grouped}");
}
