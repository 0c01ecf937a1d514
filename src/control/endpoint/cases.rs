//! The endpoint rules of the AWS SDKs, by the cases of botocore's own tests.

use super::*;

/// A line for each case.
const CASES: &str = include_str!("cases.txt");

/// The endpoint of a case, as the list writes it. Where a URL is given, the SDKs write the bucket
/// into its host if they can, which is `--addressing-style virtual` here.
fn endpoint_of(region: &str, bucket: &str, options: &str, url: &str) -> Result<String> {
    let has = |option| options.split(',').any(|found| found == option);
    let url = (url != "-").then(|| EndpointUrl::parse(url, None)).transpose()?;
    if !is_region(url.as_ref(), region) {
        return Err(Error::new(ErrorKind::Usage, "no region"));
    }
    let region = region_or_default(Some(region.to_owned()));
    let bucket = if bucket == "-" { SERVICE } else { bucket };
    let is_label = aws::is_host_name(bucket)
        && (!bucket.contains('.') || url.as_ref().is_some_and(|url| !url.tls));
    let addressing = match (has("path"), url.is_some() && is_label) {
        (true, _) => AddressingStyle::Path,
        (false, true) => AddressingStyle::Virtual,
        (false, false) => AddressingStyle::Auto,
    };
    let service = Service {
        url,
        addressing,
        variant: Variant { dualstack: has("dualstack"), fips: has("fips") },
        accelerate: has("accelerate"),
        sessions: !has("no-sessions"),
        no_multi_region: has("no-multi-region"),
        ..Service::default()
    };
    let placed = service.place(bucket, &region)?;
    let scheme = if placed.tls { "https" } else { "http" };
    let signed = if placed.session.is_some() { "session" } else { placed.service };
    let path = placed.path_prefix.trim_end_matches('/');
    Ok(format!("{scheme}://{}{path} {signed} {}", placed.host, placed.region))
}

#[test]
fn endpoints_are_those_of_the_sdks() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for case in CASES.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = case.split('\t').collect();
        let [region, bucket, options, url, expected] = fields[..] else {
            panic!("five fields: {case}");
        };
        count += 1;
        match endpoint_of(region, bucket, options, url) {
            Ok(found) if found == expected => {}
            Err(_) if expected == "error" => {}
            found => wrong.push(format!("{case}: {found:?}")),
        }
    }
    assert_eq!(wrong, [""; 0], "{} of {count}", wrong.len());
    assert!(CASES.contains(&format!("{count} of its ")), "the list has {count}");
}
